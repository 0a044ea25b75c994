"""LeWM, the latent world model: frames to latents, latents and actions to the next latents.

Shapes: B windows, T steps of `frameskip` environment steps each, D latent numbers, A numbers of an
action block (`frameskip` raw actions in a row, z-scored), S candidate plans.
"""

from __future__ import annotations

from dataclasses import field

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from goalward import defaults
from goalward.core.config import Fraction, config
from goalward.world.encoders import ConvConfig, Depth, ViTConfig, Width


@config
class PredictorConfig:
    """The transformer that predicts the next latent; the defaults are the paper's."""

    depth: Depth = 6
    heads: Width = 16
    dim_head: Width = 64
    mlp_dim: Width = 2048
    dropout: Fraction = 0.1


@config
class LeWMConfig:
    """The architecture; the defaults are the public configuration's."""

    action_dim: Width  # numbers of one raw action
    encoder: ViTConfig | ConvConfig = field(default_factory=ViTConfig)
    frameskip: Width = defaults.FRAMESKIP  # environment steps in a model step
    history: Width = 3  # model steps that the predictor sees
    latent_dim: Width = 192
    projector_dim: Width = 2048
    predictor: PredictorConfig = field(default_factory=PredictorConfig)

    @property
    def block_dim(self) -> int:
        """A, the numbers of an action block."""
        return self.action_dim * self.frameskip


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

    def __init__(self, dim: int, config: PredictorConfig) -> None:
        super().__init__()
        self.attn = Attention(dim, config.heads, config.dim_head, config.dropout)
        self.mlp = FeedForward(dim, config.mlp_dim, config.dropout)
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

    def __init__(self, dim: int, config: PredictorConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(ConditionalBlock(dim, config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(dim)

    def forward(self, x_BTD: Tensor, condition_BTD: Tensor) -> Tensor:
        """(B, T, D), (B, T, D) to (B, T, D)."""
        for block in self.layers:
            x_BTD = block(x_BTD, condition_BTD)
        return self.norm(x_BTD)


class Predictor(nn.Module):
    """Latents and action embeddings of up to `history` steps to the next latent of each."""

    def __init__(self, dim: int, history: int, config: PredictorConfig) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.randn(1, history, dim))
        self.transformer = Transformer(dim, config)

    def forward(self, z_BTD: Tensor, actions_BTD: Tensor) -> Tensor:
        """(B, T, D), (B, T, D) to (B, T, D) with T up to `history`."""
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


class LeWM(nn.Module):
    """Encoder, projector, action encoder and predictor; tensors are named as in public files."""

    def __init__(self, config: LeWMConfig) -> None:
        super().__init__()
        self.config = config
        dim = config.latent_dim
        self.encoder = config.encoder.build()
        self.projector = Projector(config.encoder.features, config.projector_dim, dim)
        self.action_encoder = ActionEncoder(config.block_dim, dim)
        self.predictor = Predictor(dim, config.history, config.predictor)
        self.pred_proj = Projector(dim, config.projector_dim, dim)

    @property
    def image_size(self) -> int:
        """Pixels a side of the frames that `encode` takes."""
        return self.config.encoder.image_size

    @property
    def latent_dim(self) -> int:
        """D, the numbers of a latent."""
        return self.config.latent_dim

    def encode(self, pixels_NCHW: Tensor) -> Tensor:
        """Normalised frames (N, 3, H, W) to latents (N, D); see `frozen.normalise`."""
        return self.projector(self.encoder(pixels_NCHW))

    def predict(self, z_BTD: Tensor, actions_BTA: Tensor) -> Tensor:
        """The latents after each of T <= history steps, each from the steps up to it: (B, T, D)."""
        next_BTD = self.predictor(z_BTD, self.action_encoder(actions_BTA))
        return self.pred_proj(next_BTD.flatten(0, 1)).view_as(next_BTD)

    def rollout(self, z_BHD: Tensor, actions_BTA: Tensor) -> Tensor:
        """Latents after every action from the H-th on, predicted one from the other.

        The first H - 1 actions lie between the given latents; the T - H + 1 others are tried out:
        the result is (B, T - H + 1, D).
        """
        given, steps = z_BHD.shape[1], actions_BTA.shape[1]
        assert 1 <= given <= steps, "the last latent needs an action too"
        conditions_BTD = self.action_encoder(actions_BTA)
        latents = list(z_BHD.unbind(1))
        for t in range(given, steps + 1):
            first = max(0, t - self.config.history)
            seen_BTD = torch.stack(latents[first:t], dim=1)
            # Only the last position's output is needed, so only it goes through the head.
            last_BD = self.predictor(seen_BTD, conditions_BTD[:, first:t])[:, -1]
            latents.append(self.pred_proj(last_BD))
        return torch.stack(latents[given:], dim=1)


def num_parameters(module: nn.Module) -> int:
    """Trainable numbers."""
    return sum(parameter.numel() for parameter in module.parameters())
