"""The encoders to choose from: configurations that build a module from frames to features."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor, nn

from goalward.core.config import Positive, config

# More can only be a mistake, and would ask for more memory than there is.
Pixels = Annotated[int, Field(ge=1, le=4096)]  # a side
Width = Annotated[int, Field(ge=1, le=2**16)]  # numbers of a layer
Depth = Annotated[int, Field(ge=1, le=1000)]  # layers

SHARPNESS = 4.0  # of a keypoint's distribution before training
PLACE_SPREAD = 2.0  # places run from -2 to 2, about the spread of normalised features
NORM_EPS = 1e-12  # as in the transformers library
INIT_STD = 0.02


@config
class ConvConfig:
    """A small convolutional network for CPUs: keypoints beside a coarse grid of features."""

    kind: Literal["conv"] = "conv"
    image_size: Pixels = 64
    patch_size: Positive = 4
    channels: tuple[Width, ...] = (32, 64, 128)  # of the patches, then of each halved grid
    keypoints: Width = 32

    def __post_init__(self) -> None:
        if not self.channels:
            raise ValueError("channels must be at least one number, got ()")
        if self.image_size % self._shrink:
            raise ValueError(
                f"image_size must be a multiple of {self._shrink} (patch_size {self.patch_size}, "
                f"doubled for each of the later channels), got {self.image_size}"
            )

    @property
    def _shrink(self) -> int:
        return self.patch_size * 2 ** (len(self.channels) - 1)

    @property
    def features(self) -> int:
        """Numbers that the encoder gives the projector."""
        return 2 * self.keypoints + self.channels[-1] * (self.image_size // self._shrink) ** 2

    def build(self) -> nn.Module:
        """The encoder: (N, 3, image_size, image_size) to (N, features)."""
        return ConvEncoder(self)


class ConvEncoder(nn.Module):
    """Patches and a 3x3 layer; from there keypoints, and 3x3 layers that halve the grid."""

    def __init__(self, config: ConvConfig) -> None:
        super().__init__()
        patch, first = config.patch_size, config.channels[0]
        self.trunk = nn.Sequential(
            *_layer(nn.Conv2d(3, first, patch, patch)),
            *_layer(nn.Conv2d(first, first, 3, padding=1)),
        )
        self.keypoints = Keypoints(first, config.keypoints, grid=config.image_size // patch)
        self.grid = nn.Sequential(
            *(
                part
                for before, after in pairwise(config.channels)
                for part in _layer(nn.Conv2d(before, after, 3, stride=2, padding=1))
            )
        )
        self.to(memory_format=torch.channels_last)

    def forward(self, pixels_NCHW: Tensor) -> Tensor:
        """(N, 3, H, W) to (N, features)."""
        map_NCHW = self.trunk(pixels_NCHW)
        return torch.cat([self.keypoints(map_NCHW), self.grid(map_NCHW).flatten(1)], dim=1)


class Keypoints(nn.Module):
    """Feature maps to the mean place (x, y) of each keypoint's distribution."""

    places: Tensor

    def __init__(self, channels: int, number: int, *, grid: int) -> None:
        super().__init__()
        self.heights = nn.Conv2d(channels, number, 1)
        with torch.no_grad():
            self.heights.weight *= SHARPNESS
        line = torch.linspace(-PLACE_SPREAD, PLACE_SPREAD, grid)
        y, x = torch.meshgrid(line, line, indexing="ij")
        self.register_buffer("places", torch.stack([x, y], -1).view(-1, 2), persistent=False)

    def forward(self, map_NCHW: Tensor) -> Tensor:
        """(N, C, grid, grid) to (N, 2 * number)."""
        weights_NKP = self.heights(map_NCHW).flatten(2).softmax(-1)
        return (weights_NKP @ self.places).flatten(1)


def _layer(convolution: nn.Conv2d) -> tuple[nn.Module, ...]:
    return convolution, nn.BatchNorm2d(convolution.out_channels), nn.ReLU(inplace=True)


@config
class ViTConfig:
    """A Vision Transformer; the defaults are ViT-Tiny with patches of 14 pixels, the paper's."""

    kind: Literal["vit"] = "vit"
    image_size: Pixels = 224
    patch_size: Positive = 14
    dim: Width = 192
    depth: Depth = 12
    heads: Positive = 3

    def __post_init__(self) -> None:
        if self.image_size % self.patch_size or self.dim % self.heads:
            raise ValueError(
                f"image_size {self.image_size} must be a multiple of patch_size {self.patch_size}, "
                f"and dim {self.dim} of heads {self.heads}"
            )

    @property
    def features(self) -> int:
        """Numbers that the encoder gives the projector."""
        return self.dim

    def build(self) -> nn.Module:
        """The encoder: (N, 3, image_size, image_size) to (N, features)."""
        return ViT(self)


class ViT(nn.Module):
    """Frames to the class token of the last layer."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        dim, patch = config.dim, config.patch_size
        self.patches = nn.Conv2d(3, dim, patch, patch)
        self.class_token = nn.Parameter(torch.empty(1, 1, dim))
        self.positions = nn.Parameter(torch.empty(1, (config.image_size // patch) ** 2 + 1, dim))
        self.blocks = nn.ModuleList(ViTBlock(dim, config.heads) for _ in range(config.depth))
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


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Conv2d):
        nn.init.trunc_normal_(module.weight, std=INIT_STD)
        assert module.bias is not None
        nn.init.zeros_(module.bias)
