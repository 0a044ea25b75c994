"""Embedding a dataset: the encoder's own latents, resumed where it stopped, refused when unfit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from controller_helpers import dot_latents_fixture, many_dots_fixture, tiny_world_fixture  # noqa: F401
from goalward import cli
from goalward.core.machine import choose_devices
from goalward.data.episodes import open_episodes
from goalward.data.splits import SplitConfig, split_episodes
from goalward.world.checkpoint import load_world, world_id
from goalward.world.encoders import ConvConfig
from goalward.world.frozen import FrameEncoder, normalise
from goalward.world.latents import EmbedConfig, embed, open_latents
from goalward.world.lewm import LeWM, LeWMConfig
from goalward.world.metrics import encode_rows
from goalward.world.train import train_world
from test_cli import refusal
from world_helpers import ROWS, dots_fixture, tiny_config, write_dots  # noqa: F401

Capture = pytest.CaptureFixture[str]


def test_latents_are_the_encoders_own(many_dots: Path, tiny_world: Path, dot_latents: Path) -> None:
    latents = open_latents(dot_latents)
    with open_episodes(many_dots) as episodes:
        rows = np.arange(episodes.num_rows)
        expected = encode_rows(load_world(tiny_world).model, episodes, rows)
        action = episodes.read("action", 0, episodes.num_rows)
    np.testing.assert_allclose(latents.z, expected.numpy(), rtol=1e-5, atol=1e-6)
    assert isinstance(latents.z, np.memmap)
    known = np.isfinite(action).all(axis=1)
    assert np.array_equal(latents.actions[known], action[known])
    assert not latents.actions[~known].any()
    assert latents.lengths.tolist() == [ROWS] * len(latents.lengths)


def test_the_card_names_the_encoder_and_the_training_episodes_statistics(
    tiny_world: Path, dot_latents: Path
) -> None:
    latents = open_latents(dot_latents)
    assert latents.metadata.world_id == load_world(tiny_world).id == latents.world().id
    assert latents.metadata.task == "two-room"
    assert latents.metadata.action_low == (-1.0, -1.0) and latents.metadata.action_high == (
        1.0,
        1.0,
    )
    owner = np.repeat(np.arange(len(latents.lengths)), latents.lengths)
    train = np.isin(owner, latents.split.train)
    assert not train.all()
    np.testing.assert_allclose(latents.metadata.mean, latents.z[train].mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(latents.metadata.std, latents.z[train].std(axis=0), rtol=1e-4)


def test_held_out_episodes_serve_as_validation_or_as_test_never_as_both() -> None:
    for number in (2, 40, 41, 200):
        split = split_episodes(number)
        parts = [split.train, split.validation, split.test]
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(number))
    longer = split_episodes(60)
    assert np.array_equal(split_episodes(40).test, longer.test[longer.test < 40])


def test_the_split_is_that_of_the_world_models_training(dots: Path, tmp_path: Path) -> None:
    config = tiny_config(2)
    split = SplitConfig(seed=3, held_out_every=4)
    object.__setattr__(config, "split", split)
    train_world(config, dots, tmp_path / "world")
    assert embed(tmp_path / "world", dots, tmp_path / "z").metadata.split == split


def test_an_interrupted_embedding_goes_on_to_the_same_latents(
    dots: Path, tiny_world: Path, tmp_path: Path
) -> None:
    class StopError(Exception):
        pass

    seen: list[int] = []

    def stop(done: int, rows: int) -> None:
        seen.append(done)
        if len(seen) == 3:
            raise StopError

    config = EmbedConfig(batch=50)
    whole = embed(tiny_world, dots, tmp_path / "whole", config)
    with pytest.raises(StopError):
        embed(tiny_world, dots, tmp_path / "z", config, save_seconds=0.0, on_progress=stop)
    assert not (tmp_path / "z").exists()
    embed(tiny_world, dots, tmp_path / "z", config, on_progress=stop)
    assert seen[3] == 150  # two batches were safe on the disk
    again = open_latents(tmp_path / "z")
    assert np.array_equal(again.z, whole.z)
    assert again.metadata == whole.metadata
    assert not [p.name for p in (tmp_path / "z").iterdir() if p.name.startswith(".")]


def test_a_killed_embedding_goes_on(dots: Path, tiny_world: Path, tmp_path: Path) -> None:
    out = tmp_path / "z"
    run = [sys.executable, "-m", "goalward.cli", "embed", str(tiny_world), str(dots)]
    run += ["--out", str(out), "--batch", "32", "--save-seconds", "0", "--json"]
    process = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    done = tmp_path / "z.partial" / ".rows.json"
    end = time.monotonic() + 60
    while not done.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = subprocess.run(run, check=True, capture_output=True, text=True, timeout=120)
    facts = json.loads(finished.stdout)
    assert facts["rows"] == open_latents(out).metadata.rows
    whole = embed(tiny_world, dots, tmp_path / "whole", EmbedConfig(batch=32))
    assert np.array_equal(open_latents(out).z, whole.z)


def test_several_devices_share_a_batch_and_agree(tiny_world: Path) -> None:
    model, cpu = load_world(tiny_world).model, torch.device("cpu")
    frames = torch.randint(0, 256, (7, 16, 16, 3), dtype=torch.uint8)
    alone = FrameEncoder(model)(frames)
    shared = FrameEncoder(model, (cpu, cpu, cpu))
    torch.testing.assert_close(shared(frames), alone)
    torch.testing.assert_close(shared(frames[:1]), alone[:1])
    assert choose_devices("cpu") == (cpu,)


def test_a_frame_encoder_gives_the_models_latents_and_leaves_the_model_alone() -> None:
    model = LeWM(LeWMConfig(action_dim=2, encoder=ConvConfig(image_size=32, channels=(8, 16))))
    norms = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)
    for norm in (module for module in model.modules() if isinstance(module, norms)):
        assert norm.running_mean is not None and norm.running_var is not None
        torch.nn.init.uniform_(norm.weight, 0.5, 2.0)
        torch.nn.init.normal_(norm.bias)
        torch.nn.init.normal_(norm.running_mean)
        torch.nn.init.uniform_(norm.running_var, 0.5, 2.0)
    before = world_id(model, None)
    frames = torch.randint(0, 256, (5, 32, 32, 3), dtype=torch.uint8)
    encode = FrameEncoder(model.train())
    assert model.training and world_id(model, None) == before
    with torch.inference_mode():
        expected = model.eval().encode(normalise(frames, 32))
    torch.testing.assert_close(encode(frames), expected, rtol=1e-4, atol=1e-5)
    torch.nn.init.zeros_(next(model.parameters()))
    torch.testing.assert_close(encode(frames), expected, rtol=1e-4, atol=1e-5)  # frozen


def test_what_does_not_fit_is_refused_in_one_line_before_anything_is_written(
    capsys: Capture, dots: Path, tiny_world: Path, tmp_path: Path
) -> None:
    out = ("--out", str(tmp_path / "z"))
    assert "no such folder" in refusal(capsys, "embed", str(tmp_path / "no"), str(dots), *out)
    assert "does not exist" in refusal(capsys, "embed", str(tiny_world), "no.h5", *out)
    assert "batch" in refusal(capsys, "embed", str(tiny_world), str(dots), *out, "--batch", "0")
    spoilt = write_dots(tmp_path / "spoilt")
    with h5py.File(spoilt, "r+") as file:
        file["action"][5] = np.nan
    assert "not finite" in refusal(capsys, "embed", str(tiny_world), str(spoilt), *out)
    assert not (tmp_path / "z").exists() and not (tmp_path / "z.partial").exists()


def test_damaged_latents_are_refused(capsys: Capture, dot_latents: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(dot_latents, copy)
    os.truncate(copy / "latents.npy", 1000)
    text = refusal(capsys, "train", str(copy), "--out", str(tmp_path / "out"))
    assert "latents.npy" in text
    text = refusal(capsys, "train", str(tmp_path / "no"), "--out", str(tmp_path / "out"))
    assert "no complete stage here" in text


def test_embedding_is_told_to_people(
    capsys: Capture, dots: Path, tiny_world: Path, tmp_path: Path
) -> None:
    run = ["embed", str(tiny_world), str(dots), "--out", str(tmp_path / "z")]
    assert cli.main(run) == 0
    out = capsys.readouterr().out
    assert load_world(tiny_world).id in out and "latents.npy" in out
