"""A small convolutional encoder for CPUs, which says where things are.

Beside a coarse grid of features, it gives the places of `keypoints`: each is a map over the image,
turned into a distribution whose mean place is the feature (the spatial softmax of arXiv
1509.06113). Places vary smoothly with what moves, where a grid of features would need many
numbers and a large network to say the same.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

SHARPNESS = 4.0  # of a keypoint's distribution before training
PLACE_SPREAD = 2.0  # places run from -2 to 2, about the spread of normalised features


class ConvEncoder(nn.Module):
    """Patches and a 3x3 layer; from there keypoints, and 3x3 layers that halve the grid."""

    def __init__(
        self, *, image_size: int, patch_size: int, channels: tuple[int, ...], keypoints: int
    ) -> None:
        super().__init__()
        first = channels[0]
        self.trunk = nn.Sequential(
            *_layer(nn.Conv2d(3, first, patch_size, patch_size)),
            *_layer(nn.Conv2d(first, first, 3, padding=1)),
        )
        self.keypoints = Keypoints(first, keypoints, grid=image_size // patch_size)
        self.grid = nn.Sequential(
            *(
                part
                for before, after in pairwise(channels)
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
