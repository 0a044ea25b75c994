"""Controllers that decide on several actions at once, and look again when those are used up.

Shapes: B environments, L raw actions, D latent numbers, R numbers of a raw action.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from goalward.controllers.environments import Environments
from goalward.planning.attempt import goal_seed
from goalward.types import Array
from goalward.world.frame_encoder import FrameEncoder
from goalward.world.lewm import LeWM


class Task:
    """One environment's goal, random generator and committed actions.

    Attributes:
        z_goal_D: The goal.
        generator: Of its own, so that nobody else's plans change its draws.
        predictor_calls: Made for it so far.
    """

    def __init__(self, z_goal_D: Tensor, seed: int) -> None:
        self.z_goal_D = z_goal_D
        self.generator = torch.Generator().manual_seed(seed)
        self.predictor_calls = 0
        self.committed: deque[Array] = deque()


class CommittedController(ABC):
    """A `Controller` that asks `plan` for actions whenever an environment has none left.

    Args:
        world: The world model whose encoder frames go through.
        seed: Of the random draws of an attempt, together with its goal.
    """

    def __init__(self, world: LeWM, *, seed: int) -> None:
        self._seed = seed
        self._encode = FrameEncoder(world)
        self._environments = Environments()
        self._tasks: list[Task] = []

    @abstractmethod
    def plan(self, z_BD: Tensor, tasks: Sequence[Task], steps_left_B: Tensor) -> Array:
        """Raw actions (B, L, R), within the bounds, of environments that have none left."""

    @property
    def predictor_calls(self) -> list[int]:
        """Calls of the predictor for each environment since its reset."""
        return [task.predictor_calls for task in self._tasks]

    def reset(
        self, goals: Array, budget: npt.ArrayLike, *, environments: npt.ArrayLike | None = None
    ) -> None:
        """Take new goals; see `Controller.reset`. Each is encoded once, here."""
        frames, where = self._environments.reset(goals, budget, environments)
        if environments is None:
            self._tasks = []
        z_goal_MD = self._encode(torch.from_numpy(frames))
        for k, frame, z_goal_D in zip(where, frames, z_goal_MD, strict=True):
            self._tasks[k : k + 1] = [Task(z_goal_D, goal_seed(frame, self._seed))]

    def act(
        self,
        frames: Array,
        steps_left: npt.ArrayLike | None = None,
        *,
        environments: npt.ArrayLike | None = None,
    ) -> Array:
        """The next action of every environment; see `Controller.act`."""
        seen = self._environments.observe(frames, steps_left, environments)
        acting = [self._tasks[k] for k in seen.environments]
        idle = [k for k, task in enumerate(acting) if not task.committed]
        if idle:
            tasks = [acting[k] for k in idle]
            with torch.inference_mode():
                z_BD = self._encode(torch.from_numpy(seen.frames[idle]))
                steps_B = torch.from_numpy(seen.steps_left[idle]).to(z_BD.device)
                plans = self.plan(z_BD, tasks, steps_B)
            for task, actions in zip(tasks, plans, strict=True):
                task.committed.extend(actions)
        actions = np.stack([task.committed.popleft() for task in acting])
        return actions[0] if self._environments.single else actions
