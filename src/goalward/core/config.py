"""Strict frozen configurations, their JSON, and the content ids computed from it.

A stored configuration is complete and exact: a misspelt, missing or mistyped key is refused by its
dotted name. A run that silently used a default could not be told from one that asked for it.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, reduce, wraps
from operator import or_
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import ConfigDict, Field, InstanceOf, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic.dataclasses import rebuild_dataclass
from pydantic_core import ErrorDetails
from typing_extensions import dataclass_transform

from goalward.core.checks import format_value, one_line
from goalward.core.files import atomic_write

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
Class = TypeVar("Class", bound=type)
Place = tuple[int | str, ...]  # names of fields, indices of tuples, keys of dictionaries

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
LARGEST = 2**63 - 1  # whole number: more fits neither arrays nor the seed of a torch generator

Positive = Annotated[int, Field(ge=1, le=LARGEST)]
NonNegative = Annotated[int, Field(ge=0, le=LARGEST)]
AtLeastTwo = Annotated[int, Field(ge=2, le=LARGEST)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]  # [0, 1)
Share = Annotated[float, Field(gt=0, le=1)]  # (0, 1]
OpenFraction = Annotated[float, Field(gt=0, lt=1)]  # (0, 1)
ClosedFraction = Annotated[float, Field(ge=0, le=1)]  # [0, 1]

KNOWN_MODULES = ("builtins", "pathlib", "os", "typing", "collections.abc")  # of types for pydantic

# pydantic's error types, in our words
EXPECTED = {
    "int_type": "int",
    "float_type": "float",
    "finite_number": "a finite float",
    "string_type": "str",
    "bool_type": "bool",
    "dict_type": "an object",
    "dataclass_type": "an object",
    "list_type": "a list",
    "path_type": "a path",
    "callable_type": "a function",
    "sequence_str": "a list or tuple",
    "json_invalid": "Unicode text",
}
CLASSES = {"Sequence": "a list or tuple", "PathLike": "a path", "Path": "a path"}
RANGES = {
    "greater_than": "above {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "below {lt}",
    "less_than_equal": "at most {le}",
}
UNKNOWN, MISSING, OTHER_CHOICE = "unexpected_keyword_argument", "missing", "literal_error"


@dataclass_transform(
    kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,)
)
def config(cls: Class) -> Class:
    """Makes a class a configuration: a frozen keyword-only dataclass that checks its values.

    Types and ranges are those of the annotations. Rules across fields go into `__post_init__`,
    which raises `ValueError`. `dataclasses.replace` checks again.
    """
    made: Any = pydantic_dataclass(frozen=True, kw_only=True, slots=True, config=STRICT)(cls)
    rebuild_dataclass(made)  # so that an unknown annotation is an error here, not at the first use
    checked = made.__init__

    @wraps(checked)
    def init(self: Any, **values: Any) -> None:
        try:
            checked(self, **values)
        except ValidationError as error:
            raise ValueError(_refusal(made, values, error.errors())) from None

    made.__init__ = init
    return made


def to_json(config: DataclassInstance) -> dict[str, Any]:
    """Turns a config into plain JSON types that `from_json` reads back as an equal config.

    The values go through `from_json` once, so that equal configs give equal JSON and a config that
    could not be read back is never written.
    """
    exact = from_json(type(config), _plain(config))
    if exact != config:
        raise ValueError(f"{type(config).__name__}: its JSON reads back as another config")
    plain: dict[str, Any] = _plain(exact)
    return plain


def from_json(cls: type[T], data: Any) -> T:
    """Builds a `cls` from parsed JSON, in which every field must be present."""
    try:
        (found,) = _adapter(cls).validate_json(json.dumps([data]))
    except ValidationError as error:
        inner = [ErrorDetails({**e, "loc": e["loc"][1:]}) for e in error.errors()]
        raise ValueError(_refusal(cls, data, inner)) from None
    for place in _missing(_plain(found), data):
        raise ValueError(f"{_dotted(place)}: missing key")
    return found


def override(config: T, assignments: Sequence[str]) -> T:
    """A copy of a config with some values replaced, each given as `dotted.name=value`.

    Values are JSON; what is not JSON is taken as text, so that `kind=vicreg` needs no quotes.
    """
    data = to_json(config)
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        *parents, last = name.split(".")
        if not equals or not last:
            example = "NAME=VALUE such as schedule.lr=1e-4"
            raise ValueError(f"expected {example}, got {format_value(assignment)}")
        place = data
        for parent in parents:
            place = place.get(parent, {}) if isinstance(place, dict) else {}
        if not isinstance(place, dict) or last not in place:
            names = [*_leaves(data)]
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(names))}"
            raise ValueError(f"{_name(name)}: no such value, {hint}")
        place[last] = _json_or_text(text)
    return from_json(type(config), data)


def check_values(name: str, types: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Checks the arguments of a function of the public API as strictly as a config's fields.

    Args:
        name: The function's name.
        types: Annotations by argument, as `typing.get_type_hints(function, include_extras=True)`.
        values: Arguments, each of which has an annotation.
    """
    wanted = tuple(_checkable(types[key]) for key in values)
    adapter = TypeAdapter[Any](tuple[wanted], config=STRICT)  # type: ignore[valid-type]
    try:
        adapter.validate_python(tuple(values.values()))
    except ValidationError as error:
        inner = [
            ErrorDetails({**e, "loc": ([*values][int(e["loc"][0])], *e["loc"][1:])})
            for e in error.errors()
        ]
        raise ValueError(_refusal(type(name, (), {}), dict(values), inner)) from None


def _checkable(hint: Any) -> Any:
    """An annotation in which our own classes stand for `isinstance`; others stay strict types."""
    arguments = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return reduce(or_, map(_checkable, arguments))
    if get_origin(hint) is Annotated:
        with_ranges = (_checkable(arguments[0]), *arguments[1:])
        return Annotated[with_ranges]
    if isinstance(hint, type) and not arguments and hint.__module__ not in KNOWN_MODULES:
        return InstanceOf[hint]  # type: ignore[misc]
    if get_origin(hint) in (Sequence, tuple, list):
        return get_origin(hint)[tuple(map(_checkable, arguments))]
    return hint


def canonical(data: Any) -> str:
    """The one JSON text of `data`: sorted keys, no spaces; NaN and infinities are refused."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def content_id(data: Any) -> str:
    """The first 16 hex digits of the SHA-256 of `canonical(data)`."""
    return hashlib.sha256(canonical(data).encode()).hexdigest()[:16]


def read_json(path: str | os.PathLike[str]) -> Any:
    """Parses a JSON file, refusing what `json` accepts: repeated keys, NaN and infinities."""
    return _parse(Path(path).read_bytes(), path)


def read_config(cls: type[T], path: str | os.PathLike[str]) -> T:
    """Reads a config written by `write_json(path, to_json(config))`; messages name the file."""
    return parse_config(cls, Path(path).read_bytes(), path)


def parse_config(cls: type[T], text: bytes, source: str | os.PathLike[str]) -> T:
    """Reads a config from JSON text that was found in the file `source`."""
    data = _parse(text, source)
    try:
        return from_json(cls, data)
    except ValueError as error:
        raise ValueError(f"{os.fspath(source)}: {error}") from error


def write_json(path: str | os.PathLike[str], data: Any) -> None:
    """Writes JSON so that after a crash `path` holds either the old text or all of the new."""
    text = json.dumps(data, indent=2, allow_nan=False) + "\n"
    with atomic_write(Path(path)) as temporary:
        temporary.write_text(text, encoding="utf-8")


def differences(old: Any, new: Any) -> str:
    """The first three dotted keys in which two JSON objects differ, for a message."""
    before, after = _leaves(old), _leaves(new)
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    pairs = ((key, _short(before.get(key, "-")), _short(after.get(key, "-"))) for key in keys[:3])
    text = ", ".join(f"{key}: {was} -> {now}" for key, was, now in pairs)
    return text + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")


def _parse(text: bytes, source: str | os.PathLike[str]) -> Any:
    try:
        return _loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(one_line(f"{os.fspath(source)}: not valid JSON: {error}")) from error


def _loads(text: str) -> Any:
    return json.loads(
        text,
        object_pairs_hook=_unique_keys,
        parse_int=_whole,
        parse_float=_finite,
        parse_constant=_finite,
    )


def _json_or_text(text: str) -> Any:
    try:
        return _loads(text)
    except (ValueError, RecursionError):  # too many digits or brackets, or no JSON
        return text


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"key {key!r} appears twice")
        result[key] = value
    return result


def _whole(text: str) -> int:
    if abs(number := int(text)) > LARGEST:
        raise ValueError(f"{_short(text)} is not a whole number of 64 bits")
    return number


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is not a finite number")
    return number


@cache
def _adapter(cls: type[T]) -> TypeAdapter[tuple[T]]:
    # In a tuple, because pydantic gives the strict settings to plain dataclasses only inside
    # another type.
    return TypeAdapter(tuple[cls], config=STRICT)  # type: ignore[valid-type,arg-type]


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    # -0.0 equals 0.0, so it must not hash differently.
    return value + 0.0 if isinstance(value, float) else value


def _missing(full: Any, data: Any, place: Place = ()) -> Iterator[Place]:
    """Where `data` lacks keys of `full`, into which defaults were filled."""
    if isinstance(full, dict):
        for key, value in full.items():
            if key in data:
                yield from _missing(value, data[key], (*place, key))
            else:
                yield (*place, key)
    elif isinstance(full, list):
        for index, (value, given) in enumerate(zip(full, data, strict=True)):
            yield from _missing(value, given, (*place, index))


def _leaves(value: Any, where: str = "") -> dict[str, str]:
    if not isinstance(value, dict) or (where and not value):
        return {where: canonical(value)}
    leaves: dict[str, str] = {}
    for key, item in value.items():
        leaves |= _leaves(item, f"{where}.{_name(key)}" if where else _name(key))
    return leaves


def _refusal(cls: type, data: Any, errors: Sequence[ErrorDetails]) -> str:
    """One line about the most helpful of pydantic's errors."""
    # A union has errors for each of its types: take the type that the value resembles most.
    members: dict[Place, list[tuple[Place, ErrorDetails]]] = {}
    for error in errors:
        place, types = _place(data, error)
        members.setdefault(types, []).append((place, error))
    unlike = (UNKNOWN, MISSING, OTHER_CHOICE)
    likely = min(members.values(), key=lambda those: sum(e["type"] in unlike for _, e in those))
    # An unknown key before others: a misspelt key is also a missing one, and its name helps more.
    place, error = min(likely, key=lambda one: one[1]["type"] != UNKNOWN)
    if error["type"] == UNKNOWN:
        near = difflib.get_close_matches(str(place[-1]), _names(cls, place[:-1]), n=1)
        return f"{_dotted(place)}: unknown key" + (f", did you mean {near[0]!r}?" if near else "")
    where = _dotted(place)
    if error["type"] == "value_error":  # a rule across fields
        return one_line(
            f"{where}: {error['ctx']['error']}" if where else str(error["ctx"]["error"])
        )
    if error["type"] == MISSING:
        return f"{where}: missing" + (" key" if isinstance(place[-1], str) else "")
    if error["type"] in RANGES:
        bound = RANGES[error["type"]].format(**error["ctx"]).removesuffix(".0")
        return f"{where} must be {bound}, got {format_value(error['input'])}"
    same = [e for those in members.values() for p, e in those if p == place]
    value, kinds = error["input"], dict.fromkeys(map(_expected, same))
    if "a path" in kinds:  # what `str | Path` asks for
        kinds.pop("str", None)
    choices = re.findall(r"'([^']*)'", " ".join(kinds)) if isinstance(value, str) else []
    near = difflib.get_close_matches(value, choices, n=1) if choices else []
    found = format_value(value) + ("" if choices else f" ({type(value).__name__})")
    hint = f", did you mean {near[0]!r}?" if near else ""
    return f"{where or cls.__name__}: expected {' or '.join(kinds)}, got {found}{hint}"


def _expected(error: ErrorDetails) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "tuple_type":
        return "a tuple" if isinstance(error["input"], list) else "a list"
    if kind == OTHER_CHOICE:
        return str(context["expected"])
    if kind in ("dataclass_exact_type", "is_instance_of"):
        name = str(context.get("class_name", context.get("class")))
        return CLASSES.get(name, name)
    return EXPECTED.get(kind, error["msg"].lower())


def _place(data: Any, error: ErrorDetails) -> tuple[Place, Place]:
    """Where in the data an error is, and which types of unions it is about."""
    place: list[int | str] = []
    types: list[int | str] = []
    for step in error["loc"]:
        is_key = isinstance(data, dict) and step in data
        if is_key or (isinstance(data, list | tuple) and step in range(len(data))):
            data = data[step]
            place.append(step)
        else:
            types.append(step)
    if error["type"] == MISSING:
        place.append(types.pop())
    return tuple(place), tuple(types)


def _names(cls: type, place: Place) -> list[str]:
    """The names of the fields that can be at a place in a config."""
    found = [cls]
    for step in place:
        hints = [hints[step] for one in found if step in (hints := get_type_hints(one))]
        found = [one for hint in hints for one in _dataclasses(hint)] if hints else found
    return [field.name for one in found for field in dataclasses.fields(one)]


def _dataclasses(hint: Any) -> list[type]:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return [hint]
    return [one for argument in get_args(hint) for one in _dataclasses(argument)]


def _dotted(place: Place) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{_name(step)}" for step in place)
    return "".join(steps).removeprefix(".")


def _name(key: Any) -> str:
    return key if isinstance(key, str) and key.isprintable() else format_value(key)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


# For dataclasses that are not `@config` yet.


def require_types(config: DataclassInstance) -> None:
    """Refuses a config with a value of another type; to be called first in `__post_init__`."""
    cls = type(config)
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    try:
        _fields_adapter(cls).validate_python(tuple(values.values()))
    except ValidationError as error:
        inner = [
            ErrorDetails({**e, "loc": ([*values][int(e["loc"][0])], *e["loc"][1:])})
            for e in error.errors()
        ]
        raise ValueError(_refusal(cls, values, inner)) from None
    for name, value in values.items():
        if isinstance(value, int) and abs(value) > LARGEST:
            shown = f"{format_value(value)} ({type(value).__name__})"
            raise ValueError(f"{name}: expected a whole number of 64 bits, got {shown}")


@cache
def _fields_adapter(cls: type) -> TypeAdapter[Any]:
    hints = get_type_hints(cls)
    return TypeAdapter(tuple[tuple(hints.values())], config=STRICT)  # type: ignore[misc,arg-type]


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
