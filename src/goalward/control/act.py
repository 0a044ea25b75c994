"""GC-IDM in control: frames in, actions out, one forward pass a step.

Shapes: B environments, D latent numbers, A numbers of an action.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from goalward.control.checkpoint import TrainedIDM
from goalward.control.controller import BatchController, Index
from goalward.control.networks import GCIDM, HorizonConfig, TimeToGo, quantile_steps
from goalward.core.arrays import Array
from goalward.world.frozen import FrameEncoder


class ActionHead(nn.Module):
    """From latents to actions: the network and its horizon input.

    The network must be goal-conditioned; its weights are copied. Only the horizon `time-to-go`
    needs the time-to-go head.
    """

    def __init__(
        self, network: nn.Module, time_to_go: TimeToGo | None, horizon: HorizonConfig
    ) -> None:
        super().__init__()
        if not isinstance(network, GCIDM):
            raise ValueError(
                "a pairwise model gives the actions between two frames that are close in time, not "
                "towards a goal: train a controller with --kind gc-idm"
            )
        if horizon.mode == "time-to-go" and time_to_go is None:
            raise ValueError(
                "this controller has no time-to-go head: choose the horizon budget or fixed, or "
                "train one with it"
            )
        self.horizon = horizon
        self.network = network.frozen()
        self.time_to_go = copy.deepcopy(time_to_go) if horizon.mode == "time-to-go" else None

    def forward(self, z_BD: Tensor, z_goal_BD: Tensor, steps_left_B: Tensor) -> Tensor:
        """Actions (B, A) before clipping."""
        return self.network(z_BD, z_goal_BD, self.horizon_steps(z_BD, z_goal_BD, steps_left_B))

    def horizon_steps(self, z_BD: Tensor, z_goal_BD: Tensor, steps_left_B: Tensor) -> Tensor:
        """The network's horizon input (B,), given the remaining steps."""
        if self.horizon.mode == "budget":
            return steps_left_B
        if self.horizon.mode == "fixed":
            return steps_left_B.clamp(max=self.horizon.fixed_steps)
        assert self.time_to_go is not None
        needed_B = quantile_steps(self.time_to_go(z_BD, z_goal_BD), self.horizon.quantile)
        return torch.minimum(steps_left_B, needed_B)


class GCIDMController(BatchController[Tensor]):
    """A `Controller` that asks the network for every action (Algorithm 1).

    Its states are the goals' latents. It computes on the model's device; `horizon` is by default as
    trained.
    """

    def __init__(self, model: TrainedIDM, horizon: HorizonConfig | None = None) -> None:
        super().__init__()
        metadata = model.metadata
        horizon = horizon or metadata.horizon
        self.action_head = ActionHead(model.network, model.time_to_go, horizon)
        self._device = next(model.network.parameters()).device
        self.encode = FrameEncoder(model.encoder, (self._device,))
        bounds = (metadata.action_low, metadata.action_high)
        self._low_A, self._high_A = (np.asarray(edge, dtype=np.float32) for edge in bounds)

    def start(self, goals: Array) -> Sequence[Tensor]:
        """Encode each goal once."""
        return [*self.encode(torch.from_numpy(goals))]

    def decide(self, frames: Array, states: Sequence[Tensor], steps_left: Index) -> Array:
        """One forward pass."""
        with torch.inference_mode():
            z_BD = self.encode(torch.from_numpy(frames))
            steps_B = torch.from_numpy(steps_left).to(self._device)
            actions_BA = self.action_head(z_BD, torch.stack([*states]), steps_B)
        return np.clip(actions_BA.cpu().numpy(), self._low_A, self._high_A)
