"""LeWM, the latent world model: frames to latents, latents and actions to the next latents.

Shapes: B windows, T steps of `frameskip` environment steps each, D latent numbers, A numbers of an
action block (`frameskip` raw actions in a row, z-scored), S candidate plans.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from goalward import defaults
from goalward.core.config import require_at_least, require_at_most, require_types
from goalward.core.tensors import require_tensor
from goalward.world.encoders import MOST_DEPTH, MOST_WIDTH, ConvConfig, ViTConfig


class Attention(nn.Module):
    """Causal multi-head self-attention with its own LayerNorm."""

    def __init__(self, dim: int, heads: int, dim_head: int, dropout: float) -> None:
        super().__init__()
        inner = heads * dim_head
        self.heads = heads
        self.dropout = dropout
        self.norm = nn.LayerNorm(dim)
        self.to_qkv = nn.Linear(dim, 3 * inner, bias=False)
        self.to_out = nn.Sequential(nn.Linear(inner, dim), nn.Dropout(dropout))

    def forward(self, x_BTD: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D); position t sees positions up to t."""
        batch, time, _ = x_BTD.shape
        qkv = self.to_qkv(self.norm(x_BTD)).view(batch, time, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        drop = self.dropout if self.training else 0.0
        out_BHTE = F.scaled_dot_product_attention(q, k, v, dropout_p=drop, is_causal=True)
        return self.to_out(out_BHTE.transpose(1, 2).reshape(batch, time, -1))


class FeedForward(nn.Module):
    """LayerNorm, then a two-layer GELU network."""

    def __init__(self, dim: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(dim),
            nn.Linear(dim, hidden),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, dim),
            nn.Dropout(dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        return self.net(x)


class ConditionalBlock(nn.Module):
    """A transformer block whose norms and gates depend on a condition (AdaLN-zero).

    The gates start at zero, so that a new block passes its input on unchanged.
    """

    def __init__(self, dim: int, heads: int, dim_head: int, mlp_dim: int, dropout: float) -> None:
        super().__init__()
        self.attn = Attention(dim, heads, dim_head, dropout)
        self.mlp = FeedForward(dim, mlp_dim, dropout)
        self.norm1 = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        self.norm2 = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        modulation = nn.Linear(dim, 6 * dim)
        nn.init.zeros_(modulation.weight)
        nn.init.zeros_(modulation.bias)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), modulation)

    def forward(self, x_BTD: Tensor, condition_BTD: Tensor) -> Tensor:
        """(B, T, D), (B, T, D) to (B, T, D)."""
        shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = self.adaLN_modulation(
            condition_BTD
        ).chunk(6, -1)
        x_BTD = x_BTD + gate_1 * self.attn(self.norm1(x_BTD) * (1 + scale_1) + shift_1)
        return x_BTD + gate_2 * self.mlp(self.norm2(x_BTD) * (1 + scale_2) + shift_2)


class Transformer(nn.Module):
    """Conditional blocks and a final LayerNorm."""

    def __init__(
        self, dim: int, depth: int, heads: int, dim_head: int, mlp_dim: int, dropout: float
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            ConditionalBlock(dim, heads, dim_head, mlp_dim, dropout) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim)

    def forward(self, x_BTD: Tensor, condition_BTD: Tensor) -> Tensor:
        """(B, T, D), (B, T, D) to (B, T, D)."""
        for block in self.layers:
            x_BTD = block(x_BTD, condition_BTD)
        return self.norm(x_BTD)


class Predictor(nn.Module):
    """Latents and action embeddings of up to `num_frames` steps to the next latent of each."""

    def __init__(
        self,
        *,
        num_frames: int,
        dim: int,
        depth: int,
        heads: int,
        dim_head: int,
        mlp_dim: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.randn(1, num_frames, dim))
        self.transformer = Transformer(dim, depth, heads, dim_head, mlp_dim, dropout)

    def forward(self, z_BTD: Tensor, actions_BTD: Tensor) -> Tensor:
        """(B, T, D), (B, T, D) to (B, T, D) with T up to `num_frames`."""
        return self.transformer(z_BTD + self.pos_embedding[:, : z_BTD.shape[1]], actions_BTD)


class ActionEncoder(nn.Module):
    """A block of z-scored actions to an embedding: a linear map, then a two-layer network."""

    def __init__(self, input_dim: int, dim: int, mlp_scale: int = 4) -> None:
        super().__init__()
        # Kernel size 1: a linear map, written as the public checkpoints store it.
        self.patch_embed = nn.Conv1d(input_dim, input_dim, kernel_size=1)
        self.embed = nn.Sequential(
            nn.Linear(input_dim, mlp_scale * dim), nn.SiLU(), nn.Linear(mlp_scale * dim, dim)
        )

    def forward(self, actions_BTA: Tensor) -> Tensor:
        """(B, T, A) to (B, T, D)."""
        conv = self.patch_embed
        return self.embed(F.linear(actions_BTA, conv.weight[..., 0], conv.bias))


class Projector(nn.Module):
    """A two-layer network with BatchNorm, whose output carries no scale of its own."""

    def __init__(self, input_dim: int, hidden: int, output_dim: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(input_dim, hidden),
            nn.BatchNorm1d(hidden),
            nn.GELU(),
            nn.Linear(hidden, output_dim),
        )

    def forward(self, x_ND: Tensor) -> Tensor:
        """(N, D) to (N, output_dim)."""
        return self.net(x_ND)


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
