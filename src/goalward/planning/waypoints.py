"""Interpolation planning (Appendix D.4): a line in latent space, decoded by the pairwise model.

Shapes: B environments, S candidate paths, P + 1 points of a path, D latent numbers, K raw actions
between two points, R numbers of a raw action.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from goalward import defaults
from goalward.control.checkpoint import TrainedIDM
from goalward.control.networks import PairwiseIDM
from goalward.core.arrays import Array
from goalward.core.config import require_at_least, require_at_most, require_types
from goalward.planning.mpc import ActionQueue, GoalPlanner, RawActions
from goalward.planning.solvers import MOST_HORIZON, MOST_SAMPLES
from goalward.world.checkpoint import World


@dataclass(frozen=True, kw_only=True, slots=True)
class InterpolationConfig:
    """How paths are drawn and decoded."""

    horizon: int = 25  # raw actions of a path
    commit: int = 25  # of those, how many are executed before the next look
    refinements: int = 0  # times that a path is corrected by the predictor
    candidates: int = 1  # paths, of which the one predicted to end nearest the goal is taken
    spread: float = 0.3  # of the other candidates: standard deviation in the middle of the path
    seed: int = defaults.SEED

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 1, "horizon", "commit", "candidates")
        require_at_least(self, 0, "refinements", "spread", "seed")
        require_at_most(self, MOST_HORIZON, "horizon", "refinements")
        require_at_most(self, MOST_SAMPLES, "candidates")
        if self.commit > self.horizon:
            raise ValueError(f"commit must be at most horizon = {self.horizon}, got {self.commit}")


class WaypointController(GoalPlanner):
    """A `Controller` that decodes the straight line from the present to the goal.

    A refinement rolls the decoded actions out in the predictor, and decodes the predicted path,
    moved so that it ends in the goal: its middle is where actions lead, its end where they should.

    Raises:
        ValueError: the model is not pairwise, or the horizon is no whole number of its steps.
    """

    def __init__(self, model: TrainedIDM, config: InterpolationConfig) -> None:
        super().__init__(model.world, seed=config.seed)
        if not isinstance(model.network, PairwiseIDM):
            raise ValueError("interpolation needs a pairwise model; train one with --kind pairwise")
        self._config, self._network = config, model.network
        self._model = model.world
        for name, skip in (
            ("the pairwise model", model.network.config.frameskip),
            ("the world model", model.world.config.frameskip),
        ):
            if config.horizon % skip:
                raise ValueError(
                    f"horizon must be a multiple of {skip}, the frameskip of {name}, got "
                    f"{config.horizon}"
                )
        metadata = model.metadata
        world = World(model=model.world, actions=metadata.action_scale, id=metadata.world_id)
        self._raw_actions = RawActions(world, metadata.action_low, metadata.action_high)

    def plan(self, z_BD: Tensor, attempts: Sequence[ActionQueue], steps_left_B: Tensor) -> Array:  # noqa: ARG002
        """Decode candidate paths, and take each environment's best."""
        z_goal_BD = torch.stack([attempt.z_goal_D for attempt in attempts])
        paths_BSPD = self._paths(z_BD, z_goal_BD, attempts)
        blocks_BSHA = self._decode(paths_BSPD)
        predicts = self._config.refinements > 0 or self._config.candidates > 1
        for _ in range(self._config.refinements):
            paths_BSPD = self._corrected(self._predict(z_BD, blocks_BSHA), z_BD, z_goal_BD)
            blocks_BSHA = self._decode(paths_BSPD)
        best_B = torch.zeros(len(z_BD), dtype=torch.int64, device=z_BD.device)
        if self._config.candidates > 1:
            ends_BSD = self._predict(z_BD, blocks_BSHA)[:, :, -1]
            best_B = (ends_BSD - z_goal_BD[:, None]).square().sum(dim=-1).argmin(dim=1)
        rollouts = self._config.refinements + (self._config.candidates > 1)
        calls = rollouts * self._config.candidates * blocks_BSHA.shape[2] if predicts else 0
        for attempt in attempts:
            attempt.predictor_calls += calls
        rows_B = torch.arange(len(z_BD), device=z_BD.device)
        return self._raw_actions.of_blocks(blocks_BSHA[rows_B, best_B])[:, : self._config.commit]

    def _paths(self, z_BD: Tensor, z_goal_BD: Tensor, attempts: Sequence[ActionQueue]) -> Tensor:
        """Straight lines (B, S, P + 1, D); all but the first candidate bulge at random."""
        points = self._config.horizon // self._network.config.frameskip
        share_P1 = torch.linspace(0, 1, points + 1, device=z_BD.device)[:, None]
        line_BPD = torch.lerp(z_BD[:, None], z_goal_BD[:, None], share_P1)
        shape = (self._config.candidates, 1, z_BD.shape[1])
        draws = torch.stack(
            [torch.randn(shape, generator=attempt.generator) for attempt in attempts]
        )
        draws[:, 0] = 0.0
        bulge_P1 = self._config.spread * torch.sin(math.pi * share_P1)
        return line_BPD[:, None] + bulge_P1 * draws.to(z_BD.device)

    def _decode(self, paths_BSPD: Tensor) -> Tensor:
        """The z-scored action blocks (B, S, H, A) along paths, within the bounds."""
        here_ND, there_ND = paths_BSPD[:, :, :-1].flatten(0, 2), paths_BSPD[:, :, 1:].flatten(0, 2)
        raw = self._network(here_ND, there_ND)
        size = self._network.config.action_dim
        batch, samples = paths_BSPD.shape[:2]
        blocks = self._raw_actions.to_blocks(raw.view(batch * samples, -1, size))
        return blocks.view(batch, samples, -1, self._model.config.block_dim)

    def _predict(self, z_BD: Tensor, blocks_BSHA: Tensor) -> Tensor:
        """The latents (B, S, H, D) after each block."""
        batch, samples = blocks_BSHA.shape[:2]
        start_N1D = z_BD.repeat_interleave(samples, dim=0)[:, None]
        found_NHD = self._model.rollout(start_N1D, blocks_BSHA.flatten(0, 1))
        return found_NHD.view(batch, samples, *found_NHD.shape[1:])

    def _corrected(self, predicted_BSHD: Tensor, z_BD: Tensor, z_goal_BD: Tensor) -> Tensor:
        """Predicted paths as points (B, S, P + 1, D), moved so that they end in the goal."""
        samples = predicted_BSHD.shape[1]
        start_BS1D = z_BD[:, None, None].expand(-1, samples, 1, -1)
        known_BSHD = torch.cat([start_BS1D, predicted_BSHD], dim=2)
        points = self._config.horizon // self._network.config.frameskip
        at_P = torch.linspace(0, known_BSHD.shape[2] - 1, points + 1, device=z_BD.device)
        low_P = at_P.floor().long().clamp(max=known_BSHD.shape[2] - 2)
        part_P1 = (at_P - low_P)[:, None]
        path_BSPD = torch.lerp(known_BSHD[:, :, low_P], known_BSHD[:, :, low_P + 1], part_P1)
        missing_BS1D = z_goal_BD[:, None, None] - path_BSPD[:, :, -1:]
        share_P1 = torch.linspace(0, 1, points + 1, device=z_BD.device)[:, None]
        return path_BSPD + share_P1 * missing_BS1D
