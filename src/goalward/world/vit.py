"""The Vision Transformer of the public LeWM checkpoints: pre-norm blocks, class token out.

It computes what the ViT of the `transformers` library computes, without that dependency and with
names of its own; `public_layout` knows the names that its releases 4 and 5 write.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

NORM_EPS = 1e-12  # as in the transformers library
INIT_STD = 0.02


class ViTBlock(nn.Module):
    """Self-attention and a GELU network, each after a LayerNorm and with a skip."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(dim, eps=NORM_EPS)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.norm_mlp = nn.LayerNorm(dim, eps=NORM_EPS)
        self.fc1 = nn.Linear(dim, 4 * dim)
        self.fc2 = nn.Linear(4 * dim, dim)

    def forward(self, x_BND: Tensor) -> Tensor:
        """(B, N, D) to (B, N, D)."""
        batch, tokens, dim = x_BND.shape
        qkv = self.qkv(self.norm_attention(x_BND)).view(batch, tokens, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        x_BND = x_BND + self.out(mixed.reshape(batch, tokens, dim))
        return x_BND + self.fc2(F.gelu(self.fc1(self.norm_mlp(x_BND))))


class ViT(nn.Module):
    """Frames to the class token of the last layer."""

    def __init__(
        self, *, image_size: int, patch_size: int, dim: int, depth: int, heads: int
    ) -> None:
        super().__init__()
        tokens = (image_size // patch_size) ** 2 + 1
        self.patches = nn.Conv2d(3, dim, patch_size, patch_size)
        self.class_token = nn.Parameter(torch.empty(1, 1, dim))
        self.positions = nn.Parameter(torch.empty(1, tokens, dim))
        self.blocks = nn.ModuleList(ViTBlock(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.apply(_initialise)
        for parameter in (self.class_token, self.positions):
            nn.init.trunc_normal_(parameter, std=INIT_STD)

    def forward(self, pixels_BCHW: Tensor) -> Tensor:
        """(B, 3, image_size, image_size) to (B, dim)."""
        patches_BND = self.patches(pixels_BCHW).flatten(2).transpose(1, 2)
        class_B1D = self.class_token.expand(len(pixels_BCHW), -1, -1)
        x_BND = torch.cat([class_B1D, patches_BND], dim=1) + self.positions
        for block in self.blocks:
            x_BND = block(x_BND)
        return self.norm(x_BND[:, 0])


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Conv2d):
        nn.init.trunc_normal_(module.weight, std=INIT_STD)
        assert module.bias is not None
        nn.init.zeros_(module.bias)
