from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from goalward.core.registry import Registry


def numbers() -> Registry[Fraction]:
    ours = {"half": "test_registry:HALF", "text": "string:digits"}
    return Registry("number", ours, lambda thing: isinstance(thing, Fraction))


HALF = Fraction(1, 2)


def test_a_name_stands_for_ours_for_what_was_registered_or_for_a_place() -> None:
    known = numbers()
    assert known.get("half") is HALF
    known.register("third", Fraction(1, 3))
    assert known.get("third") == Fraction(1, 3)
    assert known.get("test_registry:HALF") is HALF
    assert known.names() == ("half", "text", "third")


def test_a_thing_in_a_users_file_is_found_by_the_files_path(tmp_path: Path) -> None:
    file = tmp_path / "my_numbers.py"
    file.write_text("from fractions import Fraction\nQUARTER = Fraction(1, 4)\n")
    assert numbers().get(f"{file}:QUARTER") == Fraction(1, 4)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("halve", "unknown number 'halve'; did you mean 'half'?"),
        (7, "unknown number 7; known numbers: half, text"),
        ("text", "string:digits is no number"),
        ("no.such.module:X", "no.such.module:X cannot be loaded: No module named 'no'"),
        ("test_registry:NONE", "test_registry:NONE cannot be loaded: module 'test_registry' has"),
        ("none.py:X", "none.py:X cannot be loaded: there is no file none.py"),
    ],
)
def test_what_stands_for_nothing_is_refused_by_name(name: str, message: str) -> None:
    with pytest.raises(ValueError) as raised:
        numbers().get(name)
    assert str(raised.value).startswith(message) and "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a/b", 3])
def test_a_name_that_could_be_a_place_or_a_setting_cannot_be_registered(name: str) -> None:
    with pytest.raises(ValueError, match="name must be"):
        numbers().register(name, HALF)


def test_a_thing_of_another_kind_cannot_be_registered() -> None:
    with pytest.raises(ValueError, match="two is no number, but 2"):
        numbers().register("two", 2)  # type: ignore[arg-type]
