"""Configs survive JSON exactly, and whatever does not fit is refused by its dotted name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goalward.core.config import (
    NonNegative,
    Positive,
    canonical,
    check_values,
    config,
    content_id,
    differences,
    from_json,
    override,
    read_config,
    to_json,
    write_json,
)

SRC = Path(__file__).resolve().parents[2] / "src"


@config
class Encoder:
    width: Positive = 8
    dropout: float = 0.0
    kind: Literal["vit", "cnn", 3] = "vit"


@config
class Linear:
    type: Literal["linear"] = "linear"
    steps: int = 1


@config
class Cosine:
    type: Literal["cosine"] = "cosine"
    steps: int = 1


@config
class Config:
    seed: int = 0
    name: str = "run"
    fast: bool = False
    limit: float | None = None
    encoder: Encoder = field(default_factory=Encoder)
    extra: Encoder | None = None
    sizes: tuple[int, ...] = ()
    span: tuple[int, str] = (1, "a")
    weights: dict[str, float] = field(default_factory=dict)
    heads: tuple[Encoder, ...] = ()
    schedule: Linear | Cosine | None = None
    level: int | str = 0

    def __post_init__(self) -> None:
        if self.fast and self.limit:
            raise ValueError("fast goes without a limit")


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
ENCODERS = st.builds(
    Encoder,
    width=st.integers(1, 2**63 - 1),
    dropout=FLOATS | st.integers(-9, 9),
    kind=st.sampled_from(["vit", "cnn", 3]),
)
CONFIGS = st.builds(
    Config,
    seed=INTEGERS,
    name=st.text(),
    fast=st.just(False),
    limit=st.none() | FLOATS,
    encoder=ENCODERS,
    extra=st.none() | ENCODERS,
    sizes=st.lists(INTEGERS).map(tuple),
    span=st.tuples(INTEGERS, st.text()),
    weights=st.dictionaries(st.text(), FLOATS, max_size=3),
    heads=st.lists(ENCODERS, max_size=2).map(tuple),
    schedule=st.none() | st.builds(Linear) | st.builds(Cosine),
    level=INTEGERS | st.text(),
)


KINDS = "encoder.kind must be 'vit', 'cnn' or 3, got "
WIDE = {"width": 9, "dropout": 0.5, "kind": "vit"}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The JSON of the default Config with the value at a dotted path replaced."""
    data = to_json(Config(limit=1.0, schedule=Cosine()))
    *parents, last = path.split(".")
    inner: dict[str, Any] = data
    for name in parents:
        inner = inner[name]
    inner[last] = value
    return data


@given(CONFIGS)
def test_a_config_survives_json_and_keeps_its_id(config: Config) -> None:
    again = from_json(Config, json.loads(canonical(to_json(config))))
    assert again == config
    assert content_id(to_json(again)) == content_id(to_json(config))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("encoder.width", "a", "encoder.width must be a whole number, got 'a'"),
        ("encoder.width", True, "encoder.width must be a whole number, got True"),
        ("encoder.width", 8.0, "encoder.width must be a whole number, got 8.0"),
        ("encoder.dropout", False, "encoder.dropout must be a number, got False"),
        ("encoder.dropout", "0.5", "encoder.dropout must be a number, got '0.5'"),
        ("limit", float("nan"), "limit must be a finite number, got nan"),
        ("seed", None, "seed must be a whole number, got None"),
        ("name", 3, "name must be a string, got 3"),
        ("fast", 1, "fast must be a boolean, got 1"),
        ("encoder.kind", "resnet", "encoder.kind must be 'vit', 'cnn' or 3, got 'resnet'"),
        ("encoder.kind", 3.5, "encoder.kind must be 'vit', 'cnn' or 3, got 3.5"),
        ("encoder", [], "encoder must be an object, got []"),
        ("extra", 1, "extra must be an object, got 1"),
        ("sizes", 3, "sizes must be a list, got 3"),
        ("sizes", [1, "b"], "sizes[1] must be a whole number, got 'b'"),
        ("span", [1], "span[1]: missing key"),
        ("span", ["a", 1], "span[0] must be a whole number, got 'a'"),
        ("weights", [], "weights must be an object, got []"),
        ("weights", {"a": "b"}, "weights.a must be a number, got 'b'"),
        ("weights", {"a\nb": None}, "weights.'a\\nb' must be a number, got None"),
        ("encoder.width", 0, "encoder.width must be at least 1, got 0"),
        ("encoder.width", 2**63, f"encoder.width must be at most {2**63 - 1}, got {2**63}"),
        ("fast", True, "fast goes without a limit"),
        ("schedule.type", "step", "schedule.type must be 'linear' or 'cosine', got 'step'"),
        ("encoder.kind", "vitt", KINDS + "'vitt'; did you mean 'vit'?"),
        ("schedule.steps", "a", "schedule.steps must be a whole number, got 'a'"),
        ("encoder.widht", 8, "encoder.widht: unknown key; did you mean 'width'?"),
        ("zzz", 8, "zzz: unknown key"),
        ("heads", [WIDE, {**WIDE, "width": 0}], "heads[1].width must be at least 1, got 0"),
        ("seed", "x" * 1000, f"seed must be a whole number, got '{'x' * 56}..."),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(path: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        from_json(Config, changed(path, value))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seed": "a"}, "seed must be a whole number, got 'a'"),
        ({"seeed": 1}, "seeed: unknown key; did you mean 'seed'?"),
        ({"sizes": [1]}, "sizes must be a tuple, got [1]"),
        ({"encoder": {"width": 8}}, "encoder must be Encoder, got {'width': 8}"),
        ({"weights": {1: 1.0}}, "weights[1] must be a string, got 1"),
        ({"limit": float("inf")}, "limit must be a finite number, got inf"),
        ({"fast": True, "limit": 2.0}, "fast goes without a limit"),
    ],
)
def test_a_config_made_in_python_is_checked_too(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        Config(**values)
    assert type(caught.value) is ValueError and str(caught.value) == message
    with pytest.raises(ValueError) as caught:
        replace(Config(), **values)
    assert str(caught.value) == message


class Recording:
    """Stands for a noun of the public API."""


ARGUMENTS: dict[str, Any] = {
    "episodes": Positive | None,
    "preset": Literal["paper", "cpu-long", "cpu", "smoke"],
    "source": str | os.PathLike[str] | Recording,
    "seeds": Sequence[NonNegative],
    "options": Sequence[str | Recording],
    "threads": Literal["auto"] | Positive,
    "progress": Callable[[int], None] | None,
}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("episodes", 0, "episodes must be at least 1, got 0"),
        ("episodes", True, "episodes must be a whole number, got True"),
        ("preset", "cpi", "preset must be 'paper', 'cpu-long', 'cpu' or 'smoke', got 'cpi'; did"),
        ("preset", None, "preset must be 'paper', 'cpu-long', 'cpu' or 'smoke', got None"),
        ("source", 3, "source must be a string or a path or Recording, got 3"),
        ("seeds", "ab", "seeds must be a list or tuple, got 'ab'"),
        ("seeds", (0, -1), "seeds[1] must be at least 0, got -1"),
        ("options", ("a", 3), "options[1] must be a string or Recording, got 3"),
        (
            "threads",
            "aut",
            "threads must be 'auto' or a whole number, got 'aut'; did you mean 'auto'?",
        ),
        ("progress", 3, "progress must be callable, got 3"),
    ],
)
def test_an_argument_that_does_not_fit_is_refused_by_name(
    name: str, value: Any, message: str
) -> None:
    with pytest.raises(ValueError) as caught:
        check_values(ARGUMENTS, {"seeds": (), name: value})
    assert str(caught.value).startswith(message)


def test_a_value_is_replaced_by_its_dotted_name() -> None:
    changed = override(Config(), ["encoder.width=3", "name=fast", "sizes=[1, 2]"])
    assert changed == Config(encoder=Encoder(width=3), name="fast", sizes=(1, 2))


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("encoder.width=0", "encoder.width must be at least 1, got 0"),
        ("encoder.widht=3", "unknown setting 'encoder.widht'; did you mean 'encoder.width'?"),
        (
            "zzz=3",
            "unknown setting 'zzz'; known settings: encoder.dropout, encoder.kind,",
        ),
        ("seed", "expected NAME=VALUE such as schedule.lr=1e-4, got 'seed'"),
        ("seed=" + "9" * 30, "seed must be a whole number, got '" + "9" * 30),
        ("seed=NaN", "seed must be a whole number, got 'NaN'"),
    ],
)
def test_an_override_that_does_not_fit_is_refused(assignment: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        override(Config(), [assignment])
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("path", ["seed", "limit", "weights", "encoder.width"])
def test_a_missing_key_is_refused_although_it_has_a_default(path: str) -> None:
    data = changed(path, None)
    *parents, last = path.split(".")
    del (data[parents[0]] if parents else data)[last]
    with pytest.raises(ValueError, match=f"^{path}: missing key$"):
        from_json(Config, data)


@dataclass(frozen=True)
class Plain:
    count: int
    encoder: Encoder


def test_a_plain_dataclass_is_read_as_strictly() -> None:
    plain = Plain(count=1, encoder=Encoder())
    assert from_json(Plain, to_json(plain)) == plain
    with pytest.raises(ValueError, match="count must be a whole number"):
        from_json(Plain, {**to_json(plain), "count": "1"})
    with pytest.raises(AssertionError, match="reads back as another config"):
        to_json(Plain(count=1, encoder=to_json(Encoder())))  # type: ignore[arg-type]


def test_equal_configs_have_one_id() -> None:
    whole = Config(encoder=Encoder(dropout=0), weights={"a": 1, "b": -0.0})
    exact = Config(encoder=Encoder(dropout=0.0), weights={"b": 0.0, "a": 1.0})
    assert whole == exact
    assert content_id(to_json(whole)) == content_id(to_json(exact))


def test_canonical_text_and_id_are_what_they_have_always_been() -> None:
    assert canonical({"b": [1, 2.0], "a": None}) == '{"a":null,"b":[1,2.0]}'
    # printf '{"a":1}' | sha256sum
    assert content_id({"a": 1}) == "015abd7f5cc57a2d"
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical({"a": float("nan")})


@pytest.mark.parametrize("seal", [False, True])
def test_a_written_config_reads_back_and_leaves_no_other_file(tmp_path: Path, seal: bool) -> None:
    config = Config(name="é\U0001f600", sizes=(1, 2))
    write_json(tmp_path / "c.json", {"old": 1})
    write_json(tmp_path / "c.json", to_json(config), seal=seal)
    assert read_config(Config, tmp_path / "c.json", seal=seal) == config
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"seed": 1', "not valid JSON"),
        (b'{"seed": 1, "seed": 2}', "key 'seed' appears twice"),
        (b'{"seed": NaN}', "NaN is not a finite number"),
        (b'{"seed": 9223372036854775808}', "9223372036854775808 is not a whole number of 64 bits"),
        (b'{"limit": 1e999}', "1e999 is not a finite number"),
        (b"\xff", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"sed": 1}', "sed: unknown key; did you mean 'seed'?"),
    ],
)
def test_a_bad_file_is_refused_in_one_line_that_names_it(
    tmp_path: Path, text: bytes, message: str
) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(text)
    with pytest.raises(ValueError) as caught:
        read_config(Config, path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_differences_name_three_keys_and_count_the_rest() -> None:
    old = {"a": {"b": 1, "c": [1]}, "d": "x" * 80, "gone": None, "same": {}}
    new = {"a": {"b": 2, "c": [1, 2]}, "d": "x" * 79 + "y", "same": {}}
    assert differences(old, new).startswith("a.b: 1 -> 2, a.c: [1] -> [1,2], d: ")
    assert differences(old, new).endswith(" and 1 more")
    assert differences({"gone": None}, {}) == "gone: null -> -"


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        ("verify, core.artifacts", "{'numpy', 'torch', 'h5py', 'filelock'}"),
        ("array_files, core.figures", "{'torch', 'h5py', 'matplotlib', 'pydantic'}"),
        ("files, core.checks, core.arrays, core.random", "{'torch', 'h5py', 'pydantic'}"),
    ],
)
def test_imports_are_light(modules: str, heavy: str) -> None:
    names = modules.replace("core.", "goalward.core.")
    code = f"import sys, goalward.core.{names}; print({heavy} & sys.modules.keys())"
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "set()"
