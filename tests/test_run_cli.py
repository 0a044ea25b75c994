"""`goalward run`: from nothing to the table, and nothing twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cli_helpers import Capture, document, refusal
from goalward import cli
from goalward.core.config import read_config
from goalward.evaluation.pairs import load_pairs
from goalward.evaluation.specs import load_controller
from goalward.world.train import WorldReport


def written(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_task_runs_from_nothing_to_the_table_and_is_not_run_twice(
    capsys: Capture, tmp_path: Path
) -> None:
    folder = tmp_path / "two-room"
    run = ["run", "two-room", "--preset", "smoke", "--pairs", "2", "--out", str(folder)]
    run += ["--device", "cpu"]
    facts = document(capsys, *run)
    assert [m["method"] for m in facts["controllers"]] == ["gc-idm", "cem", "random"]
    assert all(m["rate"]["count"] == 2 for m in facts["controllers"])
    assert facts["speed_up"]["gc-idm"]["plan"] > facts["speed_up"]["gc-idm"]["decision"] > 1
    assert facts["speed_up"]["cem"] == {"decision": 1.0, "plan": 1.0}
    evaluation = Path(facts["folder"])
    assert evaluation == folder / "evaluation"
    assert {path.suffix for path in evaluation.glob("pair-0-*")} == {".png", ".gif"}
    goals = load_pairs(evaluation / "pairs.safetensors").pairs
    controller = load_controller(folder / "controller" / "best.safetensors", device="cpu")
    controller.reset(goals[0].goal_frame, budget=50)
    assert controller.act(goals[1].goal_frame).shape == (2,)

    probes = read_config(WorldReport, folder / "world" / "metrics.json").metrics.probes
    assert probes.linear and not probes.mlp  # which would take longer than the training

    before = written(folder)
    assert cli.main(run) == 0
    shown = capsys.readouterr().out
    assert facts["pairs"] in shown and "faster" in shown
    assert written(folder) == before


def test_more_pairs_than_the_held_out_episodes_hold_are_refused_before_any_training(
    smoke_runs: Path, capsys: Capture
) -> None:
    folder = smoke_runs / "smoke" / "two-room"
    for made in ("world", "latents"):
        shutil.rmtree(folder / made)
    run = ["run", "two-room", "--preset", "smoke", "--pairs", "1000", "--out", str(folder)]
    assert "pairs" in refusal(capsys, *run)
    assert not list(folder.glob("world*"))


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [("--controllers", "cme", "did you mean 'cem'"), ("--device", "quantum", "quantum")],
)
def test_unknown_controllers_and_devices_are_refused_before_anything_is_made(
    tmp_path: Path, capsys: Capture, flag: str, value: str, said: str
) -> None:
    run = ["run", "two-room", "--preset", "smoke", "--out", str(tmp_path / "new"), flag, value]
    assert said in refusal(capsys, *run)
    assert not list(tmp_path.iterdir())
