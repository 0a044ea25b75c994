"""Strict frozen dataclasses ⇄ JSON, and the content ids computed from them.

A stored configuration is complete and exact: a misspelt, missing or mistyped key is refused by
its dotted name instead of being ignored, filled in or coerced, because a run that silently used a
default cannot be told from one that asked for it.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import math
import os
import types
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from goalward.core.checks import format_value, one_line
from goalward.core.files import atomic_write

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


T = TypeVar("T", bound="DataclassInstance")


def to_json(config: DataclassInstance) -> dict[str, Any]:
    """Turns a config into plain JSON types that `from_json` reads back as an equal config.

    The values go through `from_json` once, so that equal configs give equal JSON (an int in a
    float field becomes a float) and a config that could not be read back is never written.
    """
    kind = type(config)
    exact = from_json(kind, _plain(config))
    if exact != config:
        raise ValueError(
            f"{kind.__name__}: its JSON reads back as another config; a list in place of a tuple?"
        )
    plain = _plain(exact)
    assert isinstance(plain, dict)
    return plain


def from_json(cls: type[T], data: Any, *, where: str = "") -> T:
    """Builds a `cls` from parsed JSON, refusing whatever does not fit exactly.

    Args:
        cls: a dataclass; every field (but those with `init=False`) must be present in `data`.
        data: what `json.loads` returned.
        where: dotted path of `data` inside the whole, put in front of every message.

    Raises:
        ValueError: one line, starting with the dotted path of the offending key.
        TypeError: `cls` has an annotation that configs do not support (a bug in `cls`).
    """
    if not isinstance(data, dict):
        raise _mismatch(where or cls.__name__, "an object", data)
    names = [field.name for field in dataclasses.fields(cls) if field.init]
    _check_keys(names, data, where)
    hints = _hints(cls)
    values = {name: _decode(hints[name], data[name], _join(where, name)) for name in names}
    try:
        return cls(**values)
    except ValueError as error:
        raise ValueError(one_line(f"{where}: {error}" if where else str(error))) from error


def require_types(config: DataclassInstance) -> None:
    """Refuses a config made in Python with a value that JSON would not have got into it.

    To be called first in `__post_init__`: then NaN, a fraction for a whole number or a string
    cannot slip through comparisons.

    Raises:
        ValueError: one line, starting with the field's name.
    """
    hints = _hints(type(config))
    for field in dataclasses.fields(config):
        value, kind = getattr(config, field.name), hints[field.name]
        if dataclasses.is_dataclass(value):  # it was checked when it was made
            if type(value) not in (get_args(kind) or (kind,)):
                raise _mismatch(field.name, str(kind), value)
        elif _decode(kind, _plain(value), field.name) != value:
            raise _mismatch(field.name, str(kind), value)  # a list in place of a tuple, say


def require_at_least(config: DataclassInstance, least: int, *names: str) -> None:
    """Refuses a config with a number below `least` in one of the named fields."""
    for name in names:
        if (value := getattr(config, name)) < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")


def require_at_most(config: DataclassInstance, most: int, *names: str) -> None:
    """Refuses a config with a number so large that it can only be a mistake."""
    for name in names:
        if (value := getattr(config, name)) > most:
            raise ValueError(f"{name} must be at most {most}, got {value}")


def override(config: T, assignments: Sequence[str]) -> T:
    """A copy of a config with some values replaced, each given as `dotted.name=value`.

    Values are JSON; what is not JSON is taken as text, so that `kind=vicreg` needs no quotes.

    Raises:
        ValueError: an assignment without "=", an unknown name or an unfitting value.
    """
    data = to_json(config)
    if isinstance(assignments, str | bytes) or not isinstance(assignments, Sequence):
        raise _mismatch("assignments", "a list of NAME=VALUE", assignments)
    for assignment in assignments:
        if not isinstance(assignment, str):
            raise _mismatch("assignments", "NAME=VALUE", assignment)
        name, equals, text = assignment.partition("=")
        *parents, last = name.split(".")
        if not equals or not last:
            example = "NAME=VALUE such as schedule.lr=1e-4"
            raise ValueError(f"expected {example}, got {format_value(assignment)}")
        place = data
        for parent in parents:
            place = place.get(parent, {}) if isinstance(place, dict) else {}
        if not isinstance(place, dict) or last not in place:
            names = ", ".join(sorted(_leaves(data)))
            raise ValueError(f"{_name(name)}: no such value; there are: {names}")
        place[last] = _json_or_text(text)
    return from_json(type(config), data)


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # too many digits or brackets, beside what is no JSON
        return text


def canonical(data: Any) -> str:
    """The one JSON text of `data`: sorted keys, no spaces; NaN and infinities are refused."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def content_id(data: Any) -> str:
    """The first 16 hex digits of the SHA-256 of `canonical(data)`."""
    return hashlib.sha256(canonical(data).encode()).hexdigest()[:16]


def read_json(path: str | os.PathLike[str]) -> Any:
    """Parses a JSON file, refusing what `json` lets pass: repeated keys, NaN and infinities."""
    return _parse(Path(path).read_bytes(), path)


def read_config(cls: type[T], path: str | os.PathLike[str]) -> T:
    """Reads a config written by `write_json(path, to_json(config))`; messages name the file."""
    return parse_config(cls, Path(path).read_bytes(), path)


def parse_config(cls: type[T], text: bytes, source: str | os.PathLike[str]) -> T:
    """Reads a config from JSON text that was found in the file `source`."""
    if not isinstance(text, bytes):
        raise _mismatch(os.fspath(source), "bytes", text)
    data = _parse(text, source)
    try:
        return from_json(cls, data)
    except ValueError as error:
        raise ValueError(one_line(f"{os.fspath(source)}: {error}")) from error


def _parse(text: bytes, source: str | os.PathLike[str]) -> Any:
    try:
        return json.loads(
            text.decode(),
            object_pairs_hook=_unique_keys,
            parse_constant=_finite,
            parse_float=_finite,
        )
    except (ValueError, RecursionError) as error:
        raise ValueError(one_line(f"{os.fspath(source)}: not valid JSON: {error}")) from error


def write_json(path: str | os.PathLike[str], data: Any) -> None:
    """Writes JSON so that after a crash `path` holds either the old text or all of the new."""
    path = Path(path)
    text = json.dumps(data, indent=2, allow_nan=False) + "\n"
    # The name is unique because two processes may write the same file; the last one wins whole.
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def differences(old: Any, new: Any) -> str:
    """The first three dotted keys in which two JSON objects differ, for a message."""
    before, after = _leaves(old), _leaves(new)
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    pairs = ((key, _short(before.get(key, "-")), _short(after.get(key, "-"))) for key in keys[:3])
    format_value = ", ".join(f"{key}: {was} -> {now}" for key, was, now in pairs)
    return format_value + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (field.name for field in dataclasses.fields(value) if field.init)
        return {name: _plain(getattr(value, name)) for name in fields}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _leaves(value: Any, where: str = "") -> dict[str, str]:
    if not isinstance(value, dict) or (where and not value):
        return {where: canonical(value)}
    leaves: dict[str, str] = {}
    for key, item in value.items():
        leaves |= _leaves(item, _join(where, key))
    return leaves


@cache
def _hints(cls: type[DataclassInstance]) -> dict[str, Any]:
    return get_type_hints(cls)


def _check_keys(names: list[str], data: dict[Any, Any], where: str) -> None:
    # Unknown keys first: a misspelt key is also a missing one, and its own name helps more.
    for key in data:
        if key not in names:
            near = difflib.get_close_matches(_name(key), names, n=1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{_join(where, key)}: unknown key{hint}")
    for name in names:
        if name not in data:
            raise ValueError(f"{_join(where, name)}: missing key")


def _decode(kind: Any, value: Any, where: str) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return from_json(kind, value, where=where)
    if kind in (bool, int, float, str):
        return _scalar(kind, value, where)
    if origin is Literal:
        return _literal(args, value, where)
    if origin in (Union, types.UnionType):
        return _union(args, value, where)
    if origin is tuple:
        return _tuple(args, value, where)
    if origin is dict and args[0] is str:
        return _dict(args[1], value, where)
    raise TypeError(f"{where}: configs do not support the annotation {kind}")


def _scalar(kind: type, value: Any, where: str) -> Any:
    if kind is float:
        return _float(value, where)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise _mismatch(where, kind.__name__, value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise _mismatch(where, "a whole number of 64 bits", value)
    return value


def _float(value: Any, where: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _mismatch(where, "float", value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _mismatch(where, "a finite float", value)
    return number + 0.0  # -0.0 equals 0.0, so it must not hash differently


def _literal(choices: tuple[Any, ...], value: Any, where: str) -> Any:
    # Compared with their types, since True == 1 == 1.0.
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise _mismatch(where, f"one of {', '.join(map(repr, choices))}", value)
    return value


def _union(members: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in members:
        return None
    others = [member for member in members if member is not type(None)]
    if len(others) == 1:
        return _decode(others[0], value, where)
    results = [_attempt(member, value, where) for member in others]
    fitting = [result for result in results if not isinstance(result, ValueError)]
    if not fitting:
        meant = [
            result
            for member, result in zip(others, results, strict=True)
            if isinstance(value, dict) and _names(member) == {*value}
        ]
        if len(meant) == 1:  # it is this one, with a wrong value
            raise meant[0]
        errors = "; ".join(map(str, results))
        raise ValueError(f"{where}: fits none of its {len(others)} types ({errors})")
    if any(other != fitting[0] for other in fitting):
        raise TypeError(f"{where}: ambiguous union, tell its members apart by a Literal field")
    return fitting[0]


def _names(kind: Any) -> set[str]:
    return {f.name for f in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()


def _attempt(kind: Any, value: Any, where: str) -> Any:
    try:
        return _decode(kind, value, where)
    except ValueError as error:
        return error


def _tuple(args: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _mismatch(where, "a list", value)
    if len(args) == 2 and args[1] is Ellipsis:
        args = (args[0],) * len(value)
    if len(value) != len(args):
        raise ValueError(f"{where}: expected {len(args)} items, got {len(value)}")
    pairs = enumerate(zip(args, value, strict=True))
    return tuple(_decode(kind, item, f"{where}[{i}]") for i, (kind, item) in pairs)


def _dict(kind: Any, value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _mismatch(where, "an object", value)
    for key in value:
        if not isinstance(key, str):
            raise _mismatch(where, "str keys", key)
    return {key: _decode(kind, item, _join(where, key)) for key, item in value.items()}


def _mismatch(where: str, expected: str, value: Any) -> ValueError:
    return ValueError(
        f"{where}: expected {expected}, got {format_value(value)} ({type(value).__name__})"
    )


def _join(where: str, key: Any) -> str:
    return f"{where}.{_name(key)}" if where else _name(key)


def _name(key: Any) -> str:
    return key if isinstance(key, str) and key.isprintable() else format_value(key)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"key {key!r} appears twice")
        result[key] = value
    return result


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number
