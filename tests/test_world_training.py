"""Training a world model: it learns, resumes to the bit, and stops with a reason."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from goalward.data.episodes import open_episodes
from goalward.world.checkpoint import load_world, read_tensors
from goalward.world.stage import judge_world, train_world
from goalward.world.train import LOG_EVERY
from goalward.world.train_config import ScheduleConfig
from goalward.world.windows import Windows, action_scale, batch_numbers, prefetched
from world_helpers import dots_fixture, tiny_config, write_dots  # noqa: F401


def weights(folder: Path, name: str = "last") -> dict[str, torch.Tensor]:
    return read_tensors(folder / f"{name}.safetensors")[0]


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_training_learns_the_dots_place_and_dynamics(tmp_path: Path) -> None:
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
    assert not (tmp_path / "world" / "state.safetensors").exists()
    assert train_world(config, dots, tmp_path / "world") == report  # complete: not trained again
    assert judge_world(tmp_path / "world", dots) == report.quality
    assert load_world(tmp_path / "world", weights="last").id == report.world_id


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
    state = tmp_path / "broken.partial" / "state.safetensors"
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
    with pytest.raises(ValueError, match="no longer finite at step 1 of 60; lower the learning"):
        train_world(config, dots, tmp_path / "world")
    assert not (tmp_path / "world").exists()


def test_collapsed_latents_stop_with_a_reason(dots: Path, tmp_path: Path) -> None:
    config = replace(tiny_config(200, regulariser="none"), min_latent_std=0.5)
    with pytest.raises(ValueError, match=r"latents collapsed: .* raise the regulariser's weight"):
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
    with pytest.raises(ValueError, match=r"actions have shape \(2,\), the model takes 3"):
        train_world(other, dots, tmp_path / "world")
    text = refusal(*command(dots, tmp_path / "world", "--set", "model.encoder.image_size=64"))
    assert "(16, 16, 3)" in text and "--image-size 64" in text
    assert not (tmp_path / "world.partial").exists()


def test_another_configuration_does_not_overwrite_a_training(dots: Path, tmp_path: Path) -> None:
    train_world(tiny_config(20), dots, tmp_path / "world")
    with pytest.raises(ValueError, match="holds another configuration"):
        train_world(tiny_config(40), dots, tmp_path / "world")


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("objective.inverse_wait=1", "no such value"),
        ("schedule.lr=fast", "expected float"),
        ("schedule.lr=-1", "lr must be positive"),
        ("schedule.lr", "expected NAME=VALUE"),
        ("objective.regulariser=l2", "expected one of 'sigreg'"),
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
