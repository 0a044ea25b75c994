"""The hybrid: GC-IDM proposes, a small search around its proposal corrects (future work iii).

Shapes: B environments, S candidate plans, H model steps of F raw actions each, D latent numbers, A
numbers of an action block, R of a raw action.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from goalward import defaults
from goalward.control.act import GCIDMController
from goalward.control.checkpoint import TrainedIDM
from goalward.control.horizon import HorizonConfig
from goalward.core.arrays import Array
from goalward.core.config import require_at_least, require_at_most, require_types
from goalward.planning.cost import LatentCost, last_latent
from goalward.planning.mpc import ActionQueue, GoalPlanner, RawActions
from goalward.planning.solvers import CEM, MOST_HORIZON, SeededDraws
from goalward.world.checkpoint import World

PASSES = 2  # over a block of the proposal: where it leads decides what is done on the way


@dataclass(frozen=True, kw_only=True, slots=True)
class HybridConfig:
    """How to propose, and how far to search."""

    horizon: int = 5  # model steps of a proposal
    commit: int = 5  # raw actions until the next look: 1, 5 or 25
    search: CEM | None = field(  # None: the proposal as it is, without feedback until it is used up
        default_factory=lambda: CEM(num_samples=128, num_iters=3, num_elites=16, init_std=0.3)
    )
    steps_left: HorizonConfig | None = None  # what GC-IDM is told (None: as its file says)
    seed: int = defaults.SEED

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 1, "horizon", "commit")
        require_at_least(self, 0, "seed")
        require_at_most(self, MOST_HORIZON, "horizon")


class HybridController(GoalPlanner):
    """A `Controller` that replaces the proposal only where the predicted cost falls.

    Raises:
        ValueError: the model is no goal-conditioned one, does not tell the scale of its actions,
            or more actions are to be committed than a proposal has.
    """

    def __init__(self, model: TrainedIDM, config: HybridConfig) -> None:
        super().__init__(model.world, seed=config.seed)
        metadata, self._config = model.metadata, config
        self._model, self._skip = model.world, model.world.config.frameskip
        if config.commit > config.horizon * self._skip:
            raise ValueError(
                f"commit must be at most {config.horizon * self._skip}, the actions of a proposal, "
                f"got {config.commit}"
            )
        self._direct = GCIDMController(model, config.steps_left)
        world = World(model=model.world, actions=metadata.action_scale, id=metadata.world_id)
        self._raw_actions = RawActions(world, metadata.action_low, metadata.action_high)

    def plan(self, z_BD: Tensor, attempts: Sequence[ActionQueue], steps_left_B: Tensor) -> Array:
        """Propose, search, and keep the better one of each environment."""
        z_goal_BD = torch.stack([attempt.z_goal_D for attempt in attempts])
        proposal_BHA = self.propose(z_BD, z_goal_BD, steps_left_B)
        for attempt in attempts:
            attempt.predictor_calls += PASSES * self._config.horizon
        if self._config.search is not None:
            proposal_BHA = self._improved(proposal_BHA, z_BD, z_goal_BD, attempts)
        return self._raw_actions.of_blocks(proposal_BHA)[:, : self._config.commit]

    def _improved(
        self,
        proposal_BHA: Tensor,
        z_BD: Tensor,
        z_goal_BD: Tensor,
        attempts: Sequence[ActionQueue],
    ) -> Tensor:
        """The better of the proposal and of what a search around it finds, by the model."""
        assert self._config.search is not None
        cost = LatentCost(self._model, z_BD[:, None], z_goal_BD)
        draws = SeededDraws(
            generators=[attempt.generator for attempt in attempts], device=z_BD.device
        )
        found_BHA = self._config.search(cost, proposal_BHA, draws=draws).actions
        both_BSHA = torch.stack([proposal_BHA, found_BHA], dim=1)
        costs_B2 = cost(both_BSHA)
        better_B11 = (costs_B2[:, 1] < costs_B2[:, 0])[:, None, None]
        for attempt in attempts:
            attempt.predictor_calls += cost.predictor_calls // len(attempts)
        return torch.where(better_B11, found_BHA, proposal_BHA)

    def propose(self, z_BD: Tensor, z_goal_BD: Tensor, steps_left_B: Tensor) -> Tensor:
        """GC-IDM's z-scored blocks (B, H, A), each from where the predictor says it will be."""
        blocks: list[Tensor] = []
        here_BD = z_BD
        for h in range(self._config.horizon):
            left_B = (steps_left_B - h * self._skip).clamp(min=1)
            there_BD = here_BD
            for _ in range(PASSES):
                block_BA = self._block(here_BD, there_BD, z_goal_BD, left_B)
                actions_KBA = torch.stack([*blocks, block_BA])
                there_BD = last_latent(self._model, z_BD[None], actions_KBA)
            blocks.append(block_BA)
            here_BD = there_BD
        return torch.stack(blocks, dim=1)

    def _block(
        self, here_BD: Tensor, there_BD: Tensor, z_goal_BD: Tensor, left_B: Tensor
    ) -> Tensor:
        """One block: the network's actions along the straight line between two latents."""
        actions = []
        for k in range(self._skip):
            z_BD = torch.lerp(here_BD, there_BD, k / self._skip)
            left = (left_B - k).clamp(min=1)
            actions.append(self._direct.act_on_latents(z_BD, z_goal_BD, left))
        return self._raw_actions.to_blocks(torch.stack(actions, dim=1))[:, 0]
