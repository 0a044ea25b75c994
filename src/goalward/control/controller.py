"""What a controller is, the bookkeeping that all share, and two that know nothing.

Nothing here needs more than NumPy, so that an exported controller acts on a light installation.
Shapes: B environments, M of them that are asked, A numbers of an action.
"""

from __future__ import annotations

import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from goalward.core.arrays import Array, as_array, indices
from goalward.core.checks import describe, format_value
from goalward.core.random import generator

Index = npt.NDArray[np.int64]
State = TypeVar("State")

MOST_STEPS = 10**9  # a larger budget is a mistake


@dataclass(frozen=True, kw_only=True)
class ControllerStats:
    """What a controller computed in each environment since its reset."""

    plans: tuple[int, ...] | None = None  # None: it does not plan
    predictor_calls: tuple[int, ...] = ()  # of the world model; empty: it reports none

    def of(self, environment: int) -> dict[str, int | None]:
        """The same of one environment."""
        plans = None if self.plans is None else self.plans[environment]
        calls = self.predictor_calls[environment] if self.predictor_calls else 0
        return {"plans": plans, "predictor_calls": calls}


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
            environments: Indices of the environments that start again, one for each goal; the
                others continue. By default, all start again, and there is one for each goal.

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
            frames: The present uint8 frames (B, height, width, 3).
            steps_left: Remaining steps of the budgets: one number, or (B,). By default the budget
                minus the number of actions since.
            environments: Indices of the environments that act, one for each frame; the others
                wait. By default all act.

        Returns:
            float32 actions (B, A), within the task's bounds.

        Raises:
            ValueError: there are no goals yet, or the frames cannot be used.
        """

    @property
    def stats(self) -> ControllerStats:
        """What was computed in each environment since its reset."""


def stats_of(controller: object) -> ControllerStats:
    """What a controller computed; empty for a user's controller that does not report it."""
    found: ControllerStats = getattr(controller, "stats", ControllerStats())
    return found


def chooses_environments(controller: Controller) -> bool:
    """Whether its `act` can be asked for some of the environments alone."""
    accepted = inspect.signature(controller.act).parameters.values()
    return any(one.name == "environments" or one.kind is one.VAR_KEYWORD for one in accepted)


class WholeBatch:
    """Gives a controller that has only `reset(goals, budget)` and `act(frames)` the rest.

    It always acts in all environments: those that wait show their last frames again.
    """

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._frames: Array | None = None

    def reset(
        self, goals: Array, budget: npt.ArrayLike, *, environments: npt.ArrayLike | None = None
    ) -> None:
        """Take new goals in all environments."""
        if environments is not None:
            raise ValueError("this controller can only start again in all environments")
        self._controller.reset(goals, budget)
        self._frames = None

    def act(
        self,
        frames: Array,
        steps_left: npt.ArrayLike | None = None,  # noqa: ARG002 - it counts by itself
        *,
        environments: npt.ArrayLike | None = None,
    ) -> Array:
        """The next action of the environments that act."""
        if self._frames is None or environments is None:
            self._frames = np.array(frames)
            return self._controller.act(self._frames)
        where = np.asarray(environments)
        self._frames[where] = frames
        return self._controller.act(self._frames)[where]

    @property
    def stats(self) -> ControllerStats:
        """What the controller reports."""
        return stats_of(self._controller)


class BatchController(ABC, Generic[State]):
    """A `Controller` that keeps one state for each environment.

    It checks what callers pass and counts the remaining steps. A call that is refused changes
    nothing.
    """

    image_size: int | None = None  # pixels a side that frames must have (None: any)

    def __init__(self) -> None:
        self._states: list[State] = []
        self._steps_left_B: Index = np.empty(0, dtype=np.int64)
        self._single = False  # one environment, whose frames have no batch axis

    @abstractmethod
    def start(self, goals: Array) -> Sequence[State]:
        """The states of environments with these goals (M, height, width, 3)."""

    @abstractmethod
    def decide(self, frames: Array, states: Sequence[State], steps_left: Index) -> Array:
        """Actions (M, A) for frames (M, height, width, 3) and remaining steps, at least 1."""

    @property
    def stats(self) -> ControllerStats:
        """Nothing is planned."""
        return ControllerStats(predictor_calls=(0,) * len(self._states))

    def reset(
        self, goals: Array, budget: npt.ArrayLike, *, environments: npt.ArrayLike | None = None
    ) -> None:
        """Take new goals; see `Controller.reset`."""
        batch, single = self._as_batch(goals, "goals")
        budget_M = _counts(budget, len(batch), "budget")
        if environments is None:
            self._states, self._steps_left_B = [*self.start(batch)], budget_M
            self._single = single
            return
        if not self._states:
            raise ValueError("there are no environments yet: first call reset without environments")
        where = self._indices(environments, len(batch))
        for k, state in zip(where, self.start(batch), strict=True):
            self._states[k] = state
        self._steps_left_B[where] = budget_M

    def act(
        self,
        frames: Array,
        steps_left: npt.ArrayLike | None = None,
        *,
        environments: npt.ArrayLike | None = None,
    ) -> Array:
        """The next action of every environment; see `Controller.act`."""
        if not self._states:
            raise ValueError("there is no goal yet: call reset(goals, budget) before act(frames)")
        batch, single = self._as_batch(frames, "frames")
        where = np.arange(len(self._states))
        if environments is not None:
            where = self._indices(environments, len(batch))
        elif (len(batch), single) != (len(where), self._single):
            wanted = "one frame without a batch axis" if self._single else f"{len(where)} frames"
            raise ValueError(f"expected {wanted}, one for each goal, got shape {np.shape(frames)}")
        left_M = self._steps_left_B[where]
        if steps_left is not None:
            left_M = _counts(steps_left, len(batch), "steps_left")
        # A spent budget counts as one last step: a caller that goes on has a reason to.
        actions = self.decide(batch, [self._states[k] for k in where], np.maximum(left_M, 1))
        self._steps_left_B[where] = left_M - 1
        return actions[0] if single else actions

    def _as_batch(self, frames: Array, name: str) -> tuple[Array, bool]:
        """Frames with a batch axis, and whether it had to be added."""
        array = as_array(frames, name)
        single = array.ndim == 3
        batch = array[None] if single else array
        size = self.image_size
        colours = batch.dtype == np.uint8 and batch.ndim == 4 and batch.shape[-1] == 3
        if not colours or not batch.size or (size and batch.shape[1:3] != (size, size)):
            sides = f"{size}, {size}" if size else "height, width"
            raise ValueError(
                f"{name} must be uint8 of shape (B, {sides}, 3) or ({sides}, 3), with colours from "
                f"0 to 255, got {describe(frames if array.dtype == object else array)}"
            )
        # torch wants memory in one piece that could be written.
        return np.require(batch, requirements=["C", "W"]), single

    def _indices(self, environments: npt.ArrayLike, number: int) -> Index:
        where = indices(environments, "environments", len(self._states))
        if not len(where) == len({*where.tolist()}) == number:
            raise ValueError(
                f"environments must be {number} different numbers, one for each frame, got "
                f"{format_value(where.tolist())}"
            )
        return where


def _counts(values: npt.ArrayLike, number: int, name: str) -> Index:
    """Whole numbers of at least 1, one for each environment."""
    array = as_array(values, name)
    if (
        array.dtype.kind not in "iuf"
        or array.shape not in ((), (number,))
        or not ((array >= 1) & (array <= MOST_STEPS) & (array == np.floor(array))).all()
    ):
        several = f", or one for each of the {number} goals" if number > 1 else ""
        raise ValueError(
            f"{name} must be a whole number from 1 to {MOST_STEPS:,}{several}, got "
            f"{format_value(values)}"
        )
    return np.broadcast_to(array, (number,)).astype(np.int64)


def goal_number(goal_frame: Array) -> int:
    """A number made from a goal's frame alone: the same in every environment and run."""
    return int.from_bytes(hashlib.sha256(np.ascontiguousarray(goal_frame).data).digest()[:8], "big")


class ZeroController(BatchController[None]):
    """Stands still."""

    def __init__(self, action_dim: int) -> None:
        super().__init__()
        self._action_dim = action_dim

    def start(self, goals: Array) -> Sequence[None]:
        """Nothing to keep."""
        return [None] * len(goals)

    def decide(self, frames: Array, states: Sequence[None], steps_left: Index) -> Array:  # noqa: ARG002
        """Zeros."""
        return np.zeros((len(frames), self._action_dim), dtype=np.float32)


class RandomController(BatchController[np.random.Generator]):
    """Acts uniformly within [-1, 1]; an episode's draws depend on the seed and its goal alone."""

    def __init__(self, action_dim: int, seed: int) -> None:
        super().__init__()
        self._action_dim, self._seed = action_dim, seed

    def start(self, goals: Array) -> Sequence[np.random.Generator]:
        """A generator for each goal."""
        return [generator("random controller", self._seed, goal_number(goal)) for goal in goals]

    def decide(
        self,
        frames: Array,  # noqa: ARG002
        states: Sequence[np.random.Generator],
        steps_left: Index,  # noqa: ARG002
    ) -> Array:
        """Random actions."""
        draws = [rng.uniform(-1.0, 1.0, size=self._action_dim) for rng in states]
        return np.stack(draws).astype(np.float32)
