"""Model predictive control: any solver as a `Controller`.

Shapes: B environments that plan, T known latents, H model steps, D latent numbers, A numbers of an
action block: `frameskip` raw actions of R numbers in a row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from goalward import defaults
from goalward.control.controller import Environments, goal_number
from goalward.core.arrays import Array
from goalward.core.config import require_at_least, require_types
from goalward.core.random import generator
from goalward.planning.cost import MAX_ROLLOUTS, LatentCost
from goalward.planning.solvers import SeededNoise, Solver
from goalward.world.checkpoint import World
from goalward.world.frozen import FrameEncoder


class RawActions:
    """The scale and the bounds of a task's raw actions."""

    def __init__(self, world: World, low: npt.ArrayLike, high: npt.ArrayLike) -> None:
        if world.actions is None:
            raise ValueError(
                "plans are z-scored actions, and this world model lacks their mean and std (public "
                "checkpoints do not store them); add them with convert-world --episodes PATH"
            )
        self._scale, self._block_dim = world.actions, world.model.config.block_dim
        self._low_R, self._high_R = (np.asarray(edge, dtype=np.float32) for edge in (low, high))

    def from_blocks(self, blocks_BHA: Tensor) -> Array:
        """Raw actions (B, H * frameskip, R) within the bounds, from z-scored blocks."""
        z_BLR = blocks_BHA.reshape(len(blocks_BHA), -1, len(self._low_R))
        return np.clip(self._scale.restore(z_BLR).cpu().numpy(), self._low_R, self._high_R)

    def to_blocks(self, actions_BLR: Tensor) -> Tensor:
        """Z-scored blocks (B, H, A) from raw actions (B, H * frameskip, R), clipped to bounds."""
        low_R, high_R = (torch.from_numpy(e).to(actions_BLR) for e in (self._low_R, self._high_R))
        z_BLR = self._scale.normalise(actions_BLR.clamp(low_R, high_R))
        return z_BLR.reshape(len(z_BLR), -1, self._block_dim)


class ActionQueue:
    """One environment: its goal, its random numbers, its past, and the actions left of its plan.

    Attributes:
        z_goal_D: The goal's latent.
        generator: For this environment alone, so that no other environment changes its draws.
        steps_left: Of the budget, at the present frame.
        latents: The last `history` of them, a model step apart; the present is the last.
        blocks: The z-scored action blocks (A,) executed between these latents.
        actions: Raw actions of the plan that are not executed yet.
        rest_HA: The blocks of the last plan that will not be executed.
        plans: Made so far.
        predictor_calls: Made so far.
    """

    def __init__(self, z_goal_D: Tensor, *, seed: int, history: int) -> None:
        self.z_goal_D = z_goal_D
        self.generator = torch.Generator().manual_seed(seed)
        self.steps_left = 0
        self.latents: deque[Tensor] = deque(maxlen=history)
        self.blocks: deque[Tensor] = deque(maxlen=history - 1)
        self.actions: deque[Array] = deque()
        self.rest_HA: Tensor | None = None
        self.plans = self.predictor_calls = 0
        self._executed: list[Array] = []  # since the last latent

    def see(self, z_D: Tensor, raw_actions: RawActions) -> None:
        """Add the present latent, and the block executed since the one before."""
        self.latents.append(z_D)
        if self._executed and self.blocks.maxlen:
            # As executed: within the bounds, unlike what was planned.
            executed_1LR = torch.from_numpy(np.stack(self._executed))[None]
            self.blocks.append(raw_actions.to_blocks(executed_1LR)[0, 0].to(z_D.device))
        self._executed.clear()

    def next_action(self) -> Array:
        """The next action of the plan."""
        self._executed.append(self.actions.popleft())
        return self._executed[-1]


class PlanningController(ABC):
    """A `Controller` that plans, executes the plan's beginning, and plans again.

    Args:
        world: The world model, on the device to compute on.
        action_low: The task's smallest raw actions.
        action_high: The task's greatest.
        seed: Of the plans' random numbers, together with the goal.
        history: Latents that a plan starts from.
    """

    def __init__(
        self,
        world: World,
        *,
        action_low: npt.ArrayLike,
        action_high: npt.ArrayLike,
        seed: int,
        history: int = 1,
    ) -> None:
        self.encode = FrameEncoder(world.model)
        self.model = world.model
        self.raw_actions = RawActions(world, action_low, action_high)
        self._seed, self._history = seed, history
        self._environments = Environments()
        self._queues: list[ActionQueue] = []

    @abstractmethod
    def plan(self, queues: Sequence[ActionQueue], z_BTD: Tensor, z_goal_BD: Tensor) -> Array:
        """Raw actions (B, L, R) within the bounds, to be executed before the next plan."""

    @property
    def predictor_calls(self) -> list[int]:
        """Calls of the predictor for each environment since its reset."""
        return [queue.predictor_calls for queue in self._queues]

    @property
    def plans(self) -> list[int]:
        """Plans made for each environment since its reset."""
        return [queue.plans for queue in self._queues]

    def reset(
        self, goals: Array, budget: npt.ArrayLike, *, environments: npt.ArrayLike | None = None
    ) -> None:
        """Take new goals; see `Controller.reset`. Each is encoded once, here."""
        frames, where = self._environments.reset(goals, budget, environments)
        if environments is None:
            self._queues = []
        for k, frame in zip(where, frames, strict=True):
            seed = goal_seed(frame, self._seed)
            queue = ActionQueue(self._latent(frame), seed=seed, history=self._history)
            self._queues[k : k + 1] = [queue]  # replaces the old one, or appends

    def act(
        self,
        frames: Array,
        steps_left: npt.ArrayLike | None = None,
        *,
        environments: npt.ArrayLike | None = None,
    ) -> Array:
        """The next action of every environment; see `Controller.act`."""
        seen = self._environments.observe(frames, steps_left, environments)
        queues = [self._queues[k] for k in seen.environments]
        for queue, frame, left in zip(queues, seen.frames, seen.steps_left, strict=True):
            queue.steps_left = int(left)
            if self._needs_latent(queue):
                queue.see(self._latent(frame), self.raw_actions)
        idle = [queue for queue in queues if not queue.actions]
        for known in sorted({len(queue.latents) for queue in idle}):
            self._refill([queue for queue in idle if len(queue.latents) == known])
        actions = np.stack([queue.next_action() for queue in queues])
        return actions[0] if self._environments.single else actions

    def _needs_latent(self, queue: ActionQueue) -> bool:
        """True where a plan starts, and at every model step if there is a history."""
        every_step = self._history > 1 and len(queue.actions) % self.model.config.frameskip == 0
        return not queue.actions or every_step

    def _latent(self, frame: Array) -> Tensor:
        """A frame's latent (D,)."""
        # One by one, which costs little beside a plan. In a batch, the last bits would depend on
        # the other frames, and a search may turn them into another plan.
        return self.encode(torch.from_numpy(frame[None]))[0]

    def _refill(self, queues: Sequence[ActionQueue]) -> None:
        """Plan for queues that know the same number of latents, all at once."""
        z_BTD = torch.stack([torch.stack(tuple(queue.latents)) for queue in queues])
        z_goal_BD = torch.stack([queue.z_goal_D for queue in queues])
        plans_BLR = self.plan(queues, z_BTD, z_goal_BD)
        for queue, actions_LR in zip(queues, plans_BLR, strict=True):
            queue.actions.extend(actions_LR)
            queue.plans += 1


def goal_seed(goal: Array, seed: int) -> int:
    """The seed of an environment's draws, made from its goal's frame.

    The same goal has the same draws, whichever environment has it, and beside whichever others.
    """
    return int(generator("planning", seed, goal_number(goal)).integers(2**63))


@dataclass(frozen=True, kw_only=True, slots=True)
class MPCConfig:
    """How plans are made and used; the defaults are the paper's."""

    horizon: int = 5  # model steps that a plan looks ahead
    receding_horizon: int = 5  # of those, how many are executed before the next plan
    warm_start: bool = True  # search from the unexecuted rest of the last plan, then zeros
    history: int = 1  # past latents that the predictor receives; more carry velocity
    seed: int = defaults.SEED

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 1, "horizon", "receding_horizon", "history")
        require_at_least(self, 0, "seed")
        if self.receding_horizon > self.horizon:
            raise ValueError(
                f"receding_horizon must be at most horizon = {self.horizon}, "
                f"got {self.receding_horizon}"
            )


class MPCController(PlanningController):
    """A `Controller` that plans with any solver in a world model.

    As stable-worldmodel's policy, except that executed actions lie within the task's bounds, and
    that every environment has its own random numbers.

    Args:
        world: The world model, with the scale of its actions, on the device to compute on.
        solver: Any `Solver`.
        action_low: The task's smallest raw actions.
        action_high: The task's greatest.
        config: How to plan.
        max_rollouts: At once; see `LatentCost`.
    """

    def __init__(
        self,
        world: World,
        solver: Solver,
        *,
        action_low: npt.ArrayLike,
        action_high: npt.ArrayLike,
        config: MPCConfig = MPCConfig(),  # noqa: B008 - frozen
        max_rollouts: int = MAX_ROLLOUTS,
    ) -> None:
        super().__init__(
            world,
            action_low=action_low,
            action_high=action_high,
            seed=config.seed,
            history=config.history,
        )
        if config.history > (most := world.model.config.history):
            raise ValueError(
                f"history must be at most {most}, as in the world model, got {config.history}"
            )
        self._solver, self._config, self._max_rollouts = solver, config, max_rollouts

    def plan(self, queues: Sequence[ActionQueue], z_BTD: Tensor, z_goal_BD: Tensor) -> Array:
        """The beginning of the solver's plans."""
        known = z_BTD.shape[1]
        blocks = [torch.stack(tuple(queue.blocks)) for queue in queues] if known > 1 else None
        actions_BTA = None if blocks is None else torch.stack(blocks)
        cost = LatentCost(
            self.model,
            z_BTD,
            z_goal_BD,
            actions_BTA=actions_BTA,
            max_rollouts=self._max_rollouts,
        )
        mean_BHA = torch.stack([self._start(queue, z_BTD) for queue in queues])
        noise = SeededNoise(generators=[queue.generator for queue in queues], like=mean_BHA)
        found = self._solver(cost, mean_BHA, noise=noise)
        if not found.actions.isfinite().all() or found.cost.isnan().any():
            raise ValueError(f"{self._solver} diverged: its plan is not finite; use smaller steps")
        for queue, plan_HA in zip(queues, found.actions, strict=True):
            queue.rest_HA = plan_HA[self._config.receding_horizon :]
            queue.predictor_calls += cost.predictor_calls
        return self.raw_actions.from_blocks(found.actions[:, : self._config.receding_horizon])

    def _start(self, queue: ActionQueue, like: Tensor) -> Tensor:
        """Where a search starts (H, A): the rest of the last plan, then zeros."""
        mean_HA = like.new_zeros(self._config.horizon, self.model.config.block_dim)
        if self._config.warm_start and queue.rest_HA is not None:
            mean_HA[: len(queue.rest_HA)] = queue.rest_HA
        return mean_HA
