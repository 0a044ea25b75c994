"""GC-IDM in control: frames in, actions out, one forward pass a step.

Shapes: B environments, D latent numbers, A numbers of an action.
"""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from goalward.control.checkpoint import TrainedIDM, load_trained_idm
from goalward.control.controller import Environments
from goalward.control.horizon import HorizonConfig
from goalward.control.networks import GCIDM, TimeToGo, quantile_steps
from goalward.core.arrays import Array
from goalward.core.tensors import require_tensor
from goalward.world.checkpoint import Weights
from goalward.world.frozen import FrameEncoder


class ActionHead(nn.Module):
    """From latents to actions: the network, and what it is told of the steps left.

    Args:
        network: A goal-conditioned one, on the device to compute on; its weights are copied.
        time_to_go: The head that goes with it, if there is one.
        horizon: What the network is told.

    Raises:
        ValueError: the network is pairwise, or the time-to-go head that `horizon` needs is missing.
    """

    def __init__(
        self, network: nn.Module, time_to_go: TimeToGo | None, horizon: HorizonConfig
    ) -> None:
        super().__init__()
        self.horizon = horizon
        if not isinstance(network, GCIDM):
            raise ValueError(
                "a pairwise model tells the action between two frames, not the way to a goal; "
                "train one with --kind gc-idm"
            )
        if horizon.mode == "time-to-go" and time_to_go is None:
            raise ValueError(
                "this controller has no time-to-go head; choose the horizon budget or fixed, or "
                "train one with it"
            )
        self.network = network.frozen()
        self.time_to_go = copy.deepcopy(time_to_go) if horizon.mode == "time-to-go" else None

    def forward(self, z_BD: Tensor, z_goal_BD: Tensor, steps_left_B: Tensor) -> Tensor:
        """Actions (B, A) before clipping.

        Raises:
            ValueError: shapes or types do not fit the network or each other.
        """
        return self.network(z_BD, z_goal_BD, self.horizon_steps(z_BD, z_goal_BD, steps_left_B))

    def horizon_steps(self, z_BD: Tensor, z_goal_BD: Tensor, steps_left_B: Tensor) -> Tensor:
        """What the network is told of the steps left: (B,)."""
        require_tensor(z_BD, "latents", "B", self.network.config.latent_dim)
        require_tensor(steps_left_B, "steps_left", z_BD.shape[0], dtype=torch.int64)
        if self.horizon.mode == "budget":
            return steps_left_B
        if self.horizon.mode == "fixed":
            return steps_left_B.clamp(max=self.horizon.steps)
        assert self.time_to_go is not None
        needed_B = quantile_steps(self.time_to_go(z_BD, z_goal_BD), self.horizon.level)
        return torch.minimum(steps_left_B, needed_B)


class GCIDMController:
    """A `Controller` that asks the network for every action (Algorithm 1).

    Args:
        model: A goal-conditioned model, on the device to compute on.
        horizon: What the network is told of the steps left (default: as the file says).

    Raises:
        ValueError: the model is pairwise, or lacks the time-to-go head that `horizon` needs.
    """

    def __init__(self, model: TrainedIDM, horizon: HorizonConfig | None = None) -> None:
        self.metadata = model.metadata
        self.horizon = model.metadata.horizon if horizon is None else horizon
        self.act_on_latents = ActionHead(model.network, model.time_to_go, self.horizon)
        self._encode = FrameEncoder(model.world)
        self._device = next(model.network.parameters()).device
        bounds = (model.metadata.action_low, model.metadata.action_high)
        self._low_A, self._high_A = (np.asarray(edge, dtype=np.float32) for edge in bounds)
        self._environments = Environments()
        self._goals_BD = torch.empty(0, self.metadata.network.latent_dim, device=self._device)

    @property
    def world_id(self) -> str:
        """Of the encoder that frames go through."""
        return self.metadata.world_id

    def reset(
        self, goals: Array, budget: npt.ArrayLike, *, environments: npt.ArrayLike | None = None
    ) -> None:
        """Take new goals; see `Controller.reset`. Each is encoded once, here."""
        frames, where = self._environments.reset(goals, budget, environments)
        z_goal = self._encode(torch.from_numpy(frames))
        if environments is None:
            self._goals_BD = z_goal
        else:
            self._goals_BD = self._goals_BD.clone()
            self._goals_BD[torch.from_numpy(where).to(self._device)] = z_goal

    def act(
        self,
        frames: Array,
        steps_left: npt.ArrayLike | None = None,
        *,
        environments: npt.ArrayLike | None = None,
    ) -> Array:
        """The next action of every environment; see `Controller.act`."""
        seen = self._environments.observe(frames, steps_left, environments)
        with torch.inference_mode():
            z_BD = self._encode(torch.from_numpy(seen.frames))
            where = torch.from_numpy(seen.environments).to(self._device)
            steps_B = torch.from_numpy(seen.steps_left).to(self._device)
            actions_BA = self.act_on_latents(z_BD, self._goals_BD[where], steps_B)
        actions = np.clip(actions_BA.cpu().numpy(), self._low_A, self._high_A)
        return actions[0] if self._environments.single else actions


def load_controller(
    path: str | Path,
    *,
    weights: Weights = "best",
    horizon: HorizonConfig | None = None,
    device: str | torch.device = "cpu",
) -> GCIDMController:
    """Load a controller from the file, or the training's folder, that `goalward train` wrote.

    Args:
        path: The file; it is all that is needed. Or the folder.
        weights: Which of the folder's files.
        horizon: What the network is told of the steps left (default: as trained).
        device: Where to compute: cpu, cuda or mps.

    Raises:
        ValueError: one line about what is wrong and what to do.
    """
    return GCIDMController(load_trained_idm(path, weights=weights, device=device), horizon)
