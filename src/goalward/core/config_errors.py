"""One line about a value that pydantic refuses: its dotted name, what it must be, what it is."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args, get_type_hints

from pydantic_core import ErrorDetails

from goalward.core.checks import format_value, one_line

Place = tuple[int | str, ...]  # names of fields, indices of tuples, keys of dictionaries

WORDS = {  # ours for pydantic's
    "Input should be ": "",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "greater than": "above",
    "less than": "below",
    "a valid integer": "a whole number",
    "a valid array": "a list",
    "a valid ": "a ",
    "'str' instances are not allowed as a Sequence value": "a list or tuple",
    "an instance of Sequence": "a list or tuple",
    "an instance of PathLike": "a path",
    "an instance of ": "",
}
UNKNOWN, MISSING, OTHER_CHOICE = "unexpected_keyword_argument", "missing", "literal_error"


def error_line(cls: type, data: Any, errors: Sequence[ErrorDetails]) -> str:
    """The most helpful of the errors that `cls` has with `data`.

    Args:
        cls: The configuration.
        data: The values by name.
        errors: From pydantic, not empty.
    """
    # A union has errors for each of its types: take the type that the value resembles most.
    by_type: dict[Place, list[tuple[Place, ErrorDetails]]] = {}
    for error in errors:
        place, types = _place(data, error)
        by_type.setdefault(types, []).append((place, error))
    unlike = (UNKNOWN, MISSING, OTHER_CHOICE)
    likely = min(by_type.values(), key=lambda those: sum(e["type"] in unlike for _, e in those))
    # An unknown key before others: a misspelt key is also a missing one, and its name helps more.
    place, error = min(likely, key=lambda one: one[1]["type"] != UNKNOWN)
    where, value = dotted(place), error["input"]
    if error["type"] == UNKNOWN:
        return f"{where}: unknown key{did_you_mean(place[-1], _field_names(cls))}"
    if error["type"] == MISSING:
        return f"{where}: missing key"
    if error["type"] == "value_error":  # a rule across fields
        return one_line(f"{where}: {error['ctx']['error']}".removeprefix(": "))
    same = [_expected(e) for those in by_type.values() for p, e in those if p == place]
    wanted = " or ".join(dict.fromkeys(same))
    hint = did_you_mean(value, re.findall(r"'([^']*)'", wanted))
    return f"{where or cls.__name__} must be {wanted}, got {format_value(value)}{hint}"


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A hint at the most similar of the known names; empty if none is similar."""
    near = difflib.get_close_matches(str(name), [*known], n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def dotted(place: Place) -> str:
    """A place in a message, such as `heads[1].width`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{key_name(step)}" for step in place)
    return "".join(steps).removeprefix(".")


def key_name(key: Any) -> str:
    """A key in a message."""
    return key if isinstance(key, str) and key.isprintable() else format_value(key)


def _expected(error: ErrorDetails) -> str:
    text = error["msg"]
    for theirs, ours in WORDS.items():
        text = text.replace(theirs, ours)
    return text


def _place(data: Any, error: ErrorDetails) -> tuple[Place, Place]:
    """The error's place in the data, and the types of unions that it is about."""
    place: Place = ()
    types: Place = ()
    for step in error["loc"]:
        is_key = isinstance(data, Mapping) and step in data
        if is_key or (isinstance(data, list | tuple) and step in range(len(data))):
            data, place = data[step], (*place, step)
        else:
            types = (*types, step)
    if error["type"] == MISSING:
        return (*place, types[-1]), types[:-1]
    return place, types


def _field_names(hint: Any) -> set[str]:
    """The names of the fields of a configuration and of those in it."""
    if not dataclasses.is_dataclass(hint):
        return {name for part in get_args(hint) for name in _field_names(part)}
    hints = get_type_hints(hint)
    return hints.keys() | {name for part in hints.values() for name in _field_names(part)}
