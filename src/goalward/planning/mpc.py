"""Model predictive control: any solver as a `Controller`.

Shapes: B environments, M of them that act, H model steps, D latent numbers, A numbers of an action
block: `frameskip` raw actions in a row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from goalward import defaults
from goalward.control.checkpoint import TrainedIDM
from goalward.control.controller import Environments, Observation, goal_number
from goalward.core.arrays import Array, as_array
from goalward.core.checks import describe
from goalward.core.config import require_at_least, require_at_most, require_types
from goalward.core.random import generator
from goalward.planning.cost import MAX_ROLLOUTS, LatentCost
from goalward.planning.solvers import MOST_HORIZON, SeededDraws, Solver
from goalward.world.checkpoint import World
from goalward.world.frozen import FrameEncoder
from goalward.world.lewm import LeWM


class RawActions:
    """The scale and the bounds of a task's raw actions.

    Raises:
        ValueError: the world model does not tell the scale of its actions, or has others.
    """

    def __init__(self, world: World, low: npt.ArrayLike, high: npt.ArrayLike) -> None:
        if world.actions is None:
            raise ValueError(
                "plans are z-scored actions, and this world model does not tell their mean and std "
                "(public checkpoints do not); goalward convert-world --episodes PATH adds them"
            )
        self._scale, size = world.actions, world.model.config.action_dim
        self._block_dim = world.model.config.block_dim
        self._low_R = _edge(low, "action_low", size)
        self._high_R = _edge(high, "action_high", size)
        if not (self._low_R <= self._high_R).all():
            raise ValueError(
                f"action_low must be at most action_high, got {self._low_R} and {self._high_R}"
            )

    def of_blocks(self, blocks_BHA: Tensor) -> Array:
        """Raw actions (B, H * frameskip, R) within the bounds, of z-scored blocks."""
        z = blocks_BHA.reshape(len(blocks_BHA), -1, len(self._scale.mean))
        return np.clip(self._scale.restore(z).cpu().numpy(), self._low_R, self._high_R)

    def to_block(self, actions: Array) -> Tensor:
        """The z-scored block (A,) of raw actions (frameskip, R)."""
        return self._scale.normalise(torch.from_numpy(actions)).flatten()

    def to_blocks(self, actions_BLR: Tensor) -> Tensor:
        """Z-scored blocks (B, H, A) of raw actions (B, H * frameskip, R), put within the bounds."""
        low_R, high_R = (torch.from_numpy(e).to(actions_BLR) for e in (self._low_R, self._high_R))
        z_BLR = self._scale.normalise(actions_BLR.clamp(low_R, high_R))
        return z_BLR.reshape(len(z_BLR), -1, self._block_dim)


def _edge(values: npt.ArrayLike, name: str, size: int) -> Array:
    edge_R = as_array(values, name)
    if edge_R.dtype.kind not in "iuf" or edge_R.shape != (size,):
        raise ValueError(
            f"{name} must have {size} numbers, as the world model's actions do, got "
            f"{describe(edge_R)}"
        )
    return edge_R.astype(np.float32)


def goal_seed(goal: Array, seed: int) -> int:
    """The seed of an attempt, made from its goal's frame.

    The same goal gets the same draws whoever attempts it, before or after or beside which others.
    """
    return int(generator("planning", seed, goal_number(goal)).integers(2**63))


class ActionQueue:
    """One environment's goal, random generator and committed actions.

    Attributes:
        z_goal_D: The goal.
        generator: Of its own, so that nobody else's plans change its draws.
        plans: Made for it so far.
        predictor_calls: Made for it so far.
    """

    def __init__(self, z_goal_D: Tensor, *, seed: int) -> None:
        self.z_goal_D = z_goal_D
        self.generator = torch.Generator().manual_seed(seed)
        self.plans = self.predictor_calls = 0
        self._committed: deque[Array] = deque()

    @property
    def committed(self) -> int:
        """Raw actions that are left of the plan."""
        return len(self._committed)

    def commit(self, actions: Array) -> None:
        """Take a new plan's raw actions, one a row."""
        assert not self._committed
        self._committed.extend(actions)
        self.plans += 1

    def next_action(self) -> Array:
        """The next committed action."""
        return self._committed.popleft()


class RememberingAttempt(ActionQueue):
    """An attempt that knows its past, and where the next search starts.

    Attributes:
        mean_HA: Where the next search starts, in z-scores.
    """

    def __init__(self, z_goal_D: Tensor, mean_HA: Tensor, *, seed: int, history: int) -> None:
        super().__init__(z_goal_D, seed=seed)
        self.mean_HA = mean_HA
        self._executed: list[Array] = []  # since the last latent
        self._latents: deque[Tensor] = deque(maxlen=history)
        self._blocks: deque[Tensor] = deque(maxlen=history - 1)  # between the latents

    @property
    def known(self) -> int:
        """How many latents there are to start a plan from."""
        return len(self._latents)

    def past(self) -> tuple[Tensor, Tensor]:
        """Latents (T, D) a model step apart, now at last, and the blocks (T - 1, A) between."""
        blocks_TA = torch.stack(tuple(self._blocks)) if self._blocks else self.mean_HA[:0]
        return torch.stack(tuple(self._latents)), blocks_TA

    def see(self, z_D: Tensor, raw_actions: RawActions) -> None:
        """Take the present's latent, a model step after the one before if there is a history."""
        self._latents.append(z_D)
        if self._executed and self._blocks.maxlen:
            # As executed: within the bounds, unlike what was planned.
            block_A = raw_actions.to_block(np.stack(self._executed))
            self._blocks.append(block_A.to(z_D.device))
        self._executed.clear()

    def next_action(self) -> Array:
        """The next committed action; it counts as executed."""
        action = super().next_action()
        self._executed.append(action)
        return action


AttemptT = TypeVar("AttemptT", bound=ActionQueue)


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


class GoalPlanner(CommittedController[ActionQueue]):
    """A `Controller` that asks `plan` for actions, given the present alone.

    Args:
        world: The world model whose encoder frames go through.
        seed: Of the random draws of an attempt, together with its goal.
    """

    def __init__(self, world: LeWM, *, seed: int) -> None:
        super().__init__(world)
        self._seed = seed

    @abstractmethod
    def plan(self, z_BD: Tensor, attempts: Sequence[ActionQueue], steps_left_B: Tensor) -> Array:
        """Raw actions (B, L, R), within the bounds, of environments that have none left."""

    def begin(self, goal: Array, z_goal_D: Tensor) -> ActionQueue:
        """A new attempt."""
        return ActionQueue(z_goal_D, seed=goal_seed(goal, self._seed))

    def prepare(self, acting: Sequence[ActionQueue], seen: Observation) -> None:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class MPCConfig:
    """How plans are made and used; the defaults are the paper's."""

    horizon: int = 5  # model steps that a plan looks ahead
    receding_horizon: int = 5  # of those, how many are executed before the next plan
    warm_start: bool = True  # search from the unexecuted rest of the plan before, then zeros
    history: int = 1  # latents of the past that the predictor is given; more carry velocity
    seed: int = defaults.SEED

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 1, "horizon", "receding_horizon", "history")
        require_at_least(self, 0, "seed")
        require_at_most(self, MOST_HORIZON, "horizon")
        if self.receding_horizon > self.horizon:
            raise ValueError(
                f"receding_horizon must be at most horizon = {self.horizon}, "
                f"got {self.receding_horizon}"
            )


class MPCController(CommittedController[RememberingAttempt]):
    """A `Controller` that plans, executes the plan's beginning, and plans again.

    As stable-worldmodel's policy does, except that executed actions are within the task's bounds,
    and that an attempt's random numbers are its own.

    Args:
        world: The world model, with the scale of its actions, on the device to compute on.
        solver: Any; `make_solver` has the paper's.
        action_low: The task's least raw action.
        action_high: The task's greatest.
        config: How to plan.
        seed_of: The seed of an attempt, given the goal's frame and `config.seed`.
        max_rollouts: At once; see `LatentCost`.

    Raises:
        ValueError: the world model does not tell the scale of its actions, or sizes do not fit.
    """

    def __init__(
        self,
        world: World,
        solver: Solver,
        *,
        action_low: npt.ArrayLike,
        action_high: npt.ArrayLike,
        config: MPCConfig = MPCConfig(),  # noqa: B008 - frozen
        seed_of: Callable[[Array, int], int] = goal_seed,
        max_rollouts: int = MAX_ROLLOUTS,
    ) -> None:
        super().__init__(world.model)
        self.config, self.solver, self.world_id = config, solver, world.id
        self._raw_actions = RawActions(world, action_low, action_high)
        if config.history > (most := world.model.config.history):
            raise ValueError(
                f"history must be at most the world model's {most}, got {config.history}"
            )
        self._model, self._seed_of, self._max_rollouts = world.model, seed_of, max_rollouts
        self._device = next(world.model.parameters()).device

    def begin(self, goal: Array, z_goal_D: Tensor) -> RememberingAttempt:
        """A new attempt, that nothing is known of."""
        seed = self._seed_of(goal, self.config.seed)
        history = self.config.history
        return RememberingAttempt(z_goal_D, self._start(), seed=seed, history=history)

    def prepare(self, acting: Sequence[RememberingAttempt], seen: Observation) -> None:
        """Look, and plan where nothing is left."""
        self._look(acting, seen.frames)
        idle = [attempt for attempt in acting if not attempt.committed]
        for known in sorted({attempt.known for attempt in idle}):
            self._plan([attempt for attempt in idle if attempt.known == known])

    def _look(self, acting: Sequence[RememberingAttempt], frames: Array) -> None:
        """Encode the present where a plan starts, or at every model step if there is a history."""
        step = self._model.config.frameskip
        every = step if self.config.history > 1 else step * self.config.receding_horizon
        for attempt, frame in zip(acting, frames, strict=True):
            if attempt.committed % every == 0:
                attempt.see(self.latent(frame), self._raw_actions)

    def _plan(self, attempts: Sequence[RememberingAttempt]) -> None:
        """Plan for attempts that know as many latents each, all at once."""
        z_BTD, blocks_BTA = map(torch.stack, zip(*(a.past() for a in attempts), strict=True))
        cost = LatentCost(
            self._model,
            z_BTD,
            torch.stack([attempt.z_goal_D for attempt in attempts]),
            actions_BTA=blocks_BTA,
            max_rollouts=self._max_rollouts,
        )
        mean_BHA = torch.stack([attempt.mean_HA for attempt in attempts])
        generators = [attempt.generator for attempt in attempts]
        draws = SeededDraws(generators=generators, device=self._device)
        plan_BHA = self.solver(cost, mean_BHA, draws=draws).actions
        if not plan_BHA.isfinite().all():
            raise ValueError(f"{self.solver} diverged: its plan is not finite; use smaller steps")
        raw_BLR = self._raw_actions.of_blocks(plan_BHA[:, : self.config.receding_horizon])
        for attempt, actions, plan_HA in zip(attempts, raw_BLR, plan_BHA, strict=True):
            attempt.commit(actions)
            attempt.mean_HA = self._start(plan_HA)
            attempt.predictor_calls += cost.predictor_calls // len(attempts)

    def _start(self, plan_HA: Tensor | None = None) -> Tensor:
        """Where a search starts (H, A), given the plan before."""
        shape = (self.config.horizon, self._model.config.block_dim)
        mean_HA = torch.zeros(shape, device=self._device)
        if plan_HA is not None and self.config.warm_start:
            rest_HA = plan_HA[self.config.receding_horizon :]
            mean_HA[: len(rest_HA)] = rest_HA
        return mean_HA


def plan_with(
    model: TrainedIDM,
    solver: Solver,
    config: MPCConfig = MPCConfig(),  # noqa: B008 - frozen
) -> MPCController:
    """Planning with the world model and the bounds in a controller's file.

    Raises:
        ValueError: as `MPCController` does.
    """
    metadata = model.metadata
    return MPCController(
        World(model=model.world, actions=metadata.action_scale, id=metadata.world_id),
        solver,
        action_low=metadata.action_low,
        action_high=metadata.action_high,
        config=config,
    )
