"""`goalward run`: from nothing to the table, and nothing twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from goalward import cli
from goalward.control.act import load_controller
from goalward.core.config import read_config
from goalward.evaluation.pairs import load_pairs
from goalward.world.train import WorldReport
from test_cli import refusal

Capture = pytest.CaptureFixture[str]


def written(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_task_runs_from_nothing_to_the_table_and_is_not_run_twice(
    capsys: Capture, tmp_path: Path
) -> None:
    folder = tmp_path / "two-room"
    run = ["run", "two-room", "--preset", "smoke", "--pairs", "2", "--out", str(folder)]
    run += ["--device", "cpu"]
    assert cli.main([*run, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["folder"] == str(folder)
    assert [m["method"] for m in facts["methods"]] == ["gc-idm", "cem", "random"]
    assert all(m["rate"]["count"] == 2 for m in facts["methods"])
    assert facts["speed_up"]["gc-idm"]["plan"] > facts["speed_up"]["gc-idm"]["decision"] > 1
    assert facts["speed_up"]["cem"] == {"decision": 1.0, "plan": 1.0}
    assert [Path(path).suffix for path in facts["pictures"]] == [".png", ".gif"]
    goals = load_pairs(folder / "evaluation" / "pairs.npz").attempts
    controller = load_controller(folder / "controller" / "best.safetensors", device="cpu")
    controller.reset(goals[0].goal_frame, budget=50)
    assert controller.act(goals[1].goal_frame).shape == (2,)

    probes = read_config(WorldReport, folder / "world" / "report.json").quality.probes
    assert probes.linear and not probes.network  # which would take longer than the training

    before = written(folder)
    assert cli.main(run) == 0
    shown = capsys.readouterr().out
    assert facts["pairs"] in shown and str(folder / "controller") in shown and "faster" in shown
    assert written(folder) == before


def test_more_pairs_than_the_held_out_episodes_hold_are_refused_before_any_training(
    smoke_runs: Path, capsys: Capture
) -> None:
    folder = smoke_runs / "smoke" / "two-room"
    for made in ("world", "latents", "controller-42"):
        shutil.rmtree(folder / made)
    run = ["run", "two-room", "--preset", "smoke", "--pairs", "1000", "--out", str(folder)]
    assert "pairs" in refusal(capsys, *run)
    assert not list(folder.glob("world*"))


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [("--controller", "cme", "'cme' is neither one of"), ("--device", "quantum", "quantum")],
)
def test_unknown_methods_and_devices_are_refused_before_anything_is_made(
    tmp_path: Path, capsys: Capture, flag: str, value: str, said: str
) -> None:
    run = ["run", "two-room", "--preset", "smoke", "--out", str(tmp_path / "new"), flag, value]
    assert said in refusal(capsys, *run)
    assert not list(tmp_path.iterdir())
