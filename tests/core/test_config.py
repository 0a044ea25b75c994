"""Configs survive JSON exactly, and whatever does not fit is refused by its dotted name."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError, dataclass, field, replace
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
    read_json,
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


KINDS = "encoder.kind: expected 'vit', 'cnn' or 3, got "


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
        ("encoder.kind", "resnet", "encoder.kind: expected 'vit', 'cnn' or 3, got 'resnet'"),
        ("encoder.kind", 3.5, "encoder.kind: expected 'vit', 'cnn' or 3, got 3.5 (float)"),
        ("encoder", [], "encoder: expected an object, got [] (list)"),
        ("extra", 1, "extra: expected an object, got 1 (int)"),
        ("sizes", 3, "sizes: expected a list, got 3 (int)"),
        ("sizes", [1, "b"], "sizes[1]: expected int, got 'b' (str)"),
        ("span", [1], "span[1]: missing"),
        ("span", ["a", 1], "span[0]: expected int, got 'a' (str)"),
        ("weights", [], "weights: expected an object, got [] (list)"),
        ("weights", {"a": "b"}, "weights.a: expected float, got 'b' (str)"),
        ("weights", {"a\nb": None}, "weights.'a\\nb': expected float, got None (NoneType)"),
        ("encoder.width", 0, "encoder.width must be at least 1, got 0"),
        ("encoder.width", 2**63, f"encoder.width must be at most {2**63 - 1}, got {2**63}"),
        ("fast", True, "fast goes without a limit"),
        ("schedule.type", "step", "schedule.type: expected 'linear' or 'cosine', got 'step'"),
        ("encoder.kind", "vitt", KINDS + "'vitt', did you mean 'vit'?"),
        ("schedule.steps", "a", "schedule.steps: expected int, got 'a' (str)"),
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
    with pytest.raises(ValueError, match=r"^heads\[1\]\.width must be at least 1, got 0$"):
        from_json(Config, changed("heads", [to_json(Encoder()), bad]))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seed": "a"}, "seed: expected int, got 'a' (str)"),
        ({"seeed": 1}, "seeed: unknown key, did you mean 'seed'?"),
        ({"sizes": [1]}, "sizes: expected a tuple, got [1] (list)"),
        ({"encoder": {"width": 8}}, "encoder: expected Encoder, got {'width': 8} (dict)"),
        ({"weights": {1: 1.0}}, "weights[1]: expected str, got 1 (int)"),
        ({"limit": float("inf")}, "limit: expected a finite float, got inf (float)"),
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
        ("episodes", True, "episodes: expected int, got True (bool)"),
        ("preset", "cpi", "preset: expected 'paper', 'cpu-long', 'cpu' or 'smoke', got 'cpi', did"),
        ("preset", None, "preset: expected 'paper', 'cpu-long', 'cpu' or 'smoke', got None (None"),
        ("source", 3, "source: expected a path or Recording, got 3 (int)"),
        ("seeds", "ab", "seeds: expected a list or tuple, got 'ab' (str)"),
        ("seeds", (0, -1), "seeds[1] must be at least 0, got -1"),
        ("options", ("a", 3), "options[1]: expected str or Recording, got 3 (int)"),
        ("threads", "aut", "threads: expected 'auto' or int, got 'aut', did you mean 'auto'?"),
        ("progress", 3, "progress: expected a function, got 3 (int)"),
    ],
)
def test_an_argument_that_does_not_fit_is_refused_by_name(
    name: str, value: Any, message: str
) -> None:
    with pytest.raises(ValueError) as caught:
        check_values("collect", ARGUMENTS, {"seeds": (), name: value})
    assert str(caught.value).startswith(message)


def test_arguments_that_fit_are_accepted() -> None:
    good = {"episodes": None, "source": Path("a"), "seeds": [0, 1], "options": (Recording(), "a")}
    check_values("collect", ARGUMENTS, {**good, "progress": print})
    check_values("collect", ARGUMENTS, {"source": Recording(), "seeds": (0,)})


def test_a_config_is_frozen_and_can_be_sent_to_another_process() -> None:
    config = Config(encoder=Encoder(width=3))
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(FrozenInstanceError):
        config.seed = 1  # type: ignore[misc]


def test_a_value_is_replaced_by_its_dotted_name() -> None:
    changed = override(Config(), ["encoder.width=3", "name=fast", "sizes=[1, 2]"])
    assert changed == Config(encoder=Encoder(width=3), name="fast", sizes=(1, 2))


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("encoder.width=0", "encoder.width must be at least 1, got 0"),
        ("encoder.widht=3", "encoder.widht: no such value, did you mean encoder.width?"),
        ("zzz=3", "zzz: no such value, there are: encoder.dropout, encoder.kind, encoder.width,"),
        ("seed", "expected NAME=VALUE such as schedule.lr=1e-4, got 'seed'"),
        ("seed=" + "9" * 30, "seed: expected int, got '" + "9" * 30),
        ("seed=NaN", "seed: expected int, got 'NaN' (str)"),
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


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(ValueError, match=r"^seed: expected int, got 'x+\.\.\. \(str\)$") as caught:
        from_json(Config, changed("seed", "x" * 1000))
    assert len(str(caught.value)) < 100


@dataclass(frozen=True)
class Plain:
    count: int
    encoder: Encoder


def test_a_plain_dataclass_is_read_as_strictly() -> None:
    plain = Plain(count=1, encoder=Encoder())
    assert from_json(Plain, to_json(plain)) == plain
    for wrong, message in (("1", "count: expected int"), (None, "count: expected int")):
        with pytest.raises(ValueError, match=message):
            from_json(Plain, {**to_json(plain), "count": wrong})
    with pytest.raises(ValueError, match="reads back as another config"):
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


def test_a_written_config_reads_back_and_leaves_no_other_file(tmp_path: Path) -> None:
    config = Config(name="é\U0001f600", sizes=(1, 2))
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
        (b'{"seed": 9223372036854775808}', "9223372036854775808 is not a whole number of 64 bits"),
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
