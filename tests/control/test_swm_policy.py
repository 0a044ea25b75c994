"""A controller as a policy of stable-worldmodel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controller_helpers import FRAMES, GOALS, tiny_idm
from goalward.control.act import GCIDMController
from goalward.control.controller import BatchController, Index
from goalward.control.swm_policy import SwmPolicy
from goalward.core.arrays import Array


class Recording(BatchController[int]):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, Any]] = []

    def reset(self, goals: Array, budget: Any, *, environments: Any = None) -> None:
        self.calls.append(("reset", None if environments is None else environments.tolist()))
        super().reset(goals, budget, environments=environments)

    def start(self, goals: Array) -> Sequence[int]:
        return [0] * len(goals)

    def decide(self, frames: Array, states: Sequence[int], steps_left: Index) -> Array:
        self.calls.append(("act", frames.shape))
        return np.zeros((len(frames), 2), dtype=np.float32)


def test_as_a_policy_it_resets_where_an_episode_begins() -> None:
    inner = Recording()
    policy = SwmPolicy(inner, budget=50)
    policy.set_env(object())
    info: dict[str, Any] = {"pixels": FRAMES[:, None], "goal": GOALS[:, None]}
    assert policy.get_action(info).shape == (5, 2)
    policy.get_action(info)
    policy.get_action({**info, "_needs_flush": np.array([0, 1, 0, 0, 1], dtype=bool)})
    moved = GOALS.copy()
    moved[3] += 1
    policy.get_action({**info, "goal": moved[:, None]})
    policy.set_env(object())
    policy.get_action(info)
    act = ("act", (5, 16, 16, 3))
    everywhere = ("reset", None)
    assert inner.calls == [
        *(everywhere, act, act),
        *(("reset", [1, 4]), act),
        *(("reset", [3]), act),
        *(everywhere, act),
    ]
    with pytest.raises(ValueError, match="no 'goal'"):
        policy.get_action({"pixels": FRAMES})


@pytest.mark.filterwarnings("ignore")  # the library's own
def test_stable_worldmodel_evaluates_it_as_a_policy(dataset: Callable[[str], Path]) -> None:
    swm = pytest.importorskip("stable_worldmodel")
    world = swm.World("swm/TwoRoom-v1", num_envs=2, image_shape=(64, 64), max_episode_steps=50)
    acted: list[Array] = []
    policy = SwmPolicy(GCIDMController(tiny_idm()), budget=5)
    get_action = policy.get_action
    policy.get_action = lambda info: acted.append(get_action(info)) or acted[-1]  # type: ignore
    world.set_policy(policy)
    results = world.evaluate(
        dataset=swm.data.load_dataset(str(dataset("two-room") / "episodes.h5")),
        episodes_idx=[0, 1],
        start_steps=[0, 3],
        goal_offset=25,
        eval_budget=5,
        callables=[
            {"method": "_set_state", "args": {"state": {"value": "state"}}},
            {"method": "_set_goal_state", "args": {"goal_state": {"value": "goal_state"}}},
        ],
    )
    assert len(results["episode_successes"]) == 2
    assert [actions.shape for actions in acted] == [(2, 2)] * 5
    assert np.abs(acted).max() <= 1
