"""`goalward evaluate`: from the command line to rows, a table and pictures, whatever interrupts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from controller_helpers import smoke
from goalward import cli
from goalward.commands.evaluation_setup import evaluation_runs
from goalward.control.checkpoint import load_trained_idm, save_trained_idm
from goalward.control.train import train_controller
from goalward.data.splits import SplitConfig
from goalward.data.windows import ActionScaler
from goalward.evaluation.pairs import PairsConfig
from goalward.evaluation.run import prepare_pairs
from goalward.tasks import get_task
from goalward.world.checkpoint import save_world
from goalward.world.encoders import ConvConfig
from goalward.world.latents import embed
from goalward.world.lewm import LeWM, LeWMConfig, PredictorConfig
from test_cli import refusal

Capture = pytest.CaptureFixture[str]
QUICK_CEM = "cem:solver.num_samples=8,solver.num_iters=2,solver.num_elites=2"


@pytest.fixture(name="episodes", scope="module")
def episodes_fixture(dataset: Callable[[str], Path]) -> Path:
    return dataset("two-room")


@pytest.fixture(name="controller", scope="module")
def controller_fixture(tmp_path_factory: pytest.TempPathFactory, episodes: Path) -> Path:
    """A controller that was hardly trained, on a world model that was not."""
    folder = tmp_path_factory.mktemp("evaluated")
    torch.manual_seed(0)
    model = LeWM(
        LeWMConfig(
            action_dim=2,
            encoder=ConvConfig(channels=(8, 16), keypoints=8),
            latent_dim=16,
            projector_dim=16,
            predictor=PredictorConfig(depth=1, heads=2, dim_head=8, mlp_dim=16),
        )
    )
    scale = ActionScaler(mean=(0.0, 0.0), std=(1.0, 1.0))
    save_world(folder / "world", "best", model, scale)
    embed(folder / "world", episodes, folder / "latents")
    train_controller(smoke(folder / "latents", 4), folder / "latents", folder / "controller")
    return folder / "controller"


def arguments(out: Path, episodes: Path, controller: Path, *more: str) -> list[str]:
    run = ["evaluate", "two-room", "--out", str(out), "--episodes", str(episodes)]
    run += ["--model", str(controller), "--in-distribution", "--offset", "10", "--budget", "8"]
    return [*run, "--device", "cpu", "--workers", "1", "--environments", "2", *more]


def stored_rows(out: Path) -> list[dict[str, Any]]:
    texts = [path.read_text() for path in sorted((out / "results").glob("*.jsonl"))]
    rows = [json.loads(line) for text in texts for line in text.splitlines()]
    for row in rows:
        del row["batched_latency_ms"]  # the one thing that never repeats
    return sorted(rows, key=lambda row: (row["run_id"], row["pair"]))


def test_methods_are_compared_on_the_same_pairs_and_not_run_twice(
    capsys: Capture, tmp_path: Path, episodes: Path, controller: Path
) -> None:
    out = tmp_path / "e"
    run = arguments(out, episodes, controller, "--pairs", "3")
    methods = ["--controller", "gc-idm", QUICK_CEM, "random"]
    assert cli.main([*run, *methods, "--json", "--video", "1"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [m["method"] for m in facts["methods"]] == ["gc-idm", QUICK_CEM, "random"]
    assert all(m["rate"]["count"] == 3 for m in facts["methods"])
    assert facts["latency"][QUICK_CEM]["plan"] > facts["latency"][QUICK_CEM]["mean"]
    assert facts["speed_up"] == {}  # there is no CEM with the reference's settings
    assert all(Path(path).stat().st_size > 1000 for path in facts["pictures"])
    rows = stored_rows(out)
    assert len(rows) == 9 and {row["pairs"] for row in rows} == {facts["pairs"]}
    calls = {row["method"]: row["predictor_calls"] for row in rows}
    assert calls["gc-idm"] == 0 and calls[QUICK_CEM] == 8 * 2 * 5
    plans = {row["method"]: row["plans"] for row in rows}
    assert plans == {"gc-idm": None, QUICK_CEM: 1, "random": None}
    before = {path: path.stat().st_mtime_ns for path in (out / "results").iterdir()}

    assert cli.main([*run, "--controller", "zero", *methods[1:]]) == 0
    shown = capsys.readouterr().out
    assert "zero" in shown and "planning time" in shown and facts["pairs"] in shown
    after = {path: path.stat().st_mtime_ns for path in (out / "results").iterdir()}
    assert before.items() <= after.items() and len(after) == 2 * 4  # rows and their origins


def test_a_killed_evaluation_ends_in_the_rows_of_an_unbroken_one(
    tmp_path: Path, episodes: Path, controller: Path
) -> None:
    def command(out: str) -> list[str]:
        run = arguments(tmp_path / out, episodes, controller, "--pairs", "12", "--threads", "1")
        return [sys.executable, "-m", "goalward.cli", *run, "--controller", "gc-idm", "--json"]

    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command("broken"), **silent)  # type: ignore[call-overload]
    end = time.monotonic() + 120
    while not list((tmp_path / "broken").glob("results/*.jsonl")) and time.monotonic() < end:
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(stored_rows(tmp_path / "broken")) < 12
    for out in ("broken", "whole"):
        subprocess.run(
            command(out),
            check=True,
            capture_output=True,
            timeout=200,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    broken, whole = stored_rows(tmp_path / "broken"), stored_rows(tmp_path / "whole")
    assert broken == whole
    assert [row["pair"] for row in broken] == list(range(12))


def test_pairs_of_episodes_that_a_model_may_have_seen_are_refused(
    capsys: Capture, tmp_path: Path, episodes: Path, controller: Path
) -> None:
    model = load_trained_idm(controller)
    other = replace(model, metadata=replace(model.metadata, split=SplitConfig(seed=7)))
    save_trained_idm(tmp_path / "other.safetensors", other)
    run = arguments(tmp_path / "e", episodes, tmp_path / "other.safetensors")
    run.remove("--in-distribution")
    assert "held out other episodes" in refusal(capsys, *run)
    assert not (tmp_path / "e").exists()


def test_several_controllers_are_told_apart_by_their_names(
    capsys: Capture, tmp_path: Path, episodes: Path, controller: Path
) -> None:
    for name in ("first", "second", "other/first"):
        shutil.copytree(controller, tmp_path / name)
    task = get_task("two-room")

    def names(*paths: str) -> list[str]:
        specs = [f"{tmp_path}/{path}" for path in paths]
        runs, _ = evaluation_runs(
            task, specs, models=[], pairwise=None, seeds=[0], device="cpu", split=None
        )
        return [run.method.name for run in runs]

    assert names("first/") == ["gc-idm@first"]  # as a shell completes it
    assert names("first:mode=budget") == ["gc-idm:mode=budget@first"]
    assert names("first", "second/best.safetensors") == ["gc-idm@first", "gc-idm@second"]
    twice = ("--controller", str(tmp_path / "first"), str(tmp_path / "other" / "first"))
    run = arguments(tmp_path / "e", episodes, controller, "--pairs", "2", *twice)
    assert "gc-idm@first is there twice with seed 0" in refusal(capsys, *run)


def test_what_cannot_be_evaluated_is_refused_in_one_line(
    capsys: Capture, tmp_path: Path, episodes: Path, controller: Path
) -> None:
    def said(*more: str) -> str:
        return refusal(capsys, *arguments(tmp_path / "e", episodes, controller, *more))

    assert "neither one of gc-idm" in said("--controller", "magic")
    assert "no such value" in said("--controller", "gc-idm:speed=3")
    assert "num_elites" in said("--controller", "cem:solver.num_elites=1000")
    assert "--pairwise" in said("--controller", "waypoints")
    assert "asked for 100000 pairs" in said("--pairs", "100000")
    few = ("--pairs", "2", "--controller", "zero")
    assert "budget must be at least 1" in said(*few, "--budget", "0")
    assert "environments must be at least 1" in said(*few, "--environments", "0")
    assert "workers must be at least 1" in said(*few, "--workers", "0")
    assert "no pair 2, only 0 to 1" in said(*few, "--video", "2")
    assert "no method to run" in said("--controller")
    assert "no seed to run" in said("--seeds")
    assert "must be at most" in said("--pairs", "2", "--controller", "zero", "cem:mpc.history=9")
    assert "num_samples must be at least 1" in said("--controller", "cem:solver.num_samples=0")
    assert not (tmp_path / "e").exists()  # so that a corrected command is free to go
    text = refusal(capsys, "evaluate", "push-t", *arguments(tmp_path, episodes, controller)[2:])
    assert "not on push-t" in text
    text = refusal(capsys, "evaluate", "two-room", "--out", str(tmp_path / "new"))
    assert "--model" in text


def test_a_folders_pairs_are_not_taken_for_those_of_other_episodes(
    capsys: Capture, tmp_path: Path, episodes: Path, dataset: Callable[[str], Path]
) -> None:
    wanted = PairsConfig(task="two-room", count=2, episodes="all")
    pairs = prepare_pairs(tmp_path / "e", wanted, episodes)
    assert prepare_pairs(tmp_path / "e", wanted, None).id == pairs.id
    with pytest.raises(ValueError, match="other pairs than asked for"):
        prepare_pairs(tmp_path / "e", replace(wanted, seed=9), episodes)
    with pytest.raises(ValueError, match="pairs of other episodes"):
        prepare_pairs(tmp_path / "e", wanted, dataset("push-t"))
    run = ["evaluate", "two-room", "--controller", "zero", "--pairs", "2", "--in-distribution"]
    run += ["--out", str(tmp_path / "e"), "--episodes"]
    assert "none.h5" in refusal(capsys, *run, str(tmp_path / "none.h5"))


def test_what_draws_nothing_is_run_once(controller: Path) -> None:
    def seeds_of(specs: list[str], models: list[Path]) -> list[tuple[str, int]]:
        runs, _ = evaluation_runs(
            get_task("two-room"),
            specs,
            models=models,
            pairwise=None,
            seeds=[3, 4],
            device="cpu",
            split=None,
        )
        return [(run.method.name, run.seed) for run in runs]

    once = [("gc-idm", 3), ("zero", 3), ("random", 3), ("random", 4)]
    assert seeds_of(["gc-idm", "zero", "random"], [controller]) == once
    both = seeds_of(["gc-idm", "zero"], [controller, controller])
    assert both == [("gc-idm", 3), ("gc-idm", 4), ("zero", 3)]
