"""Frames to latents with a frozen encoder, on one device or several."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from goalward.data.pixels import normalise
from goalward.world.lewm import LeWM


class FrameEncoder:
    """A frozen world model's encoder, with a copy on each device.

    Args:
        model: Put in evaluation mode. It serves on its own device; other devices get a copy.
        devices: Where to compute (default: where the model is). A batch is shared evenly.
    """

    def __init__(self, model: LeWM, devices: Sequence[torch.device] = ()) -> None:
        self.image_size = model.config.encoder.image_size
        home = next(model.parameters()).device
        self._models = [
            (model if k == 0 and device == home else copy.deepcopy(model).to(device)).eval()
            for k, device in enumerate(devices or (home,))
        ]

    def __call__(self, frames_NHWC: Tensor) -> Tensor:
        """Latents (N, D) of uint8 frames (N, H, W, 3) of any size, on the first device.

        Raises:
            ValueError: The frames have another type or shape.
        """
        with torch.inference_mode():
            parts = frames_NHWC.chunk(len(self._models)) if len(frames_NHWC) else [frames_NHWC]
            # GPUs compute on their own once asked, so that asking one after the other is enough.
            latents = [
                self._encode(model, part) for model, part in zip(self._models, parts, strict=False)
            ]
            return torch.cat([z_ND.to(latents[0].device) for z_ND in latents])

    def _encode(self, model: LeWM, frames_NHWC: Tensor) -> Tensor:
        device = next(model.parameters()).device
        pixels = normalise(frames_NHWC.to(device, non_blocking=True), self.image_size)
        return model.encode(pixels).float()
