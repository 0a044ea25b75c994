"""Frames to latents with a frozen encoder, on one device or several."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from goalward.data.pixels import normalise, require_frames
from goalward.world.folding import folded
from goalward.world.lewm import LeWM


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
