"""Controllers that decide on several actions at once, and look again when those are used up.

Shapes: B environments that need a plan, L raw actions, D latent numbers, R numbers of a raw action.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from goalward.controllers.environments import Environments, Observation
from goalward.planning.attempt import Attempt, goal_seed
from goalward.types import Array
from goalward.world.frame_encoder import FrameEncoder
from goalward.world.lewm import LeWM

AttemptT = TypeVar("AttemptT", bound=Attempt)


class CommittedController(ABC, Generic[AttemptT]):
    """A `Controller` that hands out the committed actions of each environment's attempt.

    Args:
        world: The world model whose encoder frames go through.
    """

    def __init__(self, world: LeWM) -> None:
        self.encode = FrameEncoder(world)
        self._environments = Environments()
        self._attempts: list[AttemptT] = []

    @abstractmethod
    def begin(self, goal: Array, z_goal_D: Tensor) -> AttemptT:
        """A new attempt at a goal: its frame, and its latent."""

    @abstractmethod
    def prepare(self, acting: Sequence[AttemptT], seen: Observation) -> None:
        """See to it that every attempt that acts has a committed action."""

    @property
    def predictor_calls(self) -> list[int]:
        """Calls of the predictor for each environment since its reset."""
        return [attempt.predictor_calls for attempt in self._attempts]

    @property
    def plans(self) -> list[int]:
        """Plans made for each environment since its reset."""
        return [attempt.plans for attempt in self._attempts]

    def reset(
        self, goals: Array, budget: npt.ArrayLike, *, environments: npt.ArrayLike | None = None
    ) -> None:
        """Take new goals; see `Controller.reset`. Each is encoded once, here."""
        frames, where = self._environments.reset(goals, budget, environments)
        if environments is None:
            self._attempts = []
        for k, frame in zip(where, frames, strict=True):
            attempt = self.begin(frame, self.latent(frame))
            self._attempts[k : k + 1] = [attempt]  # in place of the one before, if there is one

    def act(
        self,
        frames: Array,
        steps_left: npt.ArrayLike | None = None,
        *,
        environments: npt.ArrayLike | None = None,
    ) -> Array:
        """The next action of every environment; see `Controller.act`.

        Only frames that a plan starts from, or that belong to its history, are looked at.
        """
        seen = self._environments.observe(frames, steps_left, environments)
        acting = [self._attempts[k] for k in seen.environments]
        self.prepare(acting, seen)
        actions = np.stack([attempt.next_action() for attempt in acting])
        return actions[0] if self._environments.single else actions

    def latent(self, frame: Array) -> Tensor:
        """A frame's latent (D,)."""
        # One by one, which is nothing beside a plan: in batches, the last bits would depend on who
        # else is there, and a search may turn them into another plan.
        return self.encode(torch.from_numpy(frame[None]))[0]


class GoalPlanner(CommittedController[Attempt]):
    """A `Controller` that asks `plan` for actions, given the present alone.

    Args:
        world: The world model whose encoder frames go through.
        seed: Of the random draws of an attempt, together with its goal.
    """

    def __init__(self, world: LeWM, *, seed: int) -> None:
        super().__init__(world)
        self._seed = seed

    @abstractmethod
    def plan(self, z_BD: Tensor, attempts: Sequence[Attempt], steps_left_B: Tensor) -> Array:
        """Raw actions (B, L, R), within the bounds, of environments that have none left."""

    def begin(self, goal: Array, z_goal_D: Tensor) -> Attempt:
        """A new attempt."""
        return Attempt(z_goal_D, seed=goal_seed(goal, self._seed))

    def prepare(self, acting: Sequence[Attempt], seen: Observation) -> None:
        """Plan where nothing is left, for all such environments at once."""
        idle = [k for k, attempt in enumerate(acting) if not attempt.committed]
        if not idle:
            return
        attempts = [acting[k] for k in idle]
        with torch.inference_mode():
            z_BD = torch.stack([self.latent(frame) for frame in seen.frames[idle]])
            steps_B = torch.from_numpy(seen.steps_left[idle]).to(z_BD.device)
            plans = self.plan(z_BD, attempts, steps_B)
        for attempt, actions in zip(attempts, plans, strict=True):
            attempt.commit(actions)
