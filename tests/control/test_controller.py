"""What all controllers share: environments, budgets, and refusals of what cannot be used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from controller_helpers import FRAMES, GOALS
from goalward.control.controller import (
    BatchController,
    Index,
    RandomController,
    WholeBatch,
    chooses_environments,
)
from goalward.core.arrays import Array


class Echo(BatchController[int]):
    """Its actions are the goal's first number and the remaining steps."""

    def __init__(self) -> None:
        super().__init__()
        self.started = 0

    def start(self, goals: Array) -> Sequence[int]:
        self.started += len(goals)
        return [int(goal.flat[0]) for goal in goals]

    def decide(self, frames: Array, states: Sequence[int], steps_left: Index) -> Array:
        return np.stack([np.array(states), steps_left], axis=1).astype(np.float32)


@pytest.fixture(name="controller")
def controller_fixture() -> Echo:
    return Echo()


FIRST = GOALS[:, 0, 0, 0].tolist()


def test_each_environment_has_its_own_goal_and_counts_its_own_budget(controller: Echo) -> None:
    controller.reset(GOALS, [50, 40, 3, 2, 1])
    for steps in ([50, 40, 3, 2, 1], [49, 39, 2, 1, 1], [48, 38, 1, 1, 1]):  # a spent budget is 1
        assert controller.act(FRAMES).tolist() == np.stack([FIRST, steps], axis=1).tolist()
    assert controller.act(FRAMES, 7)[:, 1].tolist() == [7] * 5
    assert controller.act(FRAMES)[:, 1].tolist() == [6] * 5
    assert controller.started == 5


def test_named_environments_start_again_while_the_others_continue(controller: Echo) -> None:
    controller.reset(GOALS, 50)
    controller.act(FRAMES)
    controller.reset(GOALS[[4, 0]], [7, 8], environments=[1, 3])
    assert controller.act(FRAMES).tolist() == [
        [FIRST[0], 49],
        [FIRST[4], 7],
        [FIRST[2], 49],
        [FIRST[0], 8],
        [FIRST[4], 49],
    ]


def test_environments_may_act_one_part_at_a_time(controller: Echo) -> None:
    controller.reset(GOALS, 20)
    controller.act(FRAMES)
    parts = [controller.act(FRAMES[where], environments=where) for where in ([4, 0], [1, 2, 3])]
    assert np.concatenate(parts).tolist() == [[FIRST[k], 19] for k in (4, 0, 1, 2, 3)]


def test_a_single_environment_needs_no_batch_axis(controller: Echo) -> None:
    controller.reset(GOALS[2], 9)
    assert controller.act(FRAMES[2]).tolist() == [FIRST[2], 9]
    with pytest.raises(ValueError, match="expected one frame without a batch axis"):
        controller.act(FRAMES[:1])


def test_the_random_controllers_draws_depend_on_its_seed_and_the_goal_alone() -> None:
    def drawn(goals: Array, seed: int = 0) -> Array:
        controller = RandomController(2, seed)
        controller.reset(goals, 50)
        return np.stack([controller.act(goals) for _ in range(3)], axis=1)

    plain = drawn(GOALS)
    assert plain.shape == (5, 3, 2) and plain.dtype == np.float32 and np.abs(plain).max() <= 1
    np.testing.assert_array_equal(drawn(GOALS[[3, 1]]), plain[[3, 1]])
    assert len(np.unique(plain)) == plain.size and not np.isin(drawn(GOALS, seed=1), plain).any()


BAD_FRAMES: list[tuple[Any, str]] = [
    (None, "must be uint8 .* got None"),
    ([[1], [1, 2]], "must be an array; NumPy says"),
    (GOALS / 255, "must be uint8 .* colours from 0 to 255, got float64"),
    (np.full(GOALS.shape, np.nan), "must be uint8"),
    (GOALS[..., :1], r"got uint8 of shape \(5, 16, 16, 1\)"),
    (GOALS[0, 0], r"got uint8 of shape \(16, 3\)"),
    (GOALS[:0], r"got uint8 of shape \(0, 16, 16, 3\)"),
]
BAD_STEPS: list[Any] = [0, 2.5, float("nan"), float("inf"), None, True, [50, 50], 2**40, 10**30]
BAD_ENVIRONMENTS: list[Any] = [[5], [-1], [0, 1], 0, [0.0], ["a"]]


@pytest.mark.parametrize(("frames", "message"), BAD_FRAMES)
def test_unusable_frames_are_refused_and_change_nothing(
    controller: Echo, frames: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=f"goals .*{message}"):
        controller.reset(frames, 50)
    controller.reset(GOALS, 50)
    with pytest.raises(ValueError, match=f"frames .*{message}"):
        controller.act(frames)
    assert controller.act(FRAMES)[:, 1].tolist() == [50] * 5


@pytest.mark.parametrize("steps", BAD_STEPS)
def test_unusable_budgets_are_refused_and_change_nothing(controller: Echo, steps: Any) -> None:
    said = "must be a whole number from 1 to 1,000,000,000, or one for each of the 5 goals"
    controller.reset(GOALS, 50)
    with pytest.raises(ValueError, match=f"budget {said}") as refusal:
        controller.reset(GOALS, steps)
    assert str(refusal.value).endswith(repr(steps))
    if steps is not None:
        with pytest.raises(ValueError, match=f"steps_left {said}"):
            controller.act(FRAMES, steps)
    assert controller.act(FRAMES)[:, 1].tolist() == [50] * 5


class Plain:
    """A user's controller: nothing but the two methods."""

    def reset(self, goals: Array, budget: int) -> None:
        self.calls: list[Array] = []
        self.size = len(goals)

    def act(self, frames: Array) -> Array:
        assert len(frames) == self.size
        self.calls.append(frames[:, 0, 0, 0].copy())
        return np.stack([frames[:, 0, 0, 0], frames[:, 0, 0, 0]], axis=1).astype(np.float32)


def test_a_controller_with_two_methods_acts_in_some_environments() -> None:
    plain: Any = Plain()
    assert not chooses_environments(plain)
    whole = WholeBatch(plain)
    assert chooses_environments(whole)
    whole.reset(GOALS, 50)
    first = whole.act(FRAMES, environments=[0, 1, 2, 3, 4])
    np.testing.assert_array_equal(first[:, 0], FRAMES[:, 0, 0, 0])
    some = whole.act(FRAMES[[4, 0]], environments=[1, 3])
    np.testing.assert_array_equal(some[:, 0], FRAMES[[4, 0], 0, 0, 0])
    shown = FRAMES[[0, 4, 2, 0, 4], 0, 0, 0]  # the others show their last frames
    np.testing.assert_array_equal(plain.calls[-1], shown)


def test_unusable_environments_are_refused(controller: Echo) -> None:
    with pytest.raises(ValueError, match="call reset"):
        controller.act(FRAMES)
    with pytest.raises(ValueError, match="there are no environments yet"):
        controller.reset(GOALS[:1], 50, environments=[0])
    controller.reset(GOALS, 50)
    for where in BAD_ENVIRONMENTS:
        with pytest.raises(ValueError, match="environments must "):
            controller.reset(GOALS[:1], 50, environments=where)
    with pytest.raises(ValueError, match=r"2 different numbers, one for each frame, got \[3, 3\]"):
        controller.act(FRAMES[:2], environments=[3, 3])
    assert controller.act(FRAMES)[:, 1].tolist() == [50] * 5
    for frames in (FRAMES[:4], FRAMES[0]):
        with pytest.raises(ValueError, match="expected 5 frames, one for each goal"):
            controller.act(frames)
