"""Strict frozen configurations, their JSON, and the content ids computed from it.

A stored configuration is complete and exact: a misspelt, missing or mistyped key is refused by its
dotted name. A run that silently used a default would look like one that asked for it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, reduce, wraps
from operator import or_
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import ConfigDict, Field, InstanceOf, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic.dataclasses import rebuild_dataclass
from pydantic_core import ErrorDetails
from typing_extensions import dataclass_transform

from goalward.core.checks import MOST, format_value, one_line, shorten
from goalward.core.config_errors import Place, did_you_mean, dotted, error_line, key_name
from goalward.core.files import CHECKSUM, EMPTY_SEAL, atomic_write, read_sealed, sealed

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
Class = TypeVar("Class", bound=type)

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

Positive = Annotated[int, Field(ge=1, le=MOST)]
NonNegative = Annotated[int, Field(ge=0, le=MOST)]
AtLeastTwo = Annotated[int, Field(ge=2, le=MOST)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]  # [0, 1)
Share = Annotated[float, Field(gt=0, le=1)]  # (0, 1]
OpenFraction = Annotated[float, Field(gt=0, lt=1)]  # (0, 1)
ClosedFraction = Annotated[float, Field(ge=0, le=1)]  # [0, 1]

STANDARD_MODULES = ("builtins", "pathlib", "os", "typing", "collections.abc")


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
            raise ValueError(error_line(made, values, error.errors())) from None

    made.__init__ = init
    return made


def check_values(types: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Checks the arguments of a function of the public API as strictly as a config's fields.

    Args:
        types: Annotations by argument, as `typing.get_type_hints(function, include_extras=True)`.
        values: Arguments, each of which has an annotation.
    """
    keys = [*values]
    try:
        _adapter(*(_checkable(types[key]) for key in keys)).validate_python((*values.values(),))
    except ValidationError as error:
        named = [
            ErrorDetails({**e, "loc": (keys[int(e["loc"][0])], *e["loc"][1:])})
            for e in error.errors()
        ]
        raise ValueError(error_line(object, values, named)) from None


def _checkable(hint: Any) -> Any:
    """An annotation in which our own classes stand for `isinstance`; others stay strict types."""
    arguments = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return reduce(or_, map(_checkable, arguments))
    if get_origin(hint) is Annotated:
        with_ranges = (_checkable(arguments[0]), *arguments[1:])
        return Annotated[with_ranges]
    if isinstance(hint, type) and not arguments and hint.__module__ not in STANDARD_MODULES:
        return InstanceOf[hint]  # type: ignore[misc]
    if get_origin(hint) is Sequence:
        return Sequence[_checkable(arguments[0])]  # type: ignore[misc]
    return hint


def to_json(config: DataclassInstance) -> dict[str, Any]:
    """Turns a config into plain JSON types that `from_json` reads back as an equal config.

    The values go through `from_json` once, so that equal configs give equal JSON and a config that
    could not be read back is never written.
    """
    exact = from_json(type(config), _plain(config))
    assert exact == config, f"{type(config).__name__}: its JSON reads back as another config"
    plain: dict[str, Any] = _plain(exact)
    return plain


def from_json(cls: type[T], data: Any) -> T:
    """Builds a `cls` from parsed JSON, in which every field must be present."""
    try:
        found: T = _adapter(cls).validate_json(json.dumps([data]))[0]
    except ValidationError as error:
        inner = [ErrorDetails({**e, "loc": e["loc"][1:]}) for e in error.errors()]
        raise ValueError(error_line(cls, data, inner)) from None
    for place in _missing(_plain(found), data):
        raise ValueError(f"{dotted(place)}: missing key")
    return found


@cache
def _adapter(*hints: Any) -> TypeAdapter[tuple[Any, ...]]:
    # In a tuple, because pydantic gives the strict settings to plain dataclasses only inside
    # another type.
    return TypeAdapter(tuple[hints], config=STRICT)  # type: ignore[valid-type]


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
        place: Any = data
        for parent in parents:
            place = place.get(parent) if isinstance(place, dict) else None
        if not isinstance(place, dict) or last not in place:
            names = _leaves(data).keys()
            hint = did_you_mean(name, names) or f"; known settings: {', '.join(sorted(names))}"
            raise ValueError(f"unknown setting {format_value(name)}{hint}")
        try:
            place[last] = _loads(text)
        except (ValueError, RecursionError):  # no JSON, or too many digits or brackets
            place[last] = text
    return from_json(type(config), data)


def canonical(data: Any) -> str:
    """The one JSON text of `data`: sorted keys, no spaces; NaN and infinities are refused."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def content_id(data: Any) -> str:
    """The first 16 hex digits of the SHA-256 of `canonical(data)`."""
    return hashlib.sha256(canonical(data).encode()).hexdigest()[:16]


def differences(old: Any, new: Any) -> str:
    """The first three dotted keys in which two JSON objects differ, for a message."""
    before, after = _leaves(old), _leaves(new)
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    pairs = ((key, shorten(before.get(key, "-")), shorten(after.get(key, "-"))) for key in keys[:3])
    text = ", ".join(f"{key}: {was} -> {now}" for key, was, now in pairs)
    return text + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")


def _leaves(value: Any, where: str = "") -> dict[str, str]:
    if not isinstance(value, dict) or (where and not value):
        return {where: canonical(value)}
    leaves: dict[str, str] = {}
    for key, item in value.items():
        leaves |= _leaves(item, f"{where}.{key_name(key)}" if where else key_name(key))
    return leaves


def write_json(path: Path, data: Any, *, seal: bool = False) -> None:
    """Writes JSON atomically; with `seal`, an object that carries the file's checksum."""
    whole = {CHECKSUM: EMPTY_SEAL, **data} if seal else data
    text = (json.dumps(whole, indent=2, allow_nan=False) + "\n").encode()
    with atomic_write(path) as temporary:
        temporary.write_bytes(sealed(text) if seal else text)


def read_json(path: Path, *, seal: bool = False) -> Any:
    """Parses a JSON file, refusing what `json` accepts: repeated keys, NaN and infinities.

    Args:
        path: The file.
        seal: Whether it was written with `seal`; any changed byte is then refused.
    """
    data = _parse(read_sealed(path) if seal else path.read_bytes(), path)
    if seal:
        del data[CHECKSUM]
    return data


def read_config(cls: type[T], path: Path, *, seal: bool = False) -> T:
    """Reads a config written by `write_json(path, to_json(config))`; messages name the file."""
    return _from_file(cls, read_json(path, seal=seal), path)


def parse_config(cls: type[T], text: bytes, source: object) -> T:
    """Reads a config from JSON text that was found in `source`, which messages name."""
    return _from_file(cls, _parse(text, source), source)


def _from_file(cls: type[T], data: Any, source: object) -> T:
    try:
        return from_json(cls, data)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error


def _parse(text: bytes, source: object) -> Any:
    try:
        return _loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(one_line(f"{source}: not valid JSON: {error}")) from error


def _loads(text: str) -> Any:
    hooks: dict[str, Any] = {"parse_float": _finite, "parse_constant": _finite}
    return json.loads(text, object_pairs_hook=_unique_keys, parse_int=_whole, **hooks)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [key for key, _ in pairs]
        raise ValueError(f"key {max(names, key=names.count)!r} appears twice")
    return result


def _whole(text: str) -> int:
    if abs(number := int(text)) > MOST:
        raise ValueError(f"{shorten(text)} is not a whole number of 64 bits")
    return number


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is not a finite number")
    return number
