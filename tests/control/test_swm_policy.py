"""A controller as a policy of stable-worldmodel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from controller_helpers import FRAMES, GOALS
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
