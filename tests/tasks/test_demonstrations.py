"""The recipe of demonstrations: what its episodes differ in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from goalward.core.arrays import Array
from goalward.core.random import generator
from goalward.tasks import TASKS, get_task
from goalward.tasks.demonstrations import KINDS, Mixture, RecipeConfig
from goalward.tasks.task import Simulator

STEPS = 4_000
NOTHING: dict[str, Any] = {"plain": 0.0, "white_noise": 0.0, "correlated_noise": 0.0, "bursts": 0.0}


class Walks:
    """Stands for a scripted policy: half of full speed, a target every 40 steps."""

    def __init__(self, simulator: Any, rng: np.random.Generator, pace: float) -> None:
        self.pace, self.steps, self.targets_reached = pace, 0, 0

    def __call__(self) -> Array:
        self.steps += 1
        self.targets_reached = self.steps // 40
        return np.array([0.5 * self.pace, 0.0])


def only(kind: str, **changes: Any) -> Mixture:
    recipe = RecipeConfig(**{**NOTHING, "exploration": 0.0, kind: 1.0, **changes})
    return Mixture(make=Walks, noise_shape=(1.0, 2.0), recipe=recipe)


def actions(mixture: Mixture, seed: int = 0, steps: int = STEPS) -> Array:
    policy = mixture(None, np.random.default_rng(seed))
    return np.stack([policy() for _ in range(steps)])


def correlation(values: Array) -> float:
    return float(np.corrcoef(values[:-1], values[1:])[0, 1])


def test_episodes_are_of_each_kind_in_its_share() -> None:
    recipe = RecipeConfig(plain=0.2, white_noise=0.2, correlated_noise=0, bursts=0, exploration=0.4)
    mixture = Mixture(make=Walks, noise_shape=(1.0,), recipe=recipe)
    kinds = [mixture(None, np.random.default_rng(seed)).kind for seed in range(2_000)]
    shares = np.bincount(kinds, minlength=len(KINDS)) / len(kinds)
    np.testing.assert_allclose(shares, [0.25, 0.25, 0, 0, 0.5], atol=0.03)


def test_paces_are_uniform_and_a_plain_episode_follows_the_policy() -> None:
    mixture = only("plain", rest=0.0)
    paces = [actions(mixture, seed, steps=1)[0, 0] / 0.5 for seed in range(500)]
    assert min(paces) == pytest.approx(0.35, abs=0.02)
    assert max(paces) == pytest.approx(1.0, abs=0.02)
    assert np.mean(paces) == pytest.approx(0.675, abs=0.03)
    assert len(np.unique(actions(mixture), axis=0)) == 1


def test_a_rest_follows_reached_targets_and_moves_nothing() -> None:
    found = actions(only("plain", rest=1.0, rest_steps=20))
    still = (found == 0).all(axis=1)
    changes = np.flatnonzero(np.diff(still.astype(int)))
    lengths = changes[1::2] - changes[::2][: len(changes[1::2])]
    assert lengths.max() <= 20
    assert lengths.mean() == pytest.approx(10.5, abs=1.5)
    assert np.isclose(still.mean(), 10 / 50, atol=0.03)


@pytest.mark.parametrize(("kind", "memory"), [("white_noise", 0.0), ("correlated_noise", 0.85)])
def test_noise_has_its_size_shape_and_memory(kind: str, memory: float) -> None:
    found = [actions(only(kind, rest=0.0, noise=0.1), seed) for seed in range(40)]
    ratio = np.mean([np.std(a[:, 1]) / np.std(a[:, 0]) for a in found])
    assert ratio == pytest.approx(2.0, rel=0.05)
    assert max(np.std(a[:, 0]) for a in found) == pytest.approx(0.1, rel=0.2)
    assert np.mean([np.std(a[:, 0]) for a in found]) == pytest.approx(0.05, rel=0.3)
    assert np.mean([correlation(a[:, 0]) for a in found]) == pytest.approx(memory, abs=0.03)


def test_bursts_are_short_and_uniform() -> None:
    found = actions(only("bursts", rest=0.0, noise=1e-6, burst_rate=0.05))
    burst = (np.abs(found - np.median(found, axis=0)) > 1e-3).any(axis=1)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], burst, [0]])))
    lengths = np.diff(edges)[::2][:-1]
    assert found[burst].std() == pytest.approx(1 / np.sqrt(3), rel=0.05)
    assert set(lengths) == set(range(3, 13))
    assert burst.mean() == pytest.approx(7 / (7 + 1 / 0.05), abs=0.05)


def test_exploration_is_uniform_and_never_asks_the_policy() -> None:
    found = actions(only("exploration"))
    assert found.std(axis=0) == pytest.approx(1 / np.sqrt(3), rel=0.05)
    assert abs(correlation(found[:, 0])) < 0.05


def test_push_ts_agent_stays_in_the_window(simulator: Callable[[str], Simulator]) -> None:
    mixture, running = get_task("push-t").demonstrators["mixture"], simulator("push-t")
    assert isinstance(mixture, Mixture)
    for kind in ("exploration", "correlated_noise", "bursts"):
        recipe = RecipeConfig(**{**NOTHING, "exploration": 0.0, kind: 1.0})
        rng = np.random.default_rng(1)
        running.reset(rng)
        policy = replace(mixture, recipe=recipe)(running, rng)
        places = []
        for _ in range(300):
            running.step(policy())
            places.append(running.state()["state"][:2])
        assert np.min(places) > 0 and np.max(places) < 512


def test_a_recipe_without_any_share_is_refused() -> None:
    with pytest.raises(ValueError, match="the shares of all kinds are 0"):
        RecipeConfig(**NOTHING, exploration=0.0)


@pytest.mark.parametrize("task", TASKS.names())
def test_every_task_has_a_mixture_whose_pace_and_seed_count(
    task: str, simulator: Callable[[str], Simulator]
) -> None:
    mixture, running = get_task(task).demonstrators["mixture"], simulator(task)
    assert isinstance(mixture, Mixture)
    recipe: dict[str, Any] = {**NOTHING, "exploration": 0.0, "plain": 1.0, "rest": 0.0}

    def distance(slowest: float) -> tuple[float, Array]:
        plain = replace(mixture, recipe=RecipeConfig(**recipe, slowest=slowest))
        rng = generator("demonstration", 3, 0)
        running.reset(rng)
        policy = plain(running, rng)
        done = []
        for _ in range(12):
            done.append(policy())
            running.step(done[-1])
        return float(np.abs(done).mean()), np.stack(done)

    full, first = distance(1.0)
    slow, _ = distance(0.01)
    np.testing.assert_array_equal(distance(1.0)[1], first)
    assert slow < full
    assert np.abs(first).max() <= 1.0
