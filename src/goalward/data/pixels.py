"""THE image preprocessing: frames as they are stored to what encoders take."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from goalward.checks import described, whole_number

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
            + described(frames_NHWC)
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
