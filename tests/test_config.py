"""Configs survive JSON exactly, and whatever does not fit is refused by its dotted name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goalward.core.config import (
    canonical,
    content_id,
    differences,
    from_json,
    read_config,
    read_json,
    to_json,
    write_json,
)

SRC = Path(__file__).resolve().parents[1] / "src"


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoder:
    width: int = 8
    dropout: float = 0.0
    kind: Literal["vit", "cnn", 3] = "vit"

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"width must be >= 1, got {self.width}")


@dataclass(frozen=True, kw_only=True)
class Linear:
    type: Literal["linear"] = "linear"
    steps: int = 1


@dataclass(frozen=True, kw_only=True)
class Cosine:
    type: Literal["cosine"] = "cosine"
    steps: int = 1


@dataclass(frozen=True, kw_only=True)
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
    fast=st.booleans(),
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


def changed(path: str, value: Any) -> dict[str, Any]:
    """The JSON of the default Config with the value at a dotted path replaced."""
    data = to_json(Config())
    *parents, last = path.split(".")
    inner: dict[str, Any] = data
    for name in parents:
        inner = inner[name]
    inner[last] = value
    return data


@given(CONFIGS)
def test_a_config_survives_json(config: Config) -> None:
    assert from_json(Config, json.loads(json.dumps(to_json(config)))) == config


@given(CONFIGS)
def test_a_config_read_back_keeps_its_id(config: Config) -> None:
    again = from_json(Config, json.loads(canonical(to_json(config))))
    assert content_id(to_json(again)) == content_id(to_json(config))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("encoder.width", "a", "encoder.width: expected int, got 'a' (str)"),
        ("encoder.width", True, "encoder.width: expected int, got True (bool)"),
        ("encoder.width", 8.0, "encoder.width: expected int, got 8.0 (float)"),
        ("encoder.dropout", False, "encoder.dropout: expected float, got False (bool)"),
        ("encoder.dropout", "0.5", "encoder.dropout: expected float, got '0.5' (str)"),
        ("limit", float("nan"), "limit: expected a finite float, got nan (float)"),
        ("seed", None, "seed: expected int, got None (NoneType)"),
        ("name", 3, "name: expected str, got 3 (int)"),
        ("fast", 1, "fast: expected bool, got 1 (int)"),
        ("encoder.kind", "rnn", "encoder.kind: expected one of 'vit', 'cnn', 3, got 'rnn' (str)"),
        ("encoder.kind", 3.0, "encoder.kind: expected one of 'vit', 'cnn', 3, got 3.0 (float)"),
        ("encoder", [], "encoder: expected an object, got [] (list)"),
        ("extra", 1, "extra: expected an object, got 1 (int)"),
        ("sizes", 3, "sizes: expected a list, got 3 (int)"),
        ("sizes", [1, "b"], "sizes[1]: expected int, got 'b' (str)"),
        ("span", [1], "span: expected 2 items, got 1"),
        ("span", ["a", 1], "span[0]: expected int, got 'a' (str)"),
        ("weights", [], "weights: expected an object, got [] (list)"),
        ("weights", {"a": "b"}, "weights.a: expected float, got 'b' (str)"),
        ("weights", {"a\nb": None}, "weights.'a\\nb': expected float, got None (NoneType)"),
        ("weights", {1: 1.0}, "weights: expected str keys, got 1 (int)"),
        ("encoder.width", 0, "encoder: width must be >= 1, got 0"),
        ("encoder.widht", 8, "encoder.widht: unknown key, did you mean 'width'?"),
        ("zzz", 8, "zzz: unknown key"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(path: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        from_json(Config, changed(path, value))
    assert str(caught.value) == message


def test_errors_inside_a_tuple_of_configs_carry_the_whole_path() -> None:
    bad = {**to_json(Encoder()), "width": 0}
    with pytest.raises(ValueError, match=r"^run\.heads\[1\]: width must be >= 1, got 0$"):
        from_json(Config, changed("heads", [to_json(Encoder()), bad]), where="run")


@pytest.mark.parametrize("path", ["seed", "limit", "weights", "encoder.width"])
def test_a_missing_key_is_refused_although_it_has_a_default(path: str) -> None:
    data = changed(path, None)
    *parents, last = path.split(".")
    del (data[parents[0]] if parents else data)[last]
    with pytest.raises(ValueError, match=f"^{path}: missing key$"):
        from_json(Config, data)


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(ValueError, match=r"^seed: expected int, got 'x+\.\.\. \(str\)$") as caught:
        from_json(Config, changed("seed", "x" * 1000))
    assert len(str(caught.value)) < 100


def test_a_union_takes_the_member_that_fits_or_says_why_none_does() -> None:
    assert from_json(Config, changed("schedule", to_json(Cosine()))).schedule == Cosine()
    with pytest.raises(ValueError, match=r"^level: fits none of its 2 types \(level: expected int"):
        from_json(Config, changed("level", None))


@dataclass(frozen=True)
class Twin:
    steps: int = 1


@dataclass(frozen=True)
class OtherTwin:
    steps: int = 1


@dataclass(frozen=True)
class Ambiguous:
    either: Twin | OtherTwin


@dataclass(frozen=True)
class Unsupported:
    value: list[int]


@dataclass(frozen=True)
class IntKeys:
    value: dict[int, int]


@pytest.mark.parametrize(
    ("cls", "data", "message"),
    [
        (Unsupported, {"value": []}, "value: configs do not support the annotation list"),
        (IntKeys, {"value": {}}, "value: configs do not support the annotation dict"),
        (Ambiguous, {"either": {"steps": 1}}, "either: ambiguous union"),
    ],
)
def test_an_annotation_that_cannot_be_read_back_is_our_bug(
    cls: type[Any], data: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        from_json(cls, data)


def test_a_config_that_could_not_be_read_back_is_not_written() -> None:
    with pytest.raises(ValueError, match="limit: expected a finite float, got inf"):
        to_json(Config(limit=float("inf")))
    with pytest.raises(ValueError, match="a list in place of a tuple"):
        to_json(replace(Config(), sizes=[1, 2]))  # type: ignore[arg-type]


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


def test_a_written_config_reads_back_and_leaves_no_other_file(tmp_path: Path) -> None:
    config = Config(name="é\ud800", sizes=(1, 2))
    write_json(tmp_path / "c.json", {"old": 1})
    write_json(tmp_path / "c.json", to_json(config))
    assert read_config(Config, tmp_path / "c.json") == config
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    write_json(tmp_path / "c.json", {"old": 1})
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_json(tmp_path / "c.json", {"new": 2})
    assert read_json(tmp_path / "c.json") == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"seed": 1', "not valid JSON"),
        (b'{"seed": 1, "seed": 2}', "key 'seed' appears twice"),
        (b'{"seed": NaN}', "NaN is not a finite number"),
        (b'{"limit": 1e999}', "1e999 is not a finite number"),
        (b"\xff", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"sed": 1}', "sed: unknown key, did you mean 'seed'?"),
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


@pytest.mark.parametrize("module", ["goalward.core.config", "goalward.core.artifacts"])
def test_import_is_light(module: str) -> None:
    code = f"import sys, {module}; print({{'numpy', 'torch', 'h5py'}} & sys.modules.keys())"
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "set()"
