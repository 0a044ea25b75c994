"""The parts of LeWM's predictor and heads; tensor names are those of the public checkpoints."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


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
