"""Values that users give, in messages: each refusal is a `ValueError` of one line."""

from __future__ import annotations

import os
from pathlib import Path

MOST = 2**63 - 1  # of any whole number: more does not fit arrays, nor a torch generator's seed
SHOWN = 60  # characters of a value in a message


def as_path(path: object, name: str = "path") -> Path:
    """The path, if files can have it; none needs to exist."""
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"{name} must be a string or a path, got {format_value(path)}")
    try:
        found = Path(path)
        found.exists()
    except (OSError, ValueError, TypeError) as error:  # too long, for example, or bytes
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"{name} {format_value(path)} cannot be used: {reason}") from error
    return found


def format_value(value: object) -> str:
    """A value for a message: in one line, and not too long."""
    try:
        text = one_line(repr(value))
    except (ValueError, RecursionError):  # a number of thousands of digits, or endless nesting
        return f"a {type(value).__name__} too large to show"
    return shorten(text)


def shorten(text: str) -> str:
    """The text, cut if it is too long for a message."""
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def describe(value: object) -> str:
    """The type and shape of an array or a tensor for a message; anything else as it is."""
    kind, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if kind is None or shape is None:
        return format_value(value)
    return f"{str(kind).removeprefix('torch.')} of shape {tuple(shape)}"


def one_line(text: str) -> str:
    """`text` with every run of white space, line breaks included, as one space."""
    return " ".join(text.split())
