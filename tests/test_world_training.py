"""Training a world model: it learns, resumes to the bit, and stops with a reason."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from goalward.core.artifacts import Stage, load_manifest
from goalward.core.tensors import read_tensors
from goalward.core.training import LOG_EVERY
from goalward.data.collect import CollectConfig, collect
from goalward.data.episodes import episodes_id, open_episodes
from goalward.data.splits import SplitConfig, split_episodes
from goalward.data.windows import Windows, action_scale, batch_numbers, prefetched
from goalward.presets import world_config
from goalward.world.checkpoint import load_world
from goalward.world.metrics import MLPProbeConfig, mlp_probe, validate_world
from goalward.world.train import ScheduleConfig, train_world
from world_helpers import dots_fixture, tiny_config, write_dots  # noqa: F401


def weights(folder: Path, name: str = "last") -> dict[str, torch.Tensor]:
    return read_tensors(folder / f"{name}.safetensors")[0]


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_training_learns_the_dots_place_and_dynamics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = partial(mlp_probe, config=MLPProbeConfig(steps=500))
    monkeypatch.setattr("goalward.world.metrics.mlp_probe", quick)
    dots = write_dots(tmp_path / "data", states=True)
    config = tiny_config(400, inverse_weight=1.0, thumbnail_weight=1.0)
    report = train_world(config, dots, tmp_path / "world")
    assert report is not None
    (probe,) = report.quality.probes.network
    assert probe.measure == "agent"
    assert probe.r2 > 0.97
    near, far = report.quality.prediction
    assert near.ratio < 0.5 and far.ratio < 0.5
    assert report.data_share < 0.3
    for name in ("curves.png", "latents.png", "best.safetensors", "last.safetensors"):
        assert (tmp_path / "world" / name).stat().st_size > 1000
    assert not [path.name for path in (tmp_path / "world").iterdir() if path.name[0] == "."]
    assert train_world(config, dots, tmp_path / "world") == report  # complete: not trained again
    assert validate_world(tmp_path / "world", dots) == report.quality
    assert load_world(tmp_path / "world").id == report.best_world_id


def test_the_same_seed_gives_the_same_weights_and_another_does_not(
    dots: Path, tmp_path: Path
) -> None:
    config = tiny_config(20)
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train_world(replace(config, seed=seed), dots, tmp_path / name)
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert not same(weights(tmp_path / "a"), weights(tmp_path / "c"))


def test_a_training_stopped_anywhere_resumes_to_the_same_weights(
    dots: Path, tmp_path: Path
) -> None:
    config = tiny_config(3 * LOG_EVERY + 5, inverse_weight=0.5)
    train_world(config, dots, tmp_path / "whole")

    class StopError(Exception):
        pass

    def stop_at(limit: int) -> object:
        def on_progress(done: int, frames: int, note: str) -> None:
            if done == limit:
                raise StopError

        return on_progress

    for limit in (LOG_EVERY, 3 * LOG_EVERY):
        with pytest.raises(StopError):
            train_world(
                config,
                dots,
                tmp_path / "broken",
                save_seconds=0.0,
                on_progress=stop_at(limit),  # type: ignore[arg-type]
            )
    train_world(config, dots, tmp_path / "broken")
    for name in ("last", "best"):
        assert same(weights(tmp_path / "whole", name), weights(tmp_path / "broken", name))


def command(dots: Path, out: Path, *more: str) -> list[str]:
    small = (
        "--preset smoke --threads 1 --save-seconds 0 --set model.encoder.image_size=16 "
        "--set model.encoder.patch_size=2 --set model.frameskip=2"
    )
    run = [sys.executable, "-m", "goalward.cli", "train-world", str(dots), "--out", str(out)]
    return [*run, *small.split(), *more]


def test_a_killed_training_ends_in_the_weights_of_an_unbroken_one(
    dots: Path, tmp_path: Path
) -> None:
    subprocess.run(command(dots, tmp_path / "whole"), check=True, capture_output=True)
    state = tmp_path / "broken.partial" / ".checkpoint.safetensors"
    process = subprocess.Popen(
        command(dots, tmp_path / "broken"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while not state.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "broken").exists()
    subprocess.run(command(dots, tmp_path / "broken"), check=True, capture_output=True)
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "broken"))


def test_two_processes_train_together_and_write_one_result(dots: Path, tmp_path: Path) -> None:
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*run, "-m", *command(dots, tmp_path / "world", "--json", "--steps", "20")[2:]],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    report = json.loads(done.stdout)
    assert report["steps"] == 20
    assert load_world(tmp_path / "world", weights="last").id == report["world_id"]


def refusal(*arguments: str) -> str:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_a_loss_that_is_no_longer_finite_stops_with_a_reason(dots: Path, tmp_path: Path) -> None:
    config = replace(tiny_config(), schedule=ScheduleConfig(steps=60, batch=16, lr=1e30, clip=1e30))
    with pytest.raises(
        ValueError, match="no longer finite at step 1 of 60; train again with a low"
    ):
        train_world(config, dots, tmp_path / "world")
    assert not (tmp_path / "world").exists()


def test_collapsed_latents_stop_with_a_reason(dots: Path, tmp_path: Path) -> None:
    config = replace(tiny_config(200, regulariser="none"), min_latent_std=0.5)
    with pytest.raises(ValueError, match=r"latents collapsed: .* larger objective\.regularis"):
        train_world(config, dots, tmp_path / "world")


def test_a_nan_action_is_named_by_its_row(tmp_path: Path) -> None:
    path = write_dots(tmp_path / "data")
    with h5py.File(path, "r+") as file:
        file["action"][71] = np.nan
    text = refusal(*command(path, tmp_path / "world"))
    assert "row 71 (step 7 of episode 2) is not finite" in text
    assert not (tmp_path / "world.partial").exists()


def test_another_image_or_action_size_is_refused(dots: Path, tmp_path: Path) -> None:
    config = tiny_config()
    other = replace(config, model=replace(config.model, action_dim=3))
    with pytest.raises(ValueError, match="actions have 2 numbers, the model takes 3"):
        train_world(other, dots, tmp_path / "world")
    text = refusal(*command(dots, tmp_path / "world", "--set", "model.encoder.image_size=64"))
    assert "16 pixels a side" in text and "--image-size 64" in text
    assert not (tmp_path / "world.partial").exists()


def test_too_few_or_too_short_episodes_are_refused_before_anything_is_written(
    dots: Path, tmp_path: Path
) -> None:
    config = tiny_config()
    large = replace(config, schedule=replace(config.schedule, batch=1000))
    with pytest.raises(ValueError, match="11 training episodes hold 286 windows of 7 rows, but"):
        train_world(large, dots, tmp_path / "world")
    longer = replace(config, model=replace(config.model, frameskip=20))
    with pytest.raises(ValueError, match="hold 0 windows of 61 rows"):
        train_world(longer, dots, tmp_path / "world")
    assert not list(tmp_path.iterdir())


def test_episodes_too_short_for_five_steps_are_judged_by_one(dots: Path, tmp_path: Path) -> None:
    config = tiny_config(20)
    report = train_world(
        replace(config, model=replace(config.model, frameskip=7)), dots, tmp_path / "world"
    )
    assert report is not None
    assert [error.steps for error in report.quality.prediction] == [1]


def test_frames_that_do_not_fit_in_memory_give_the_same_weights(
    dots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_world(tiny_config(20), dots, tmp_path / "held")
    monkeypatch.setattr("goalward.world.train.available_memory", lambda: 0)
    train_world(tiny_config(20), dots, tmp_path / "streamed")
    assert same(weights(tmp_path / "held"), weights(tmp_path / "streamed"))


def test_a_failure_while_concluding_loses_no_training(
    dots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Stage, "_complete", full_disk)
    with pytest.raises(OSError, match="No space left"):
        train_world(tiny_config(40), dots, tmp_path / "world")
    monkeypatch.undo()
    steps: list[int] = []
    train_world(
        tiny_config(40),
        dots,
        tmp_path / "world",
        on_progress=lambda done, frames, note: steps.append(done),
    )
    assert steps == []


def test_a_full_disk_is_one_line_and_the_same_command_goes_on(dots: Path, tmp_path: Path) -> None:
    small = 'ulimit -f 40; trap "" XFSZ; exec "$0" "$@"'  # files of about 20 kB, no signal
    done = subprocess.run(
        ["/bin/sh", "-c", small, *command(dots, tmp_path / "world", "--steps", "20")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "File too large" in done.stderr
    subprocess.run(
        command(dots, tmp_path / "world", "--steps", "20"), check=True, capture_output=True
    )


def test_a_model_is_judged_on_the_episodes_that_its_training_held_out(
    dots: Path, tmp_path: Path
) -> None:
    config = replace(tiny_config(20), split=SplitConfig(seed=1))
    report = train_world(config, dots, tmp_path / "world")
    assert report is not None
    assert (
        split_episodes(12).held_out.tolist() != split_episodes(12, config.split).held_out.tolist()
    )
    assert validate_world(tmp_path / "world", dots) == report.quality


def test_a_file_beside_a_stages_own_is_not_taken_for_it(tmp_path: Path) -> None:
    stage = tmp_path / "stage"
    collect(CollectConfig.for_task("two-room", episodes=2, episode_steps=3), stage, workers=1)
    shutil.copy(write_dots(tmp_path / "dots"), stage / "other.h5")
    found = []
    for name in ("episodes.h5", "other.h5"):
        with open_episodes(stage / name) as episodes:
            found.append(episodes_id(episodes))
    assert found[0] == load_manifest(stage).id != found[1]


def test_a_task_that_only_the_file_knows_is_trained_without_probes(
    dots: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copy(dots, tmp_path / "own.h5"))
    with h5py.File(path, "r+") as file:
        file.attrs["task"] = "my-robot"
    report = train_world(tiny_config(20), path, tmp_path / "world")
    assert report is not None and report.task == "my-robot"
    assert report.quality.probes.network == ()
    with pytest.raises(ValueError, match="unknown task 'my-robt'"):
        train_world(tiny_config(20), path, tmp_path / "other", task="my-robt")


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
        del file[column]
        if shape is not None:
            file[column] = np.zeros(shape, kind)
    with open_episodes(path) as episodes, pytest.raises(ValueError, match=message):
        world_config("smoke", episodes, task=None)


def test_another_configuration_does_not_overwrite_a_training(dots: Path, tmp_path: Path) -> None:
    train_world(tiny_config(20), dots, tmp_path / "world")
    with pytest.raises(ValueError, match="holds another configuration"):
        train_world(tiny_config(40), dots, tmp_path / "world")


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("objective.inverse_wait=1", "no such value"),
        ("schedule.lr=fast", "expected float"),
        ("schedule.lr=-1", "schedule.lr must be above 0"),
        ("schedule.lr", "expected NAME=VALUE"),
        ("objective.regulariser=l2", "expected 'sigreg'"),
    ],
)
def test_a_bad_override_is_refused_in_one_line(
    dots: Path, tmp_path: Path, assignment: str, message: str
) -> None:
    text = refusal(*command(dots, tmp_path / "world", "--set", assignment))
    assert message in text
    assert not (tmp_path / "world.partial").exists()


def test_windows_hold_the_actions_between_their_frames(dots: Path) -> None:
    with open_episodes(dots) as episodes:
        chosen = np.array([1, 3])
        scale = action_scale(episodes, chosen)
        windows = Windows(episodes, chosen, frames=4, frameskip=2, scale=scale)
        assert len(windows) == 2 * (32 - 6)
        frames, blocks = windows.read(np.array([0, 30]))
        whole = episodes.episode(3)
        start = 30 - 26
        assert np.array_equal(frames[1].numpy(), whole["pixels"][start : start + 7 : 2])
        raw = scale.restore(blocks[1].reshape(-1, 2)).numpy()
        np.testing.assert_allclose(raw, whole["action"][start : start + 6], atol=1e-6)


def test_every_epoch_takes_each_window_once_in_a_new_order() -> None:
    epochs = [
        np.concatenate([batch_numbers(12, 4, seed=1, step=3 * epoch + k) for k in range(3)])
        for epoch in range(2)
    ]
    assert all(sorted(order) == list(range(12)) for order in epochs)
    assert not np.array_equal(epochs[0], epochs[1])
    assert list(prefetched(lambda step: step * step, range(3, 7))) == [9, 16, 25, 36]
    assert list(prefetched(lambda step: step, range(3, 3))) == []
    with pytest.raises(ValueError, match="a batch of 4 needs as many windows, there are 3"):
        batch_numbers(3, 4, seed=0, step=0)
