"""Values that cannot be meant, and what is asked of the answer to them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from hypothesis import strategies as st

Values = st.SearchStrategy[Any]

NAN, INFINITY = float("nan"), float("inf")
MOST = 2**63 - 1
SMALL, TINY = -1e-9, 1e-9  # just below 0, and just above
NO_VALUES = ("x", "-1", "NaN", "1e400", "[]", "{}", '"3"', "", "9" * 5000, "[" * 5000)

# No number, no array of numbers, no text, and nothing that could pass for one.
JUNK: Values = st.one_of(
    st.none(),
    st.binary(max_size=4),
    st.complex_numbers(),
    st.builds(object),
    st.dictionaries(st.integers(), st.text(max_size=3), max_size=2),
    st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=3),
    st.sampled_from(
        [
            *(Ellipsis, Decimal(3), {"a"}, [[1], [1, 2]], [None]),
            *(np.array([None, "x"], dtype=object), np.array("x"), np.datetime64("2020-01-01")),
        ]
    ),
)
TEXT: Values = st.text(max_size=8)
NO_TEXT: Values = st.one_of(JUNK, st.integers(), st.floats())
NO_NUMBER: Values = st.one_of(JUNK, TEXT)
NO_PATH: Values = st.one_of(NO_TEXT, st.just("x" * 5000))
NO_FILE: Values = st.one_of(NO_PATH, TEXT.filter(lambda text: "\n" not in text))
NOT_FINITE: Values = st.sampled_from([NAN, INFINITY, -INFINITY, np.float32(NAN)])
GARBAGE: Values = st.one_of(st.binary(max_size=200), TEXT.map(str.encode))  # of a file


@cache
def either(*values: Values) -> Values:
    """One of them; remembered, because to make a strategy takes longer than to draw from it."""
    return st.one_of(*values)


@cache
def no_whole_number(least: int = 1, most: int | None = MOST) -> Values:
    """Anything but a whole number in the range."""
    outside = [st.integers(max_value=least - 1)]
    if most is not None:
        outside.append(st.integers(min_value=most + 1))
    return st.one_of(NO_NUMBER, st.floats(), st.booleans(), *outside)


@cache
def no_float(too_small: float | None = None, too_large: float | None = None) -> Values:
    """Anything but a finite number between the two, which are bad themselves."""
    outside = [NO_NUMBER, NOT_FINITE, st.booleans(), st.just(10**400)]
    if too_small is not None:
        outside.append(st.floats(max_value=too_small, allow_infinity=False))
        outside.append(st.integers(max_value=int(too_small) - 1))
    if too_large is not None:
        outside.append(st.floats(min_value=too_large, allow_infinity=False))
        outside.append(st.integers(min_value=int(too_large) + 1))
    return st.one_of(*outside)


@cache
def not_none(values: Values) -> Values:
    """All of them but None, which may be left out."""
    return values.filter(lambda value: value is not None)


@cache
def no_shape(*shape: int | str, most: int = 4) -> st.SearchStrategy[list[int]]:
    """Sizes of another rank, or that differ where a number is asked for."""

    def fits(sizes: list[int]) -> bool:
        same = len(sizes) == len(shape)
        return same and all(w == s for w, s in zip(shape, sizes, strict=True) if isinstance(w, int))

    near = [st.just(w) if isinstance(w, int) else st.integers(1, most) for w in shape]
    off_by_one = st.tuples(*near).map(list).flatmap(_with_another_size)
    anything = st.lists(st.integers(0, most), max_size=5)
    return st.one_of(off_by_one, anything).filter(lambda sizes: not fits(sizes))


def _with_another_size(sizes: list[int]) -> st.SearchStrategy[list[int]]:
    places = st.integers(0, len(sizes))
    return st.tuples(places, st.integers(0, 3)).map(
        lambda at: [*sizes[: at[0]], at[1], *sizes[at[0] + 1 :]]
    )


DTYPES = ("float16", "float64", "int64", "int8", "bool", "complex64")


@cache
def no_tensor(*shape: int | str, dtype: str = "float32", finite: bool = False) -> Values:
    """Anything but a tensor of this type and shape, or one with NaN if it must be finite."""
    good = [w if isinstance(w, int) else 2 for w in shape]
    others = [name for name in (*DTYPES, "float32") if name != dtype]
    bad = [
        NO_NUMBER,
        st.floats(),
        no_shape(*shape).map(lambda sizes: torch.zeros(sizes, dtype=getattr(torch, dtype))),
        st.sampled_from(others).map(lambda name: torch.zeros(good, dtype=getattr(torch, name))),
        st.just(np.zeros(good, dtype=dtype)),
    ]
    if finite:
        bad.append(NOT_FINITE.map(lambda value: torch.full(good, float(value))))
    return st.one_of(*bad)


@cache
def no_array(*shape: int | str) -> Values:
    """Anything but finite numbers of this shape."""
    good = [w if isinstance(w, int) else 4 for w in shape]
    return st.one_of(
        NO_NUMBER,
        no_shape(*shape).map(np.zeros),
        st.sampled_from(["bool", "complex64", "U3", "object", "M8[s]"]).map(
            lambda name: np.zeros(good, dtype=name)
        ),
        NOT_FINITE.map(lambda value: np.full(good, value)),
    )


@cache
def no_frames() -> Values:
    """Anything but uint8 frames, one or a batch."""
    good = (3, 16, 16, 3)
    shapes = st.one_of(
        st.lists(st.integers(0, 4), max_size=6).filter(lambda s: len(s) not in (3, 4)),
        st.tuples(st.integers(1, 4), st.integers(1, 4), st.sampled_from([0, 1, 2, 4])),
        st.sampled_from([(0, 16, 16, 3), (3, 0, 16, 3), (3, 16, 0, 3), (16, 16)]),
    )
    return st.one_of(
        NO_NUMBER,
        st.floats(),
        shapes.map(lambda shape: np.zeros(shape, dtype=np.uint8)),
        st.sampled_from([*DTYPES, "float32", "U3", "object", "M8[s]"]).map(
            lambda name: np.zeros(good, dtype=name)
        ),
        NOT_FINITE.map(lambda value: np.full(good, value, dtype=np.float32)),
        st.integers(24, 40).map(  # as good as endless, and no byte of it is there
            lambda power: np.broadcast_to(np.uint8(0), (2**power, 16, 16, 3))
        ),
        st.sampled_from([torch.zeros(good), torch.zeros(good, requires_grad=True)]),
    )


@cache
def no_steps(number: int) -> Values:
    """Anything but a whole number of steps, or so many of them."""
    wrong = st.lists(st.integers(1, 50), max_size=6).filter(lambda v: len(v) != number)
    spoilt = st.one_of(st.integers(max_value=0), st.integers(min_value=10**9 + 1), st.just(1.5))
    return st.one_of(
        not_none(NO_NUMBER),
        spoilt,
        NOT_FINITE,
        st.booleans(),
        wrong,
        spoilt.map(lambda value: [value] + [1] * (number - 1)),
        st.just(np.ones((number, 1), dtype=np.int64)),
    )


@cache
def no_indices(limit: int, *, number: int | None = None) -> Values:
    """Anything but whole numbers in 0 .. limit - 1, or but `number` different ones."""
    outside = st.one_of(st.integers(max_value=-1), st.integers(min_value=limit))
    bad = [
        not_none(NO_NUMBER),
        st.integers(),
        st.floats(),
        st.lists(st.floats(), min_size=1, max_size=3),
        st.lists(st.booleans(), min_size=1, max_size=3),
        outside.map(lambda value: [value]),
        outside.map(lambda value: [0, value]),
        st.just(np.zeros((1, 1), dtype=np.int64)),
    ]
    if number is not None:
        inside = st.integers(0, limit - 1)
        bad.append(st.lists(inside, max_size=5).filter(lambda v: len(set(v)) != number))
    return st.one_of(*bad)


def bad_field(hint: Any, edges: tuple[Any, Any] | None, *, texts: bool) -> Values:
    """What a config's field of this annotation must refuse.

    Args:
        hint: The annotation.
        edges: The greatest value that is too small, and the least that is too large.
        texts: Whether not every text will do.
    """
    if get_origin(hint) in (Union, UnionType):
        first, *_ = (member for member in get_args(hint) if member is not NoneType)
        optional = NoneType in get_args(hint)
        return bad_field(first, edges, texts=texts).filter(lambda v: not (optional and v is None))
    if dataclasses.is_dataclass(hint):
        return st.one_of(NO_NUMBER, st.integers(), st.floats())
    if get_origin(hint) is Literal:
        return st.one_of(NO_TEXT, TEXT.filter(lambda text: text not in get_args(hint)))
    if get_origin(hint) is tuple:
        entries = st.lists(no_float(), min_size=1, max_size=3).map(tuple)
        return st.one_of(NO_NUMBER, st.just(()), st.lists(st.floats(0, 1)), entries)
    if get_origin(hint) is dict:
        return st.one_of(st.none(), TEXT, st.integers(), st.just({"a": NAN}), st.just({1: 1.0}))
    if hint is int:
        low, high = edges or (0, MOST + 1)
        return no_whole_number(low + 1, None if high is None else high - 1)
    if hint is float:  # a Decimal becomes a float
        return no_float(*(edges or (None, None))).filter(lambda v: not isinstance(v, Decimal))
    if hint is bool:
        return st.one_of(NO_NUMBER, st.integers(), st.floats())
    assert hint is str, hint
    return st.one_of(NO_TEXT, TEXT) if texts else NO_TEXT


@dataclasses.dataclass(frozen=True)
class Fields:
    """How to make a config, and where its numbers end.

    Attributes:
        good: What must be given, all of it good.
        edges: By field, the greatest value that is too small and the least that is too large;
            by default 0 and 2^63 of whole numbers, -1 of a seed, nothing of others.
        texts: Fields that do not take every text.
    """

    good: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    edges: Mapping[str, tuple[Any, Any]] = dataclasses.field(default_factory=dict)
    texts: tuple[str, ...] = ()

    def bad(self, config: type) -> st.SearchStrategy[tuple[str, Any]]:
        """A field, and a value that it must refuse."""
        hints = get_type_hints(config)
        edges = {"seed": (-1, MOST + 1), **self.edges}
        return st.one_of(
            *(
                st.tuples(
                    st.just(field.name),
                    bad_field(
                        hints[field.name], edges.get(field.name), texts=field.name in self.texts
                    ),
                )
                for field in dataclasses.fields(config)
            )
        )


def refused(call: Callable[[], object], named: str) -> None:
    """The call must raise a plain `ValueError` of one line that names what is wrong."""
    try:
        found = call()
    except ValueError as error:
        message = str(error)
        assert type(error) is ValueError, f"{type(error).__name__}: {message}"
        assert re.search(named, message), f"{message!r} does not say {named}"
        assert "\n" not in message and len(message) < 1000, message
        return
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}") from error
    raise AssertionError(f"accepted, with the answer {found!r}")


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
