"""Bringing a natively drawn frame to the image size of the scene."""

from __future__ import annotations

from goalward.types import Array


def resized(frame: Array, image_size: int) -> Array:
    """A uint8 frame of shape (image_size, image_size, 3), never a view of the input.

    Shrinking averages areas: point-sampled shrinking would drop sub-pixel motion, the very thing
    a small frame must still show.
    """
    import cv2

    native = frame.shape[0]
    if native == image_size:
        return frame.copy()
    how = cv2.INTER_AREA if image_size < native else cv2.INTER_LINEAR
    small: Array = cv2.resize(frame, (image_size, image_size), interpolation=how)
    return small
