"""Any controller as a policy of stable-worldmodel, so that `swm.World` can evaluate it.

It has the methods that stable-worldmodel calls, and imports nothing of that library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from goalward import defaults
from goalward.control.controller import Controller
from goalward.core.arrays import Array


class SwmPolicy:
    """`world.set_policy(SwmPolicy(gw.load(path)))`, before each `world.evaluate`.

    stable-worldmodel does not inform policies that an evaluation begins; attaching one does.

    Args:
        controller: Acts on the frames in `pixels`, with those in `goal` as goals.
        budget: Steps an episode may take, such as `eval_budget`.
    """

    type = "goalward"
    seed = None

    def __init__(self, controller: Controller, budget: int = defaults.BUDGET) -> None:
        self.env: Any = None
        self._controller, self._budget = controller, budget
        self._goals: Array | None = None

    def set_env(self, env: Any) -> None:
        """Called when the policy is attached to a world: its next goals are new ones."""
        self.env, self._goals = env, None

    def get_action(self, info: Mapping[str, Any], **_: Any) -> Array:
        """Actions (B, A) for stable-worldmodel's batch of observations."""
        for name in ("pixels", "goal"):
            if name not in info:
                raise ValueError(f"the observations have no {name!r}, only: {', '.join(info)}")
        frames, goals = _latest(info["pixels"]), _latest(info["goal"])
        if self._goals is None or self._goals.shape != goals.shape:
            self._controller.reset(goals, self._budget)
        else:
            changed = (self._goals != goals).reshape(len(goals), -1).any(axis=1)
            changed |= np.asarray(info.get("_needs_flush", False), dtype=bool)
            if (where := np.flatnonzero(changed)).size:
                self._controller.reset(goals[where], self._budget, environments=where)
        self._goals = goals.copy()
        return self._controller.act(frames)


def _latest(frames: Any) -> Array:
    """The last frame of each environment: stable-worldmodel may keep a time axis."""
    array = np.asarray(frames)
    return array[:, -1] if array.ndim == 5 else array
