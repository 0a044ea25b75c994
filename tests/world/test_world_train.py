"""Training a world model: it learns, resumes to the bit, and stops with a reason."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import h5py
import numpy as np
import pytest
import torch
import world_helpers
from world_helpers import same, tiny_config, weights, write_dots

from goalward.core.artifacts import Stage
from goalward.core.config import from_json, to_json
from goalward.core.training import CHECKPOINT
from goalward.data.episodes import open_episodes
from goalward.data.splits import SplitConfig, split_episodes
from goalward.defaults import PresetName
from goalward.presets import world_config
from goalward.world.checkpoint import load_world
from goalward.world.metrics import validate_world
from goalward.world.train import ScheduleConfig, WorldConfig, WorldReport, train_world

Progress = Callable[[int, int, str], None]


def train(
    config: WorldConfig,
    dataset: Path,
    folder: Path,
    *,
    save_seconds: float = 60.0,
    on_progress: Progress | None = None,
) -> WorldReport:
    """Train without pictures."""
    quick = {"save_seconds": save_seconds, "on_progress": on_progress, "pictures": False}
    report = train_world(config, dataset, folder, **quick)  # type: ignore[arg-type]
    assert report is not None
    return report


def command(dots: Path, folder: Path, steps: int = 40) -> list[str]:
    """A training in a process of its own."""
    return [sys.executable, str(world_helpers.__file__), str(dots), str(folder), str(steps)]


def test_training_learns_the_dots_place_and_dynamics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goalward.world.metrics.MLP_STEPS", 500)
    dots, world = write_dots(tmp_path / "data", states=True), tmp_path / "world"
    config = tiny_config(400, inverse_dynamics_weight=1.0, reconstruction_weight=1.0)
    report = train_world(config, dots, world)
    assert report is not None
    (probe,) = report.metrics.probes.mlp
    assert probe.target == "agent" and probe.r2 > 0.97
    near, far = report.metrics.prediction
    assert near.ratio < 0.5 and far.ratio < 0.5
    for name in ("curves.png", "latents.png", "best.safetensors", "last.safetensors"):
        assert (world / name).stat().st_size > 1000
    assert not [path.name for path in world.iterdir() if path.name[0] == "."]
    assert train_world(config, dots, world) == report  # complete: not trained again
    assert validate_world(load_world(world), dots) == report.metrics
    assert load_world(world).id == report.best_world_id


def test_the_same_seed_gives_the_same_weights_and_another_does_not(
    dots: Path, tmp_path: Path
) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(replace(tiny_config(20), seed=seed), dots, tmp_path / name)
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert not same(weights(tmp_path / "a"), weights(tmp_path / "c"))


def test_a_killed_training_ends_in_the_weights_of_an_unbroken_one(
    dots: Path, tmp_path: Path
) -> None:
    steps, broken = 100, tmp_path / "broken"
    process = subprocess.Popen(command(dots, broken, steps))
    while not (tmp_path / "broken.partial" / CHECKPOINT).exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not broken.exists()
    for folder in (broken, tmp_path / "whole"):
        train(tiny_config(steps), dots, folder)
    for name in ("last", "best"):
        assert same(weights(tmp_path / "whole", name), weights(broken, name))


def test_two_processes_train_together_and_write_one_result(dots: Path, tmp_path: Path) -> None:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [sys.executable, *torchrun, *command(dots, tmp_path / "world", 20)[1:]],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = train(tiny_config(20), dots, tmp_path / "world")
    assert report.steps == 20
    assert load_world(tmp_path / "world", weights="last").id == report.world_id


def test_a_loss_that_is_no_longer_finite_stops_with_a_reason(dots: Path, tmp_path: Path) -> None:
    config = replace(tiny_config(), schedule=ScheduleConfig(steps=60, batch=16, lr=1e30, clip=1e30))
    with pytest.raises(ValueError, match="no longer finite at step 1 of 60"):
        train(config, dots, tmp_path / "world")
    assert not (tmp_path / "world").exists()


def test_collapsed_latents_stop_with_a_reason(dots: Path, tmp_path: Path) -> None:
    config = replace(tiny_config(200, regulariser="none"), min_latent_std=0.5)
    with pytest.raises(ValueError, match=r"latents collapsed: .* larger objective\.regularis"):
        train(config, dots, tmp_path / "world")


def with_model(**changes: int) -> WorldConfig:
    config = tiny_config()
    return replace(config, model=replace(config.model, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (with_model(action_dim=3), "actions have 2 numbers, the world model takes 3"),
        (with_model(frameskip=20), "hold 0 windows of 61 rows"),
        (
            replace(tiny_config(), schedule=ScheduleConfig(steps=40, batch=1000)),
            "11 training episodes hold 286 windows of 7 rows, but 1000 are needed",
        ),
    ],
)
def test_data_that_does_not_fit_is_refused_before_anything_is_written(
    config: WorldConfig, message: str, dots: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        train(config, dots, tmp_path / "world")
    assert not list(tmp_path.iterdir())


def test_episodes_too_short_for_five_steps_are_validated_by_one(dots: Path, tmp_path: Path) -> None:
    config = replace(with_model(frameskip=7), schedule=tiny_config(20).schedule)
    report = train(config, dots, tmp_path / "world")
    assert [error.steps for error in report.metrics.prediction] == [1]


def test_frames_that_do_not_fit_in_memory_give_the_same_weights(
    dots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tiny_config(20), dots, tmp_path / "held")
    monkeypatch.setattr("goalward.world.train.available_memory", lambda: 0)
    train(tiny_config(20), dots, tmp_path / "streamed")
    assert same(weights(tmp_path / "held"), weights(tmp_path / "streamed"))


def test_a_failure_at_the_end_loses_no_training(
    dots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Stage, "_complete", full_disk)
    with pytest.raises(OSError, match="No space left"):
        train(tiny_config(40), dots, tmp_path / "world")
    monkeypatch.undo()
    steps: list[int] = []
    train(
        tiny_config(40),
        dots,
        tmp_path / "world",
        on_progress=lambda done, frames, note: steps.append(done),
    )
    assert steps == []


def test_a_model_is_validated_on_the_episodes_that_its_training_held_out(
    dots: Path, tmp_path: Path
) -> None:
    config = replace(tiny_config(20), split=SplitConfig(seed=1))
    report = train(config, dots, tmp_path / "world")
    usual, ours = split_episodes(12).held_out, split_episodes(12, config.split).held_out
    assert usual.tolist() != ours.tolist()
    assert validate_world(load_world(tmp_path / "world"), dots) == report.metrics


def test_a_task_that_only_the_file_knows_is_trained_without_probes(
    dots: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copy(dots, tmp_path / "own.h5"))
    with h5py.File(path, "r+") as file:
        file.attrs["task"] = "my-robot"
    report = train(tiny_config(20), path, tmp_path / "world")
    assert report.task == "my-robot" and report.metrics.probes.mlp == ()
    with pytest.raises(ValueError, match="unknown task 'my-robt'"):
        train_world(tiny_config(20), path, tmp_path / "other", task="my-robt")


# Configurations.


@pytest.mark.parametrize("name", get_args(PresetName))
def test_every_preset_is_a_configuration_that_survives_json(name: str, dots: Path) -> None:
    with open_episodes(dots) as episodes:
        for task in ("two-room", None):
            config = world_config(name, episodes, task=task)  # type: ignore[arg-type]
            assert from_json(WorldConfig, to_json(config)) == config
            assert config.model.action_dim == 2


def test_the_paper_preset_is_the_public_configuration(dots: Path) -> None:
    with open_episodes(dots) as episodes:
        config = world_config("paper", episodes, task=None)
        windows = len(episodes.window_starts(16)) // 12 * 11  # one of the twelve is held out
    vit = {"kind": "vit", "image_size": 224, "patch_size": 14, "dim": 192, "depth": 12, "heads": 3}
    assert to_json(config.model) == {
        "action_dim": 2,
        "encoder": vit,
        "frameskip": 5,
        "history": 3,
        "latent_dim": 192,
        "projector_dim": 2048,
        "predictor": {"depth": 6, "heads": 16, "dim_head": 64, "mlp_dim": 2048, "dropout": 0.1},
    }
    schedule = {"batch": 128, "lr": 5e-5, "weight_decay": 1e-3, "warmup": 0.01, "clip": 1.0}
    assert to_json(config.schedule) == {"steps": 10 * (windows // 128), **schedule}
    objective = config.objective
    assert objective.regulariser == "sigreg" and objective.regulariser_weight == 0.09
    assert (objective.projections, objective.knots) == (1024, 17)
    assert objective.inverse_dynamics_weight == 0.0 == objective.reconstruction_weight
    assert not config.uses_bfloat16(torch.device("cpu"))
    assert config.uses_bfloat16(torch.device("cuda"))


@pytest.mark.parametrize(
    ("column", "shape", "message"),
    [
        ("action", (384,), r"an action has shape \(\)"),
        ("pixels", (384, 16, 8, 3), r"a frame has shape \(16, 8, 3\)"),
        ("pixels", None, "has no column 'pixels'"),
    ],
)
def test_odd_columns_are_refused_in_one_line(
    dots: Path, tmp_path: Path, column: str, shape: tuple[int, ...] | None, message: str
) -> None:
    path = Path(shutil.copy(dots, tmp_path / "odd.h5"))
    with h5py.File(path, "r+") as file:
        kind = file[column].dtype
        del file[column], file.attrs["checksums"]  # as in a file of others
        if shape is not None:
            file[column] = np.zeros(shape, kind)
    with open_episodes(path) as episodes, pytest.raises(ValueError, match=message):
        world_config("smoke", episodes, task=None)
