"""The hybrid: a small search around the plan that GC-IDM proposes (the paper's future work iii).

Shapes: B environments, S candidate plans, H model steps of F raw actions each, T known latents, D
latent numbers, A numbers of an action block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from goalward import defaults
from goalward.control.act import ActionHead
from goalward.control.checkpoint import TrainedIDM
from goalward.control.horizon import HorizonConfig
from goalward.core.arrays import Array
from goalward.core.config import require_at_least, require_types
from goalward.planning.cost import LatentCost, last_latent
from goalward.planning.mpc import ActionQueue, PlanningController
from goalward.planning.solvers import CEM, SeededNoise
from goalward.world.checkpoint import World

PASSES = 2  # over a block of the proposal: its actions depend on the latent that they lead to


@dataclass(frozen=True, kw_only=True, slots=True)
class HybridConfig:
    """How to propose, and how far to search."""

    horizon: int = 5  # model steps of a proposal
    commit: int = 5  # raw actions until the next plan: 1, 5 or 25
    search: CEM | None = field(  # None: the proposal itself, without feedback until the next plan
        default_factory=lambda: CEM(num_samples=128, num_iters=3, num_elites=16, init_std=0.3)
    )
    steps_left: HorizonConfig | None = None  # GC-IDM's horizon input (None: as its file says)
    seed: int = defaults.SEED

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 1, "horizon", "commit")
        require_at_least(self, 0, "seed")


class HybridController(PlanningController):
    """A `Controller` that replaces GC-IDM's proposal only where the predicted cost falls."""

    def __init__(self, model: TrainedIDM, config: HybridConfig) -> None:
        metadata = model.metadata
        super().__init__(
            World(model=model.world, actions=metadata.action_scale, id=metadata.world_id),
            action_low=metadata.action_low,
            action_high=metadata.action_high,
            seed=config.seed,
        )
        self._config, self._skip = config, self.model.config.frameskip
        if config.commit > config.horizon * self._skip:
            raise ValueError(
                f"commit must be at most {config.horizon * self._skip}, the actions of a proposal, "
                f"got {config.commit}"
            )
        horizon = metadata.horizon if config.steps_left is None else config.steps_left
        self._act = ActionHead(model.network, model.time_to_go, horizon)

    @torch.inference_mode()
    def plan(self, queues: Sequence[ActionQueue], z_BTD: Tensor, z_goal_BD: Tensor) -> Array:
        """Propose, search, and keep the better plan of each environment."""
        z_BD = z_BTD[:, -1]
        steps_left_B = torch.tensor([queue.steps_left for queue in queues], device=z_BD.device)
        plan_BHA = self.propose(z_BD, z_goal_BD, steps_left_B)
        for queue in queues:
            queue.predictor_calls += PASSES * self._config.horizon
        if self._config.search is not None:
            plan_BHA = self._improve(plan_BHA, self._config.search, queues, z_BTD, z_goal_BD)
        return self.raw_actions.from_blocks(plan_BHA)[:, : self._config.commit]

    def _improve(
        self,
        proposal_BHA: Tensor,
        search: CEM,
        queues: Sequence[ActionQueue],
        z_BTD: Tensor,
        z_goal_BD: Tensor,
    ) -> Tensor:
        """The better of the proposal and of the plan found around it, by the predicted cost."""
        cost = LatentCost(self.model, z_BTD, z_goal_BD)
        noise = SeededNoise(generators=[queue.generator for queue in queues], like=proposal_BHA)
        found_BHA = search(cost, proposal_BHA, noise=noise).actions
        costs_B2 = cost(torch.stack([proposal_BHA, found_BHA], dim=1))
        better_B11 = (costs_B2[:, 1] < costs_B2[:, 0])[:, None, None]
        for queue in queues:
            queue.predictor_calls += cost.predictor_calls
        return torch.where(better_B11, found_BHA, proposal_BHA)

    def propose(self, z_BD: Tensor, z_goal_BD: Tensor, steps_left_B: Tensor) -> Tensor:
        """GC-IDM's z-scored blocks (B, H, A), each from the latent predicted for its start."""
        blocks: list[Tensor] = []
        here_BD = z_BD
        for h in range(self._config.horizon):
            left_B = (steps_left_B - h * self._skip).clamp(min=1)
            there_BD = here_BD
            for _ in range(PASSES):
                block_BA = self._block(here_BD, there_BD, z_goal_BD, left_B)
                actions_KBA = torch.stack([*blocks, block_BA])
                there_BD = last_latent(self.model, z_BD[None], actions_KBA)
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
            actions.append(self._act(z_BD, z_goal_BD, (left_B - k).clamp(min=1)))
        return self.raw_actions.to_blocks(torch.stack(actions, dim=1))[:, 0]
