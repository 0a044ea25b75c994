"""Controllers that know nothing: they stand still or act at random.

Shapes: B environments, A numbers of an action.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from goalward.checks import whole_number
from goalward.controllers.environments import Environments
from goalward.seeding import generator
from goalward.types import Array

MOST_NUMBERS = 2**16  # of an action; more is a mistake
PolicyIterator = Iterator[Array]  # the actions of one episode, one after the other


def goal_number(goal_frame: Array) -> int:
    """A number that a goal is known by, whoever runs it and beside whichever others."""
    return int.from_bytes(hashlib.sha256(np.ascontiguousarray(goal_frame).data).digest()[:8], "big")


def _size(action_dim: int) -> int:
    return whole_number(action_dim, "action_dim", most=MOST_NUMBERS)


class BlindController(ABC):
    """A `Controller` whose actions depend on the goal's number and the step alone."""

    def __init__(self) -> None:
        self._environments = Environments()
        self._policies: dict[int, PolicyIterator] = {}

    @abstractmethod
    def policy(self, number: int) -> PolicyIterator:
        """The actions, each (A,), of an episode with the goal of this number."""

    def reset(
        self, goals: Array, budget: npt.ArrayLike, *, environments: npt.ArrayLike | None = None
    ) -> None:
        """Begin episodes; see `Controller.reset`."""
        frames, where = self._environments.reset(goals, budget, environments)
        if environments is None:
            self._policies = {}
        for k, frame in zip(where, frames, strict=True):
            self._policies[int(k)] = self.policy(goal_number(frame))

    def act(
        self,
        frames: Array,
        steps_left: npt.ArrayLike | None = None,
        *,
        environments: npt.ArrayLike | None = None,
    ) -> Array:
        """The next action of every environment; see `Controller.act`."""
        seen = self._environments.observe(frames, steps_left, environments)
        actions = np.stack([next(self._policies[int(k)]) for k in seen.environments])
        return actions[0] if self._environments.single else actions


class ZeroController(BlindController):
    """Stands still."""

    def __init__(self, action_dim: int) -> None:
        super().__init__()
        self._action = np.zeros(_size(action_dim), dtype=np.float32)

    def policy(self, number: int) -> PolicyIterator:  # noqa: ARG002
        """Zeros for ever."""
        while True:
            yield self._action


class RandomController(BlindController):
    """Acts uniformly within [-1, 1]; the draws of an episode depend on the seed and its goal."""

    def __init__(self, action_dim: int, seed: int) -> None:
        super().__init__()
        self._action_dim = _size(action_dim)
        self._seed = whole_number(seed, "seed", least=0)

    def policy(self, number: int) -> PolicyIterator:
        """Random actions."""
        rng = generator("random controller", self._seed, number)
        while True:
            yield rng.uniform(-1.0, 1.0, size=self._action_dim).astype(np.float32)
