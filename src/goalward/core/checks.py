"""What is refused wherever it is given: no whole number, one out of range, no path.

Every refusal is a `ValueError` of one line that names what is wrong.
"""

from __future__ import annotations

import math
import os
from numbers import Integral, Real
from pathlib import Path

MOST = 2**63 - 1  # of any whole number: more does not fit arrays, nor a torch generator's seed
_SHOWN = 60  # characters of a value


def whole_number(value: object, name: str, *, least: int = 1, most: int = MOST) -> int:
    """The value, if it is a whole number within the range; True and False are none.

    Raises:
        ValueError: it is something else.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError(f"{name} must be a whole number, got {format_value(value)}")
    if not least <= int(value) <= most:
        edge = f"least {least}" if int(value) < least else f"most {most}"
        raise ValueError(f"{name} must be at {edge}, got {format_value(value)}")
    return int(value)


def finite_number(value: object, name: str) -> float:
    """The value, if it is a finite number; True and False are none.

    Raises:
        ValueError: it is something else.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not _is_finite(value):
        raise ValueError(f"{name} must be a finite number, got {format_value(value)}")
    return float(value)


def as_path(path: object, name: str = "path") -> Path:
    """A path as a user gave it; nothing needs to be there.

    Raises:
        ValueError: it is none, or no file can be there.
    """
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"{name} must be a path, got {format_value(path)}")
    try:
        found = Path(path)
        found.exists()
    except (OSError, ValueError, TypeError) as error:  # too long, say, or no text
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"{name} {format_value(path)} cannot be used: {reason}") from error
    return found


def format_value(value: object) -> str:
    """A value for a message: in one line, and not too long."""
    try:
        text = one_line(repr(value))
    except (ValueError, RecursionError):  # a number of thousands of digits, or endless nesting
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def describe(value: object) -> str:
    """The type and shape of an array or a tensor for a message; anything else as it is."""
    kind, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if kind is None or shape is None:
        return format_value(value)
    return f"{str(kind).removeprefix('torch.')} of shape {tuple(shape)}"


def one_line(text: str) -> str:
    """`text` with every run of white space, line breaks included, as one space."""
    return " ".join(text.split())


def _is_finite(value: Real) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
