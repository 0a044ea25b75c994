"""Array-likes that users give, as arrays; each refusal is a `ValueError` of one line."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from goalward.core.checks import describe, one_line

Array = NDArray[Any]


def as_array(values: object, name: str) -> Array:
    """The values as an array of any type."""
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:  # the last two from torch's tensors
        raise ValueError(f"{name} must be an array; NumPy says: {one_line(str(error))}") from error


def real_array(values: object, name: str, *shape: int | str) -> Array:
    """Finite numbers of this shape; a letter stands for any size."""
    array = as_array(values, name)
    fits = array.dtype.kind in "iuf" and array.ndim == len(shape)
    if not fits or any(w != s for w, s in zip(shape, array.shape, strict=True) if w != str(w)):
        sizes = ", ".join(map(str, shape))
        raise ValueError(f"{name} must be numbers of shape ({sizes}), got {describe(array)}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    return array


def spread(number: int, limit: int) -> list[int]:
    """At most `limit` of the indices below `number`, evenly spaced, the ends among them."""
    return np.unique(np.linspace(0, number - 1, limit).round().astype(int)).tolist()


def indices(values: object, name: str, limit: int) -> npt.NDArray[np.int64]:
    """Whole numbers (M,) in 0 .. limit - 1, any order, repeats allowed."""
    array = as_array(values, name)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"{name} must be a 1-D integer array, got {describe(array)}")
    if (outside := array[(array < 0) | (array >= limit)]).size:
        raise ValueError(f"{name} must lie in 0 .. {limit - 1}, got {outside[0]}")
    return array.astype(np.int64)
