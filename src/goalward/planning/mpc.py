"""Model predictive control: any solver as a `Controller`.

Shapes: B environments that plan, T known latents, H model steps, D latent numbers, A numbers of an
action block: `frameskip` raw actions of R numbers in a row. L raw actions of a plan.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from goalward import defaults
from goalward.control.controller import BatchController, ControllerStats, Index, goal_number
from goalward.control.networks import TimeToGo
from goalward.core.arrays import Array
from goalward.core.config import NonNegative, Positive, config
from goalward.core.random import torch_seed
from goalward.planning.cost import CostName, LatentCost, goal_distance
from goalward.planning.solvers import SeededNoise, Solver
from goalward.world.checkpoint import World
from goalward.world.frozen import FrameEncoder


class RawActions:
    """The scale and the bounds of a task's raw actions."""

    def __init__(self, world: World, low: Sequence[float], high: Sequence[float]) -> None:
        if world.actions is None:
            raise ValueError(
                "plans are z-scored actions, and this world model lacks their mean and std (public "
                "checkpoints do not store them): add them with convert-world --episodes PATH"
            )
        self._scaler, self._block_dim = world.actions, world.model.config.block_dim
        self._low_R, self._high_R = (np.asarray(edge, dtype=np.float32) for edge in (low, high))

    def from_blocks(self, blocks_BHA: Tensor) -> Array:
        """Raw actions (B, H * frameskip, R) within the bounds, from z-scored blocks."""
        z_BLR = blocks_BHA.reshape(len(blocks_BHA), -1, len(self._low_R))
        return np.clip(self._scaler.restore(z_BLR).cpu().numpy(), self._low_R, self._high_R)

    def to_blocks(self, actions_BLR: Tensor) -> Tensor:
        """Z-scored blocks (B, H, A) from raw actions (B, H * frameskip, R), clipped to bounds."""
        low_R, high_R = (torch.from_numpy(e).to(actions_BLR) for e in (self._low_R, self._high_R))
        z_BLR = self._scaler.normalise(actions_BLR.clamp(low_R, high_R))
        return z_BLR.reshape(len(z_BLR), -1, self._block_dim)


class ActionQueue:
    """One environment: its goal, its random numbers, its past, and the rest of its plan.

    Attributes:
        z_goal_D: The goal's latent.
        generator: For this environment alone: no other environment changes its draws.
        steps_left: Of the budget, at the present frame.
        latents: The last `history` of them, a model step apart; the present is the last.
        blocks: The z-scored action blocks (A,) executed between these latents.
        actions: Raw actions of the plan that are not executed yet.
        rest_HA: The blocks of the last plan that will not be executed.
        plans: Number of plans so far.
        predictor_calls: Number of calls so far.
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


class PlanningController(BatchController[ActionQueue]):
    """A `Controller` that plans, executes the plan's beginning, and plans again.

    Args:
        world: The world model, on the device to compute on.
        action_low: The task's smallest raw actions.
        action_high: The task's largest.
        commit: Raw actions of a plan that are executed before the next plan.
        seed: Of the plans' random numbers, together with the goal.
        history: Latents that a plan starts from.
    """

    def __init__(
        self,
        world: World,
        action_low: Sequence[float],
        action_high: Sequence[float],
        *,
        commit: int,
        seed: int,
        history: int = 1,
    ) -> None:
        super().__init__()
        self.encode, self.model = FrameEncoder(world.model), world.model
        self.raw_actions = RawActions(world, action_low, action_high)
        self._commit, self._seed, self._history = commit, seed, history

    @abstractmethod
    def plan(
        self, queues: Sequence[ActionQueue], z_BTD: Tensor, z_goal_BD: Tensor
    ) -> tuple[Tensor, int]:
        """Plans as z-scored blocks (B, H, A), and the predictor's calls for each environment."""

    @property
    def stats(self) -> ControllerStats:
        """Plans and calls of the predictor in each environment since its reset."""
        return ControllerStats(
            plans=tuple(queue.plans for queue in self._states),
            predictor_calls=tuple(queue.predictor_calls for queue in self._states),
        )

    def start(self, goals: Array) -> Sequence[ActionQueue]:
        """Encode each goal once. Its draws are the same in any environment, beside any others."""
        seeds = [torch_seed("planning", self._seed, goal_number(goal)) for goal in goals]
        return [
            ActionQueue(self._latent(goal), seed=seed, history=self._history)
            for goal, seed in zip(goals, seeds, strict=True)
        ]

    def decide(self, frames: Array, states: Sequence[ActionQueue], steps_left: Index) -> Array:
        """The next action of each plan; plan where there is none."""
        for queue, frame, left in zip(states, frames, steps_left, strict=True):
            queue.steps_left = int(left)
            # A history has a latent of every model step.
            whole_step = len(queue.actions) % self.model.config.frameskip == 0
            if not queue.actions or (self._history > 1 and whole_step):
                queue.see(self._latent(frame), self.raw_actions)
        idle = [queue for queue in states if not queue.actions]
        for known in sorted({len(queue.latents) for queue in idle}):
            self._refill([queue for queue in idle if len(queue.latents) == known])
        return np.stack([queue.next_action() for queue in states])

    def _latent(self, frame: Array) -> Tensor:
        """A frame's latent (D,)."""
        # One by one, which costs little beside a plan. In a batch, the last bits would depend on
        # the other frames, and a search may turn them into another plan.
        return self.encode(torch.from_numpy(frame[None]))[0]

    def _refill(self, queues: Sequence[ActionQueue]) -> None:
        """Plan for queues that know the same number of latents, all at once."""
        z_BTD = torch.stack([torch.stack(tuple(queue.latents)) for queue in queues])
        z_goal_BD = torch.stack([queue.z_goal_D for queue in queues])
        plans_BHA, calls = self.plan(queues, z_BTD, z_goal_BD)
        for queue, actions_LR in zip(queues, self.raw_actions.from_blocks(plans_BHA), strict=True):
            queue.actions.extend(actions_LR[: self._commit])
            queue.plans += 1
            queue.predictor_calls += calls


@config
class MPCConfig:
    """How plans are made and used; the defaults are the paper's."""

    horizon: Positive = 5  # model steps that a plan looks ahead
    receding_horizon: Positive = 5  # of those, how many are executed before the next plan
    warm_start: bool = True  # search from the unexecuted rest of the last plan, then zeros
    history: Positive = 1  # past latents that the predictor receives; more carry velocity
    cost: CostName = "latent"  # of a plan's end; the others need a controller's time-to-go head
    seed: NonNegative = defaults.SEED

    def __post_init__(self) -> None:
        if self.receding_horizon > self.horizon:
            raise ValueError(
                f"receding_horizon must be at most horizon = {self.horizon}, got "
                f"{self.receding_horizon}"
            )


class MPCController(PlanningController):
    """A `Controller` that plans with any solver in a world model.

    As stable-worldmodel's policy, except that executed actions lie within the task's bounds, and
    that every environment has its own random numbers.

    Args:
        world: The world model, with the scale of its actions, on the device to compute on.
        solver: Any `Solver`.
        action_low: The task's smallest raw actions.
        action_high: The task's largest.
        config: How to plan.
        time_to_go: For the costs that need it.
    """

    def __init__(
        self,
        world: World,
        solver: Solver,
        *,
        action_low: Sequence[float],
        action_high: Sequence[float],
        config: MPCConfig = MPCConfig(),  # noqa: B008 - frozen
        time_to_go: TimeToGo | None = None,
    ) -> None:
        commit, seed = config.receding_horizon * world.frameskip, config.seed
        history = config.history
        super().__init__(world, action_low, action_high, commit=commit, seed=seed, history=history)
        if history > world.history:
            raise ValueError(
                f"history must be at most {world.history}, as in the world model, got {history}"
            )
        self._solver, self._config = solver, config
        self._distance = goal_distance(config.cost, time_to_go)

    def plan(
        self, queues: Sequence[ActionQueue], z_BTD: Tensor, z_goal_BD: Tensor
    ) -> tuple[Tensor, int]:
        """The solver's plans."""
        executed = [torch.stack(tuple(queue.blocks)) for queue in queues if queue.blocks]
        actions_BTA = torch.stack(executed) if executed else None
        cost = LatentCost(
            self.model, z_BTD, z_goal_BD, actions_BTA=actions_BTA, distance=self._distance
        )
        mean_BHA = z_BTD.new_zeros(len(queues), self._config.horizon, self.model.config.block_dim)
        for mean_HA, queue in zip(mean_BHA, queues, strict=True):
            if self._config.warm_start and queue.rest_HA is not None:
                mean_HA[: len(queue.rest_HA)] = queue.rest_HA
        noise = SeededNoise(generators=[queue.generator for queue in queues], like=mean_BHA)
        found = self._solver(cost, mean_BHA, noise=noise)
        if not found.actions.isfinite().all() or found.cost.isnan().any():
            raise ValueError(f"{self._solver} diverged: its plan is not finite: use smaller steps")
        for queue, plan_HA in zip(queues, found.actions, strict=True):
            queue.rest_HA = plan_HA[self._config.receding_horizon :]
        return found.actions, cost.predictor_calls
