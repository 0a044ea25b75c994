"""The encoders to choose from: configurations that build a module from frames to features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from goalward.checks import shown
from goalward.config import require_at_least, require_at_most, require_types
from goalward.world.conv import ConvEncoder
from goalward.world.vit import ViT

# More can only be a mistake, and would ask for more memory than there is.
MOST_PIXELS = 4096  # a side
MOST_WIDTH = 2**16  # numbers of a layer
MOST_DEPTH = 1000  # layers


@dataclass(frozen=True, kw_only=True, slots=True)
class ViTConfig:
    """A Vision Transformer; the defaults are ViT-Tiny with patches of 14 pixels, the paper's."""

    kind: Literal["vit"] = "vit"
    image_size: int = 224
    patch_size: int = 14
    dim: int = 192
    depth: int = 12
    heads: int = 3

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 1, "image_size", "patch_size", "dim", "depth", "heads")
        require_at_most(self, MOST_PIXELS, "image_size")
        require_at_most(self, MOST_WIDTH, "dim")
        require_at_most(self, MOST_DEPTH, "depth")
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
        return ViT(
            image_size=self.image_size,
            patch_size=self.patch_size,
            dim=self.dim,
            depth=self.depth,
            heads=self.heads,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ConvConfig:
    """A small convolutional network for CPUs: keypoints beside a coarse grid of features."""

    kind: Literal["conv"] = "conv"
    image_size: int = 64
    patch_size: int = 4
    channels: tuple[int, ...] = (32, 64, 128)  # of the patches, then of each halved grid
    keypoints: int = 32

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 1, "image_size", "patch_size", "keypoints")
        require_at_most(self, MOST_PIXELS, "image_size")
        require_at_most(self, MOST_WIDTH, "keypoints")
        if not self.channels or not all(1 <= width <= MOST_WIDTH for width in self.channels):
            raise ValueError(f"channels must be in 1 .. {MOST_WIDTH}, got {shown(self.channels)}")
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
        return ConvEncoder(
            image_size=self.image_size,
            patch_size=self.patch_size,
            channels=self.channels,
            keypoints=self.keypoints,
        )
