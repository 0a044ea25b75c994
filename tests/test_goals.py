"""Drawing examples: horizons, starts and blocks within episodes, and the time to go."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from goalward.control.goals import Examples, GoalSampler
from goalward.control.metrics import time_to_go_quality
from goalward.control.networks import TimeToGo, TimeToGoConfig, quantile_steps

LENGTHS = np.array([4, 9, 2, 7, 1])


def sampler(chosen: list[int], *, least: int = 1, most: int = 5, block: int = 1) -> GoalSampler:
    """Latents and actions that say their own row."""
    rows = torch.arange(int(LENGTHS.sum()), dtype=torch.float32)[:, None]
    return GoalSampler(
        rows,
        rows + 0.5,
        LENGTHS,
        np.array(chosen),
        min_horizon=least,
        max_horizon=most,
        block=block,
    )


def draw(source: GoalSampler, number: int = 20_000, seed: int = 0) -> Examples:
    return source.draw(number, torch.Generator().manual_seed(seed))


def episode_of(rows: torch.Tensor) -> np.ndarray:
    return np.searchsorted(np.cumsum(LENGTHS), rows.numpy(), side="right")


def test_examples_join_rows_of_one_chosen_episode_the_stated_steps_apart() -> None:
    found = draw(sampler([1, 3]))
    start, goal = found.z[:, 0], found.z_goal[:, 0]
    assert torch.equal(goal - start, found.steps.float())
    assert (episode_of(start) == episode_of(goal)).all()
    assert set(episode_of(start)) == {1, 3}
    assert torch.equal(found.actions[:, 0], start + 0.5)


def test_horizons_are_uniform_although_long_ones_have_fewer_starts() -> None:
    found = draw(sampler([1, 3]))
    counts = Counter(found.steps.tolist())
    assert set(counts) == {1, 2, 3, 4, 5}
    assert all(abs(n / 20_000 - 0.2) < 0.015 for n in counts.values())


def test_starts_are_uniform_over_the_rows_with_that_many_steps_left() -> None:
    found = draw(sampler([1, 3]))
    counts = Counter(found.z[found.steps == 5, 0].tolist())
    assert set(counts) == {4.0, 5.0, 6.0, 7.0, 15.0, 16.0}  # rows with 5 steps before the end
    assert max(counts.values()) < 1.25 * min(counts.values())


def test_horizons_that_no_episode_has_are_left_out() -> None:
    short = sampler([0, 2])
    assert short.max_horizon == 3
    assert set(draw(short).steps.tolist()) == {1, 2, 3}
    with pytest.raises(ValueError, match="none of the 1 episodes has 2 steps"):
        sampler([2], least=2)
    with pytest.raises(ValueError, match="collect longer episodes"):
        sampler([4])


def test_blocks_are_the_actions_from_the_start_on() -> None:
    found = draw(sampler([1], least=3, most=3, block=3))
    assert found.actions.shape == (20_000, 3)
    expected = found.z + torch.tensor([0.5, 1.5, 2.5])
    assert torch.equal(found.actions, expected)
    assert int(found.z_goal.max()) == 12  # the last row of episode 1


def test_the_same_generator_draws_the_same_examples() -> None:
    one, two, other = (draw(sampler([1, 3]), seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.z, two.z) and torch.equal(one.steps, two.steps)
    assert not torch.equal(one.z, other.z)


def test_quantiles_are_the_least_steps_that_suffice() -> None:
    logits = torch.log(torch.tensor([[0.2, 0.3, 0.5], [0.9, 0.05, 0.05]]))
    assert quantile_steps(logits, 0.1).tolist() == [1, 1]
    assert quantile_steps(logits, 0.45).tolist() == [2, 1]
    assert quantile_steps(logits, 0.95 + 1e-3).tolist() == [3, 3]


def test_calibration_is_measured_against_what_the_head_itself_expects() -> None:
    torch.manual_seed(0)
    head = TimeToGo(TimeToGoConfig(hidden_dim=8, num_layers=1), 3, 4)
    torch.nn.init.zeros_(head.head.weight)  # it knows nothing: 4 horizons, equally likely
    steps = torch.arange(4000) % 4 + 1
    examples = Examples(
        z=torch.randn(4000, 3), z_goal=torch.randn(4000, 3), steps=steps, actions=steps[:, None]
    )
    quality = time_to_go_quality(head, examples)
    assert quality.loss == pytest.approx(np.log(4), rel=1e-5)
    assert quality.calibration_error < 1e-6
    assert [round(c.observed, 2) for c in quality.coverage] == [0.25, 0.25, 0.5, 0.75, 1.0]
    late = Examples(
        z=examples.z,
        z_goal=examples.z_goal,
        steps=torch.full((4000,), 4),
        actions=examples.actions,
    )
    assert time_to_go_quality(head, late).calibration_error == pytest.approx(0.75)
