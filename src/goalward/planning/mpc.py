"""Model predictive control: any solver as a `Controller`.

Shapes: B environments, M of them that act, H model steps, D latent numbers, A numbers of an action
block: `frameskip` raw actions in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy.typing as npt
import torch
from torch import Tensor

from goalward import defaults
from goalward.config import require_at_least, require_at_most, require_types
from goalward.controllers.environments import Observation
from goalward.controllers.file import InverseModel
from goalward.planning.attempt import RememberingAttempt, goal_seed
from goalward.planning.base import MOST_HORIZON, SeededDraws, Solver
from goalward.planning.committed import CommittedController
from goalward.planning.cost import MAX_ROLLOUTS, LatentCost
from goalward.planning.raw_actions import RawActions
from goalward.types import Array
from goalward.world.checkpoint import World


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
    model: InverseModel,
    solver: Solver,
    config: MPCConfig = MPCConfig(),  # noqa: B008 - frozen
) -> MPCController:
    """Planning with the world model and the bounds in a controller's file.

    Raises:
        ValueError: as `MPCController` does.
    """
    card = model.card
    return MPCController(
        World(model=model.world, actions=card.action_scale, id=card.world_id),
        solver,
        action_low=card.action_low,
        action_high=card.action_high,
        config=config,
    )
