"""LeWM, the latent world model: frames to latents, latents and actions to the next latents.

Shapes: B windows, T steps of `frameskip` environment steps each, D latent numbers, A numbers of an
action block (`frameskip` raw actions in a row, z-scored), S candidate plans.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from goalward import defaults
from goalward.config import require_at_least, require_at_most, require_types
from goalward.world.encoders import MOST_DEPTH, MOST_WIDTH, ConvConfig, ViTConfig
from goalward.world.layers import ActionEncoder, Predictor, Projector
from goalward.world.tensors import require_tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictorConfig:
    """The transformer that predicts the next latent; the defaults are the paper's."""

    depth: int = 6
    heads: int = 16
    dim_head: int = 64
    mlp_dim: int = 2048
    dropout: float = 0.1

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 1, "depth", "heads", "dim_head", "mlp_dim")
        require_at_most(self, MOST_DEPTH, "depth")
        require_at_most(self, MOST_WIDTH, "heads", "dim_head", "mlp_dim")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {self.dropout}")


@dataclass(frozen=True, kw_only=True, slots=True)
class LeWMConfig:
    """The architecture; the defaults are the public configuration's."""

    action_dim: int  # numbers of one raw action
    encoder: ViTConfig | ConvConfig = field(default_factory=ViTConfig)
    frameskip: int = defaults.FRAMESKIP  # environment steps a model step
    history: int = 3  # model steps that the predictor sees
    latent_dim: int = 192
    projector_dim: int = 2048
    predictor: PredictorConfig = field(default_factory=PredictorConfig)

    def __post_init__(self) -> None:
        require_types(self)
        names = ("action_dim", "frameskip", "history", "latent_dim", "projector_dim")
        require_at_least(self, 1, *names)
        require_at_most(self, MOST_WIDTH, *names, "block_dim")

    @property
    def block_dim(self) -> int:
        """A, the numbers of an action block."""
        return self.action_dim * self.frameskip


class LeWM(nn.Module):
    """Encoder, projector, action encoder and predictor; tensors are named as in public files."""

    def __init__(self, config: LeWMConfig) -> None:
        super().__init__()
        self.config = config
        dim, predictor = config.latent_dim, config.predictor
        self.encoder = config.encoder.build()
        self.projector = Projector(config.encoder.features, config.projector_dim, dim)
        self.action_encoder = ActionEncoder(config.block_dim, dim)
        self.predictor = Predictor(
            num_frames=config.history,
            dim=dim,
            depth=predictor.depth,
            heads=predictor.heads,
            dim_head=predictor.dim_head,
            mlp_dim=predictor.mlp_dim,
            dropout=predictor.dropout,
        )
        self.pred_proj = Projector(dim, config.projector_dim, dim)

    def encode(self, pixels_NCHW: Tensor) -> Tensor:
        """Normalised frames (N, 3, H, W) to latents (N, D); see `data.pixels`.

        Raises:
            ValueError: the frames have another type or shape.
        """
        side = self.config.encoder.image_size
        require_tensor(pixels_NCHW, "pixels", "N", 3, side, side, dtype=self._dtype)
        return self.projector(self.encoder(pixels_NCHW))

    def predict(self, z_BTD: Tensor, actions_BTA: Tensor) -> Tensor:
        """The latents after each of T <= history steps, each from the steps up to it: (B, T, D).

        Raises:
            ValueError: shapes or types do not fit, or there are more steps than history.
        """
        self._require_steps(z_BTD, actions_BTA)
        if not 1 <= z_BTD.shape[1] == actions_BTA.shape[1] <= self.config.history:
            raise ValueError(
                f"latents and actions must be of as many steps, 1 .. {self.config.history}, got "
                f"{z_BTD.shape[1]} and {actions_BTA.shape[1]}"
            )
        next_BTD = self.predictor(z_BTD, self.action_encoder(actions_BTA))
        return self.pred_proj(next_BTD.flatten(0, 1)).view_as(next_BTD)

    def rollout(self, z_BHD: Tensor, actions_BTA: Tensor) -> Tensor:
        """Latents after every action from the H-th on, predicted one from the other.

        The first H - 1 actions lie between the given latents; the T - H + 1 others are tried out:
        the result is (B, T - H + 1, D).

        Raises:
            ValueError: shapes or types do not fit, or there are too few actions.
        """
        self._require_steps(z_BHD, actions_BTA)
        given, steps = z_BHD.shape[1], actions_BTA.shape[1]
        if not 1 <= given <= steps:
            raise ValueError(f"{given} latents need at least as many actions, got {steps}")
        conditions_BTD = self.action_encoder(actions_BTA)
        latents = list(z_BHD.unbind(1))
        for t in range(given, steps + 1):
            first = max(0, t - self.config.history)
            seen_BTD = torch.stack(latents[first:t], dim=1)
            # Only the last position's output is needed, so only it goes through the head.
            last_BD = self.predictor(seen_BTD, conditions_BTD[:, first:t])[:, -1]
            latents.append(self.pred_proj(last_BD))
        return torch.stack(latents[given:], dim=1)

    @property
    def _dtype(self) -> torch.dtype:
        return self.predictor.pos_embedding.dtype

    def _require_steps(self, z_BTD: Tensor, actions_BTA: Tensor) -> None:
        """Refuse latents and action blocks of other sizes than the model's."""
        config = self.config
        require_tensor(z_BTD, "latents", "B", "T", config.latent_dim, dtype=self._dtype)
        require_tensor(actions_BTA, "actions", len(z_BTD), "T", config.block_dim, dtype=self._dtype)


def num_parameters(module: nn.Module) -> int:
    """Trainable numbers."""
    return sum(parameter.numel() for parameter in module.parameters())
