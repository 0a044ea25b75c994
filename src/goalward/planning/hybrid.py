"""The hybrid: a small search around the plan that GC-IDM proposes (the paper's future work iii).

Shapes: B environments, S candidate plans, H model steps of F raw actions each, T known latents, D
latent numbers, A numbers of an action block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import torch
from torch import Tensor

from goalward import defaults
from goalward.control.act import ActionHead
from goalward.control.checkpoint import TrainedIDM
from goalward.control.networks import HorizonConfig
from goalward.core.config import NonNegative, Positive, config
from goalward.planning.cost import CostName, LatentCost, goal_distance, last_latent
from goalward.planning.mpc import ActionQueue, PlanningController
from goalward.planning.solvers import CEM, SeededNoise

PASSES = 2  # over a block of the proposal: its actions depend on the latent that they lead to


@config
class HybridConfig:
    """How to propose, and how far to search."""

    horizon: Positive = 5  # model steps of a proposal
    commit: Positive = 5  # raw actions until the next plan: 1, 5 or 25
    search: CEM | None = field(  # None: the proposal itself, without feedback until the next plan
        default_factory=lambda: CEM(num_samples=128, num_iters=3, num_elites=16, init_std=0.3)
    )
    steps_left: HorizonConfig | None = None  # GC-IDM's horizon input (None: as its file says)
    cost: CostName = "latent"  # of a plan's end
    seed: NonNegative = defaults.SEED


class HybridController(PlanningController):
    """A `Controller` that replaces GC-IDM's proposal only where the predicted cost falls."""

    def __init__(self, model: TrainedIDM, config: HybridConfig) -> None:
        low, high = model.metadata.action_low, model.metadata.action_high
        super().__init__(model.world, low, high, commit=config.commit, seed=config.seed)
        self._config, self._skip = config, self.model.config.frameskip
        if config.commit > config.horizon * self._skip:
            raise ValueError(
                f"commit must be at most {config.horizon * self._skip}, the actions of a proposal, "
                f"got {config.commit}"
            )
        horizon = config.steps_left or model.metadata.horizon
        self._distance = goal_distance(config.cost, model.time_to_go)
        self._act = ActionHead(model.network, model.time_to_go, horizon)

    @torch.inference_mode()
    def plan(
        self, queues: Sequence[ActionQueue], z_BTD: Tensor, z_goal_BD: Tensor
    ) -> tuple[Tensor, int]:
        """Propose, search around the proposal, and keep the plan of lower predicted cost."""
        z_BD, search = z_BTD[:, -1], self._config.search
        steps_left_B = torch.tensor([queue.steps_left for queue in queues], device=z_BD.device)
        proposal_BHA = self.propose(z_BD, z_goal_BD, steps_left_B)
        calls = PASSES * self._config.horizon
        if search is None:
            return proposal_BHA, calls
        cost = LatentCost(self.model, z_BTD, z_goal_BD, distance=self._distance)
        noise = SeededNoise(generators=[queue.generator for queue in queues], like=proposal_BHA)
        found_BHA = search(cost, proposal_BHA, noise=noise).actions
        costs_B2 = cost(torch.stack([proposal_BHA, found_BHA], dim=1))
        better_B11 = (costs_B2[:, 1] < costs_B2[:, 0])[:, None, None]
        return torch.where(better_B11, found_BHA, proposal_BHA), calls + cost.predictor_calls

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
        path = [torch.lerp(here_BD, there_BD, k / self._skip) for k in range(self._skip)]
        actions = [
            self._act(z_BD, z_goal_BD, (left_B - k).clamp(min=1)) for k, z_BD in enumerate(path)
        ]
        return self.raw_actions.to_blocks(torch.stack(actions, dim=1))[:, 0]
