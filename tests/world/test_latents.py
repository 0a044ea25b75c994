"""Embedding a dataset: the encoder's own latents, resumed where it stopped, refused when unfit."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from world_helpers import ROWS, tiny_config, write_dots

from artifact_helpers import refusal
from goalward.data.episodes import open_episodes
from goalward.data.splits import SplitConfig
from goalward.world.checkpoint import load_world
from goalward.world.latents import EmbedConfig, embed, open_latents
from goalward.world.metrics import encode_rows
from goalward.world.train import train_world


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


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


def test_metadata_names_the_encoder_and_the_training_episodes_statistics(
    tiny_world: Path, dot_latents: Path
) -> None:
    latents = open_latents(dot_latents)
    metadata = latents.metadata
    assert metadata.world_id == load_world(tiny_world).id == latents.world().id
    assert metadata.task == "two-room"
    assert metadata.action_low == (-1.0, -1.0) and metadata.action_high == (1.0, 1.0)
    owner = np.repeat(np.arange(len(latents.lengths)), latents.lengths)
    train = np.isin(owner, latents.split.train)
    assert not train.all()
    np.testing.assert_allclose(metadata.mean, latents.z[train].mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(metadata.std, latents.z[train].std(axis=0), rtol=1e-4)


def test_the_split_is_that_of_the_world_models_training(dots: Path, tmp_path: Path) -> None:
    config = replace(tiny_config(2), split=SplitConfig(seed=3, held_out_every=4))
    train_world(config, dots, tmp_path / "world", pictures=False)
    assert embed(tmp_path / "world", dots, tmp_path / "z").metadata.split == config.split


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
        embed(tiny_world, dots, tmp_path / "z", config, on_progress=stop)
    assert not (tmp_path / "z").exists()
    file = tmp_path / "z.partial" / "latents.npy"
    os.truncate(file, file.stat().st_size - 7)  # as if killed in the middle of a batch
    again = embed(tiny_world, dots, tmp_path / "z", config, on_progress=stop)
    assert seen[3] == 150  # two whole batches were in the file
    assert np.array_equal(again.z, whole.z) and again.metadata == whole.metadata
    assert not [p.name for p in (tmp_path / "z").iterdir() if p.name.startswith(".")]


def test_what_does_not_fit_is_refused_before_anything_is_written(
    dots: Path, tiny_world: Path, tmp_path: Path
) -> None:
    spoilt = write_dots(tmp_path / "spoilt")
    with h5py.File(spoilt, "r+") as file:
        file["action"][5] = np.nan
        del file.attrs["checksums"]  # as in a file of others

    def message(world: Path, dataset: Path) -> str:
        return refusal(lambda: embed(world, dataset, tmp_path / "z"))

    assert "no such folder" in message(tmp_path / "no", dots)
    assert "row 5 (step 5 of episode 0) is not finite" in message(tiny_world, spoilt)
    assert not (tmp_path / "z").exists() and not (tmp_path / "z.partial").exists()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: flip_a_byte(folder / "latents.npy"), "latents.npy: damaged"),
        (lambda folder: flip_a_byte(folder / "actions.npy"), "actions.npy: damaged"),
        (lambda folder: os.truncate(folder / "latents.npy", 1000), "latents.npy: has 1000 bytes"),
        (lambda folder: (folder / "lengths.npy").unlink(), "lengths.npy: is missing"),
    ],
)
def test_damaged_latents_are_refused(
    damage: Callable[[Path], None], message: str, dot_latents: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(dot_latents, copy)
    damage(copy)
    assert message in refusal(lambda: open_latents(copy))
    assert "no complete stage here" in refusal(lambda: open_latents(tmp_path / "no"))
