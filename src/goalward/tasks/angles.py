"""Angles that come round."""

from __future__ import annotations

import numpy as np

from goalward.types import Array


def wrap_angle(angle: Array | float) -> Array:
    """The same angle in [-π, π)."""
    return np.asarray((np.asarray(angle) + np.pi) % (2.0 * np.pi) - np.pi)
