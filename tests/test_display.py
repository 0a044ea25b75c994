"""What every command prints on a terminal, and as JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cli_helpers import Capture
from goalward import cli
from goalward.display import VIEWS, show
from goalward.world.metrics import OutcomeError, Probes, WorldMetrics


@pytest.fixture(name="lines")
def lines_fixture(smoke_runs: Path, tmp_path: Path) -> dict[str, tuple[list[str], str]]:
    """For each command its arguments, on a run of the preset `smoke`, and what it shows."""
    run, out = smoke_runs / "smoke" / "two-room", tmp_path / "out"
    episodes, world, latents = (str(run / name) for name in ("episodes", "world", "latents"))
    model, tables = str(run / "controller-42"), str(tmp_path / "tables")
    pairs = ["--pairs", "2", "--workers", "1"]
    bundled = ["--out", tables, "--preset", "bundled", "--tasks", "two-room", *pairs]
    return {
        "collect": (["two-room", "--out", episodes, "--preset", "smoke"], "Collected two-room"),
        "inspect": ([episodes], "solved at the start: paper"),
        "train-world": ([episodes, "--out", world, "--preset", "smoke"], "held-out loss"),
        "validate-world": ([world, episodes, "--pairs", "0"], "error of copying"),
        "convert-world": ([world, str(out / "world")], "World model"),
        "embed": ([world, episodes, "--out", latents], "Embedded"),
        "train": ([latents, "--out", str(out / "model"), "--train-steps", "2"], "Time-to-go"),
        "validate": ([model, latents, "--noise", "0.1"], "Actions with noise"),
        "export": ([model, str(tmp_path / "c.onnx")], "c.onnx"),
        "evaluate": (
            ["two-room", model, "random", "--episodes", episodes, "--out", str(out / "e"), *pairs],
            "Latency from frames to actions",
        ),
        "baselines": ([episodes, "--out", str(out / "b"), *pairs], "replay"),
        "run": (
            ["two-room", "--preset", "smoke", "--out", str(run), *pairs, "--controllers", "gc-idm"],
            "success (95%",
        ),
        "list-tasks": ([], "push-t: A round pusher"),
        "list-experiments": ([], "held-out"),
        "reproduce": (["budget", *bundled, "--run-dir", str(out / "runs")], "Budget of an episode"),
        "report": ([f"{tables}/bundled", "--out", str(out / "report")], "report.html"),
        "verify": ([str(run)], "best.safetensors"),
        "doctor": ([], "stable-worldmodel"),
    }


def test_a_simulated_world_shows_what_actions_lead_to(capsys: Capture) -> None:
    noise = OutcomeError(actions="white noise", model=0.5, copy_first=0.2, sequences=9)
    found = WorldMetrics(prediction=(), probes=Probes(), outcomes=(noise,))
    assert show("validate-world", found, as_json=False) == 0
    assert re.search(r"white noise .* 0\.5000 .* 0\.2000 .* 2\.500", capsys.readouterr().out)


def test_every_command_prints_a_table_and_one_json_document(
    lines: dict[str, tuple[list[str], str]], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goalward.world.metrics.MLP_STEPS", 20)
    assert lines.keys() == VIEWS.keys()
    for name, (arguments, shown) in lines.items():
        assert cli.main([name, *arguments]) == 0, f"{name}: {capsys.readouterr().err}"
        assert shown in " ".join(capsys.readouterr().out.split()), name
        if name != "convert-world":  # which never overwrites
            assert cli.main([name, *arguments, "--json"]) == 0, name
            streams = capsys.readouterr()
            json.loads(streams.out)
            assert streams.err == "", name
