"""Drawing examples: horizons, starts and blocks within episodes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from goalward.control.goals import Examples, GoalSampler

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
    assert set(draw(short).steps.tolist()) == {1, 2, 3}
    with pytest.raises(ValueError, match="none of the 1 episodes has 2 steps"):
        sampler([2], least=2)
    with pytest.raises(ValueError, match="collect more or longer episodes"):
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
