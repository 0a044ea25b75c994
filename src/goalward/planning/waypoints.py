"""Waypoints (Appendix D.4): a straight line in latent space, decoded by the pairwise IDM.

Shapes: B environments, S candidate paths, P + 1 points of a path, H model steps, T known latents, D
latent numbers, R numbers of a raw action.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from goalward import defaults
from goalward.control.checkpoint import TrainedIDM
from goalward.control.networks import PairwiseIDM
from goalward.core.config import NonNegative, NonNegativeFloat, Positive, config
from goalward.planning.mpc import ActionQueue, PlanningController


@config
class WaypointsConfig:
    """How paths are drawn and decoded."""

    horizon: Positive = 25  # raw actions of a path
    commit: Positive = 25  # of those, how many are executed before the next path
    refinements: NonNegative = 0  # times that a path is corrected by the predictor
    candidates: Positive = 1  # paths; the one predicted to end nearest the goal is executed
    spread: NonNegativeFloat = 0.3  # standard deviation of other candidates, midway
    seed: NonNegative = defaults.SEED

    def __post_init__(self) -> None:
        if self.commit > self.horizon:
            raise ValueError(f"commit must be at most horizon = {self.horizon}, got {self.commit}")


class WaypointController(PlanningController):
    """A `Controller` that decodes the straight line from the present latent to the goal's.

    A refinement rolls the decoded actions out in the predictor, and decodes the predicted path,
    moved so that it ends in the goal.
    """

    def __init__(self, model: TrainedIDM, config: WaypointsConfig) -> None:
        low, high = model.metadata.action_low, model.metadata.action_high
        super().__init__(model.world, low, high, commit=config.commit, seed=config.seed)
        if not isinstance(model.network, PairwiseIDM):
            raise ValueError("waypoints need a pairwise model; train one with --kind pairwise")
        self._config, self._network = config, model.network
        skip = math.lcm(model.network.config.frameskip, self.model.config.frameskip)
        if config.horizon % skip:
            raise ValueError(
                f"horizon must be a multiple of {skip}, the frameskip of the models, got "
                f"{config.horizon}"
            )
        points = config.horizon // self._network.config.frameskip + 1
        device = next(model.network.parameters()).device
        self._share_P1 = torch.linspace(0, 1, points, device=device)[:, None]  # of the way

    @torch.inference_mode()
    def plan(
        self, queues: Sequence[ActionQueue], z_BTD: Tensor, z_goal_BD: Tensor
    ) -> tuple[Tensor, int]:
        """Decode candidate paths, and return each environment's best."""
        z_BD, config = z_BTD[:, -1], self._config
        blocks_BSHA = self._decode(self._paths(z_BD, z_goal_BD, queues))
        for _ in range(config.refinements):
            predicted_BSHD = self._predict(z_BD, blocks_BSHA)
            blocks_BSHA = self._decode(self.corrected(predicted_BSHD, z_BD, z_goal_BD))
        best_BHA = blocks_BSHA[:, 0]
        if config.candidates > 1:
            ends_BSD = self._predict(z_BD, blocks_BSHA)[:, :, -1]
            best_B = (ends_BSD - z_goal_BD[:, None]).square().sum(dim=-1).argmin(dim=1)
            best_BHA = blocks_BSHA[torch.arange(len(best_B), device=best_B.device), best_B]
        rollouts = config.refinements + (config.candidates > 1)
        return best_BHA, rollouts * config.candidates * blocks_BSHA.shape[2]

    def _paths(self, z_BD: Tensor, z_goal_BD: Tensor, queues: Sequence[ActionQueue]) -> Tensor:
        """Straight lines (B, S, P + 1, D); all candidates but the first bulge at random."""
        line_BPD = torch.lerp(z_BD[:, None], z_goal_BD[:, None], self._share_P1)
        shape = (self._config.candidates, 1, z_BD.shape[1])
        noise = torch.stack([torch.randn(shape, generator=queue.generator) for queue in queues])
        noise[:, 0] = 0.0
        bulge_P1 = self._config.spread * torch.sin(math.pi * self._share_P1)
        return line_BPD[:, None] + bulge_P1 * noise.to(z_BD.device)

    def _decode(self, paths_BSPD: Tensor) -> Tensor:
        """The z-scored action blocks (B, S, H, A) along paths, within the bounds."""
        batch, samples = paths_BSPD.shape[:2]
        here_ND, there_ND = paths_BSPD[:, :, :-1].flatten(0, 2), paths_BSPD[:, :, 1:].flatten(0, 2)
        raw = self._network(here_ND, there_ND).view(
            batch * samples, -1, self._network.config.action_dim
        )
        return self.raw_actions.to_blocks(raw).unflatten(0, (batch, samples))

    def _predict(self, z_BD: Tensor, blocks_BSHA: Tensor) -> Tensor:
        """The latents (B, S, H, D) after each block."""
        batch, samples = blocks_BSHA.shape[:2]
        start_N1D = z_BD.repeat_interleave(samples, dim=0)[:, None]
        found_NHD = self.model.rollout(start_N1D, blocks_BSHA.flatten(0, 1))
        return found_NHD.unflatten(0, (batch, samples))

    def corrected(self, predicted_BSHD: Tensor, z_BD: Tensor, z_goal_BD: Tensor) -> Tensor:
        """Predicted paths as points (B, S, P + 1, D), moved so that they end in the goal."""
        start_BS1D = z_BD[:, None, None].expand(-1, predicted_BSHD.shape[1], 1, -1)
        known_BSHD = torch.cat([start_BS1D, predicted_BSHD], dim=2)
        last = known_BSHD.shape[2] - 1
        at_P = torch.linspace(0, last, len(self._share_P1), device=z_BD.device)
        low_P = at_P.floor().long().clamp(max=last - 1)
        part_P1 = (at_P - low_P)[:, None]
        path_BSPD = torch.lerp(known_BSHD[:, :, low_P], known_BSHD[:, :, low_P + 1], part_P1)
        missing_BS1D = z_goal_BD[:, None, None] - path_BSPD[:, :, -1:]
        return path_BSPD + self._share_P1 * missing_BS1D
