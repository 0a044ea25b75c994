"""Frames to latents with a frozen encoder, on one device or several."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from goalward.core.checks import describe, whole_number
from goalward.world.lewm import LeWM

# ImageNet's, as in the public LeWM checkpoints.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
MOST_SIZE = 2**14  # pixels a side


def require_frames(frames_NHWC: Tensor) -> None:
    """Refuse what is no batch of frames."""
    if (
        not isinstance(frames_NHWC, Tensor)
        or frames_NHWC.dtype != torch.uint8
        or frames_NHWC.ndim != 4
        or frames_NHWC.shape[-1] != 3
        or 0 in frames_NHWC.shape[1:]
    ):
        kind = "" if isinstance(frames_NHWC, Tensor) else f" ({type(frames_NHWC).__name__})"
        raise ValueError(
            "frames must be uint8 of shape (N, height, width, 3) in a torch tensor, not "
            + describe(frames_NHWC)
            + kind
        )


def normalise(frames_NHWC: Tensor, image_size: int | None = None) -> Tensor:
    """uint8 frames (N, H, W, 3) to normalised float32 (N, 3, size, size), channels last in memory.

    Frames of another size than `image_size` are resized with anti-aliasing.

    Raises:
        ValueError: The frames have another type or shape.
    """
    require_frames(frames_NHWC)
    if image_size is not None:
        whole_number(image_size, "image_size", most=MOST_SIZE)
    pixels_NCHW = frames_NHWC.permute(0, 3, 1, 2).to(torch.float32)
    if image_size is not None and pixels_NCHW.shape[-2:] != (image_size, image_size):
        pixels_NCHW = F.interpolate(
            pixels_NCHW, size=(image_size, image_size), mode="bilinear", antialias=True
        )
    mean_C11 = torch.tensor(MEAN, device=pixels_NCHW.device).view(3, 1, 1)
    std_C11 = torch.tensor(STD, device=pixels_NCHW.device).view(3, 1, 1)
    return pixels_NCHW.sub_(255 * mean_C11).div_(255 * std_C11)


Module = TypeVar("Module", bound=nn.Module)


def folded(module: Module) -> Module:
    """A copy for inference that computes the same with fewer layers, but for rounding."""
    copied = copy.deepcopy(module).eval()
    for part in copied.modules():
        if isinstance(part, nn.Sequential):
            for (name, layer), (next_name, norm) in pairwise(list(part.named_children())):
                if isinstance(layer, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                    setattr(part, name, fuse_conv_bn_eval(layer, norm))
                elif isinstance(layer, nn.Linear) and isinstance(norm, nn.BatchNorm1d):
                    setattr(part, name, fuse_linear_bn_eval(layer, norm))
                else:
                    continue
                setattr(part, next_name, nn.Identity())
    return copied.requires_grad_(requires_grad=False)


class FrameEncoder:
    """A world model's encoder as it is now, frozen, with a copy on each device.

    Args:
        model: Where the weights come from; it is left as it is.
        devices: Where to compute (default: where the model is). A batch is shared evenly.
    """

    def __init__(self, model: LeWM, devices: Sequence[torch.device] = ()) -> None:
        self.image_size = model.config.encoder.image_size
        home = next(model.parameters()).device
        encoder = folded(nn.Sequential(model.encoder, model.projector))
        self._encoders = [
            (device, copy.deepcopy(encoder).to(device)) for device in devices or (home,)
        ]

    def __call__(self, frames_NHWC: Tensor) -> Tensor:
        """Latents (N, D) of uint8 frames (N, H, W, 3) of any size, on the first device.

        Raises:
            ValueError: The frames have another type or shape.
        """
        require_frames(frames_NHWC)  # before they are shared out
        with torch.inference_mode():
            if len(self._encoders) == 1:
                return self._encode(*self._encoders[0], frames_NHWC)
            parts = frames_NHWC.chunk(len(self._encoders)) if len(frames_NHWC) else [frames_NHWC]
            # GPUs compute on their own once asked, so that asking one after the other is enough.
            latents = [
                self._encode(*encoder, part)
                for encoder, part in zip(self._encoders, parts, strict=False)
            ]
            return torch.cat([z_ND.to(latents[0].device) for z_ND in latents])

    def _encode(self, device: torch.device, encoder: nn.Module, frames_NHWC: Tensor) -> Tensor:
        pixels = normalise(frames_NHWC.to(device, non_blocking=True), self.image_size)
        latents: Tensor = encoder(pixels)
        return latents.float()
