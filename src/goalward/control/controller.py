"""Controllers that know nothing: they stand still or act at random.

Shapes: B environments, A numbers of an action.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from goalward.core.arrays import Array, as_array
from goalward.core.checks import describe, whole_number
from goalward.core.random import generator
from goalward.data.episodes import Index


class Controller(Protocol):
    """Acts in B environments at once, each with its own goal and budget."""

    def reset(
        self, goals: Array, budget: npt.ArrayLike, *, environments: npt.ArrayLike | None = None
    ) -> None:
        """Take new goals.

        Args:
            goals: uint8 frames (B, height, width, 3); or one frame (height, width, 3) for a single
                environment, in which `act` then takes one frame and gives one action.
            budget: Steps until the goal must be reached: one number, or (B,).
            environments: Indices of the environments that begin anew, one for each goal; the
                others go on. By default all do, and there are as many as goals.

        Raises:
            ValueError: a goal or a budget cannot be used; the message says why.
        """

    def act(
        self,
        frames: Array,
        steps_left: npt.ArrayLike | None = None,
        *,
        environments: npt.ArrayLike | None = None,
    ) -> Array:
        """The next action of every environment.

        Args:
            frames: uint8 frames (B, height, width, 3) of any size, as they are now.
            steps_left: Steps left of the budgets: one number, or (B,). By default the budget less
                the actions asked for since.
            environments: Indices of the environments that act, one for each frame; the others
                wait. By default all act.

        Returns:
            float32 actions (B, A), within the task's bounds.

        Raises:
            ValueError: there are no goals yet, or the frames cannot be used.
        """


MOST_STEPS = 10**9  # a larger budget is a mistake
MOST_FRAMES = 2**16  # and so is a larger batch
MOST_BYTES = 2**32  # or one that takes more memory


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Frames of the environments that act."""

    frames: Array  # (M, height, width, 3) uint8
    environments: Index  # (M,)
    steps_left: Index  # (M,), at least 1


class Environments:
    """Counts the steps left in each environment, and refuses what cannot be meant.

    Attributes:
        single: Whether there is one environment, given without a batch axis.
    """

    def __init__(self) -> None:
        self.single = False
        self._steps_left_B: Index | None = None

    def reset(
        self, goals: Array, budget: npt.ArrayLike, environments: npt.ArrayLike | None
    ) -> tuple[Array, Index]:
        """Goals as a batch (M, height, width, 3), and the environments (M,) that they are for."""
        batch, single = as_batch(goals, "goals")
        frames = _writable(batch)
        budget_M = whole_numbers(budget, len(frames), "budget")
        if environments is None:
            self.single, self._steps_left_B = single, budget_M
            return frames, np.arange(len(frames))
        if self._steps_left_B is None:
            raise ValueError("there are no environments yet; reset all of them first")
        where_M = _indices(environments, len(frames), len(self._steps_left_B))
        self._steps_left_B[where_M] = budget_M
        return frames, where_M

    def observe(
        self,
        frames: Array,
        steps_left: npt.ArrayLike | None,
        environments: npt.ArrayLike | None = None,
    ) -> Observation:
        """What the environments that act show; counts one step for each."""
        if self._steps_left_B is None:
            raise ValueError("there is no goal yet; call reset(goals, budget) before act(frames)")
        batch, single = as_batch(frames, "frames")
        where_M = np.arange(len(self._steps_left_B))
        if environments is not None:
            where_M = _indices(environments, len(batch), len(self._steps_left_B))
        elif len(batch) != len(where_M) or single != self.single:
            expected = "one frame without a batch axis" if self.single else f"{len(where_M)} frames"
            raise ValueError(
                f"expected {expected}, as many as there are goals, got shape {np.shape(frames)}"
            )
        steps_M = self._steps_left_B[where_M]
        if steps_left is not None:
            steps_M = whole_numbers(steps_left, len(batch), "steps_left")
        self._steps_left_B[where_M] = steps_M - 1
        # A budget that is spent counts as one last step: whoever goes on has a reason to.
        steps_M = np.maximum(steps_M, 1)
        return Observation(frames=_writable(batch), environments=where_M, steps_left=steps_M)


def as_batch(frames: Array, name: str) -> tuple[Array, bool]:
    """uint8 frames with a batch axis, and whether it had to be added.

    Raises:
        ValueError: they are no uint8 frames.
    """
    if frames is None:
        raise ValueError(f"{name} are missing; give uint8 frames of shape (B, height, width, 3)")
    array = as_array(frames, name)
    single = array.ndim == 3
    batch = array[None] if single else array
    if array.dtype != np.uint8 or batch.ndim != 4 or batch.shape[-1] != 3 or not batch.size:
        hint = ""
        if array.dtype.kind == "f" and array.nbytes <= MOST_BYTES:
            hint = ", with NaN" if np.isnan(array).any() else "; scale them to 0 .. 255 first"
        raise ValueError(
            f"{name} must be uint8 of shape (B, height, width, 3) or (height, width, 3), got "
            f"{describe(array)}{hint}"
        )
    if len(batch) > MOST_FRAMES or batch.nbytes > MOST_BYTES:
        raise ValueError(
            f"{name} must be at most {MOST_FRAMES} at once and {MOST_BYTES} bytes, got shape "
            f"{array.shape}"
        )
    return batch, single


def whole_numbers(values: npt.ArrayLike, number: int, name: str) -> Index:
    """Whole numbers of at least 1, one for each environment.

    Raises:
        ValueError: they are too few, too many, too small or no whole numbers.
    """
    array = as_array(values, name)
    whole = array.dtype.kind in "iu" or (
        array.dtype.kind == "f" and bool((np.isfinite(array) & (array == np.round(array))).all())
    )
    if not whole or array.shape not in ((), (number,)):
        raise ValueError(
            f"{name} must be one whole number up to {MOST_STEPS}, or {number} of them, got "
            f"{_shown(array)}"
        )
    if (array < 1).any():
        raise ValueError(f"{name} must be at least 1, got {array.min()}")
    if (array > MOST_STEPS).any():
        raise ValueError(f"{name} must be at most {MOST_STEPS}, got {array.max()}")
    return np.broadcast_to(array, (number,)).astype(np.int64)


def _indices(environments: npt.ArrayLike, number: int, limit: int) -> Index:
    array = as_array(environments, "environments")
    fits = array.shape == (number,) and array.dtype.kind in "iu"
    if not fits or (array < 0).any() or (array >= limit).any() or len(set(array.tolist())) < number:
        raise ValueError(
            f"environments must be {number} different numbers in 0 .. {limit - 1}, one for each "
            f"frame, got {_shown(array)}"
        )
    return array.astype(np.int64)


def _writable(frames: Array) -> Array:
    """The frames in one piece of memory that could be written, as torch asks."""
    return np.require(frames, requirements=["C", "W"])


def _shown(array: Array) -> str:
    few = array.size <= 4 and array.dtype.kind in "biuf"
    return str(array.tolist()) if few else describe(array)


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
