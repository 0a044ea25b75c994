"""Frames to latents with a frozen encoder, on one device or several."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from goalward.world.checkpoint import World
from goalward.world.lewm import LeWM
from goalward.world.protocol import Encoder

# ImageNet's, as in the public LeWM checkpoints.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)

Module = TypeVar("Module", bound=nn.Module)


def normalise(frames_NHWC: Tensor, image_size: int | None = None) -> Tensor:
    """uint8 frames (N, H, W, 3) to normalised float32 (N, 3, size, size), channels last in memory.

    Frames of another size than `image_size` are resized with anti-aliasing.
    """
    pixels_NCHW = frames_NHWC.permute(0, 3, 1, 2).to(torch.float32)
    if image_size is not None and pixels_NCHW.shape[-2:] != (image_size, image_size):
        pixels_NCHW = F.interpolate(
            pixels_NCHW, size=(image_size, image_size), mode="bilinear", antialias=True
        )
    mean_C11 = torch.tensor(MEAN, device=pixels_NCHW.device).view(3, 1, 1)
    std_C11 = torch.tensor(STD, device=pixels_NCHW.device).view(3, 1, 1)
    return pixels_NCHW.sub_(255 * mean_C11).div_(255 * std_C11)


def fuse_batchnorm(module: Module) -> Module:
    """A copy for inference, with every BatchNorm in the layer before it; equal but for rounding."""
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
    """An encoder as it is now, frozen, with a copy on each device.

    Args:
        encoder: Where the weights come from; it does not change. One that is no torch module is
            not copied: it receives frames on every device.
        devices: Where to compute (default: where the encoder is). A batch is shared evenly.
    """

    def __init__(self, encoder: LeWM | Encoder, devices: Sequence[torch.device] = ()) -> None:
        self.image_size = encoder.image_size
        self._devices = devices or (device_of(encoder),)
        self._encoders = [_frozen(encoder, device) for device in self._devices]

    def __call__(self, frames_NHWC: Tensor) -> Tensor:
        """Latents (N, D) of uint8 frames (N, H, W, 3) of any size, on the first device."""
        parts, latents = frames_NHWC.chunk(len(self._devices)), []
        with torch.inference_mode():
            # GPUs compute asynchronously, so that calling one after the other is enough.
            for device, encode, part in zip(self._devices, self._encoders, parts, strict=False):
                pixels = normalise(part.to(device, non_blocking=True), self.image_size)
                latents.append(encode(pixels).float())
            if len(latents) == 1:
                return latents[0]
            return torch.cat([z_ND.to(self._devices[0]) for z_ND in latents])


def device_of(encoder: LeWM | Encoder) -> torch.device:
    """Where an encoder computes; the CPU for one without weights."""
    module = encoder.model if isinstance(encoder, World) else encoder
    parameters = module.parameters() if isinstance(module, nn.Module) else iter(())
    return next((parameter.device for parameter in parameters), torch.device("cpu"))


def _frozen(encoder: LeWM | Encoder, device: torch.device) -> Callable[[Tensor], Tensor]:
    """What maps normalised frames to latents, on a device."""
    module = encoder.model if isinstance(encoder, World) else encoder
    if isinstance(module, LeWM):
        return fuse_batchnorm(nn.Sequential(module.encoder, module.projector)).to(device)
    if isinstance(module, nn.Module):
        return copy.deepcopy(module).eval().to(device).encode
    return encoder.encode
