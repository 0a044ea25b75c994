"""A changed byte in any file of a run is found before a result is printed."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import goalward as gw
from cli_helpers import Capture, refusal
from goalward import cli

FLIPS = {"fast": 18, "all": 60}
KINDS = ("episodes", "world", "latents", "controller-42", "evaluation", "controller.onnx")


@pytest.fixture(name="run")
def run_fixture(smoke_runs: Path) -> Path:
    """Everything that a run of the preset `smoke` writes, and an exported controller."""
    folder = smoke_runs / "smoke" / "two-room"
    model = folder / "controller-42"
    gw.export(model, folder / "controller.onnx")
    gw.evaluate(
        "two-room", [model], folder / "evaluation", episodes=folder / "episodes", pairs=2, workers=1
    )
    return folder


def commands(run: Path, new: Path) -> dict[str, tuple[str, ...]]:
    """The command that uses each kind of file; none of them writes into the run."""
    data, model = str(run / "episodes"), str(run / "controller-42")
    embed = ("embed", str(run / "world"), data, "--out", str(new))
    evaluate = ("evaluate", "two-room", "--episodes", data, "--pairs", "2", "--workers", "1")
    return {
        "episodes": embed,
        "world": embed,
        "latents": ("validate", model, str(run / "latents")),
        "controller-42": ("validate", model, str(run / "latents")),
        "evaluation": (*evaluate, "--out", str(run / "evaluation"), model),
        "controller.onnx": (*evaluate, "--out", str(new), str(run / "controller.onnx")),
    }


def stored(run: Path, kind: str) -> list[Path]:
    """The files of a kind that hold data; pictures and locks do not."""
    files = [path for path in (run / kind, *(run / kind).rglob("*")) if path.is_file()]
    return sorted(f for f in files if f.suffix not in (".png", ".gif", ".lock"))


@pytest.mark.parametrize("number", ["fast", pytest.param("all", marks=pytest.mark.slow)])
def test_a_changed_byte_is_found_before_a_result_is_printed(
    number: str, run: Path, tmp_path: Path, capsys: Capture
) -> None:
    rng = random.Random(0)
    for flip in range(FLIPS[number]):
        kind = KINDS[flip % len(KINDS)]
        path = rng.choice(stored(run, kind))
        with changed_byte(path, rng, flip):
            line = refusal(capsys, *commands(run, tmp_path / f"new-{flip}")[kind], "--json")
            assert str(run) in line, f"{path}: {line}"
            assert cli.main(["verify", str(run), "--json"]) == 1
            assert path.name in capsys.readouterr().out


@contextmanager
def changed_byte(path: Path, rng: random.Random, number: int) -> Iterator[None]:
    """A file with another byte for a while; each content has a time of its own."""
    data = path.read_bytes()
    changed = bytearray(data)
    changed[rng.randrange(len(data))] ^= rng.randrange(1, 256)
    path.write_bytes(bytes(changed))
    os.utime(path, (2 * number, 2 * number))
    yield
    path.write_bytes(data)
    os.utime(path, (2 * number + 1, 2 * number + 1))


def test_the_same_commands_succeed_on_files_as_they_were_written(
    run: Path, tmp_path: Path, capsys: Capture
) -> None:
    for kind, command in commands(run, tmp_path / "new").items():
        assert cli.main([*command, "--json"]) == 0, kind
    assert cli.main(["verify", str(run)]) == 0
