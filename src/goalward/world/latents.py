"""The stage `embed`: every frame of a dataset through a frozen encoder, once.

What controllers are trained on is all in the folder: the latents, which are memory-mapped; the
actions; the episodes' lengths; and a copy of the world model, so that latents and the encoder that
made them never part.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from goalward import defaults
from goalward.core.arrays import Array
from goalward.core.artifacts import Stage, load_manifest
from goalward.core.checks import as_path, finite_number, format_value
from goalward.core.config import (
    content_id,
    read_config,
    read_json,
    require_at_least,
    require_at_most,
    require_types,
    to_json,
    write_json,
)
from goalward.data.episodes import Episodes, Index, episodes_id, open_episodes
from goalward.data.splits import Split, SplitConfig, split_episodes
from goalward.data.summary import task_name
from goalward.data.windows import prefetched, require_finite_actions, sizes
from goalward.tasks import find_task
from goalward.world.checkpoint import Weights, World, load_world, require_fits, save_world
from goalward.world.frozen import FrameEncoder

STAGE, STAGE_VERSION = "embed", 1
CARD, WORLD = "latents.json", "world"
LATENTS, ACTIONS, LENGTHS = "latents.npy", "actions.npy", "lengths.npy"
DONE = ".rows.json"  # hidden: no payload, dropped at the end
STATISTICS_ROWS = 65_536  # at a time
BLOCK = 2**20  # bytes
MOST_BATCH = 2**20  # frames
CPU = (torch.device("cpu"),)

OnProgress = Callable[[int, int], None]  # (rows done, rows of this sitting)


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbedConfig:
    """What the latents depend on, beside the dataset and the world model."""

    batch: int = defaults.EMBED_BATCH  # frames a call of the encoder

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 1, "batch")
        require_at_most(self, MOST_BATCH, "batch")


@dataclass(frozen=True, kw_only=True, slots=True)
class LatentsMetadata:
    """What is known of the latents; statistics are over the training episodes alone."""

    world_id: str  # of the encoder
    episodes_id: str
    task: str | None
    split: SplitConfig  # the world model's own
    rows: int
    mean: tuple[float, ...]  # of each number of a latent
    std: tuple[float, ...]
    action_low: tuple[float, ...]  # the task's bounds; of a task of one's own, the data's
    action_high: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Latents:
    """An embedded dataset. N rows, D numbers of a latent, A of an action, E episodes."""

    folder: Path
    id: str  # of the stage that made it
    metadata: LatentsMetadata
    z: Array  # (N, D) float32, memory-mapped
    actions: Array  # (N, A) float32; the last row of an episode has none, and holds zeros
    lengths: Index  # (E,) rows of each episode

    @property
    def split(self) -> Split:
        """Training, validation and test episodes."""
        return split_episodes(len(self.lengths), self.metadata.split)

    def of_episodes(self, chosen: Index) -> Array:
        """The latents (M, D) of these episodes, one after the other."""
        ends = np.cumsum(self.lengths)
        return np.concatenate([self.z[ends[k] - self.lengths[k] : ends[k]] for k in chosen])

    def world(self) -> World:
        """The world model whose encoder made the latents."""
        return load_world(self.folder / WORLD)

    def require_made_by(self, world_id: str) -> None:
        """Refuse latents of another encoder than the one with this id."""
        if self.metadata.world_id != world_id:
            raise ValueError(
                f"{self.folder}: latents of world model {self.metadata.world_id}, but the "
                f"controller was trained on those of {world_id}; embed the dataset with that model"
            )


def embed(
    world: Path,
    dataset: Path,
    folder: Path,
    config: EmbedConfig | None = None,
    *,
    weights: Weights = "best",
    task: str | None = None,
    frameskip: int = defaults.FRAMESKIP,
    devices: Sequence[torch.device] = CPU,
    save_seconds: float = defaults.SAVE_SECONDS,
    on_progress: OnProgress | None = None,
) -> Latents:
    """Embed a dataset into the stage folder `folder`, or find it complete there.

    Args:
        world: Folder of a world model, ours or in the public layout.
        dataset: An episode file or a folder with one.
        folder: Where the result goes; an interrupted embedding there is taken up again.
        config: What the result depends on.
        weights: Which of the world model's weights.
        task: The dataset's task, where the file does not say it.
        frameskip: Environment steps a model step, which the public layout does not tell.
        devices: Where to compute; batches are shared between several.
        save_seconds: At most so much work, and a batch, is lost when the process is killed.
        on_progress: Called after every batch.

    Raises:
        ValueError: the dataset does not fit the world model, or the folder holds something else.
        OSError: the folder cannot be written; the rows saved last are kept.
    """
    config = EmbedConfig() if config is None else config
    if not isinstance(config, EmbedConfig):
        raise ValueError(f"config must be an EmbedConfig, got {format_value(config)}")
    world, dataset = as_path(world, "world"), as_path(dataset, "dataset")
    if finite_number(save_seconds, "save_seconds") < 0:
        raise ValueError(f"save_seconds must be at least 0, got {save_seconds}")
    if not devices:
        raise ValueError("devices: none to compute on; give at least one")
    loaded = load_world(world, weights=weights, device=devices[0], frameskip=frameskip)
    with open_episodes(dataset) as episodes:
        name, split = task_name(episodes, task), loaded.split
        inputs = {"world": loaded.id, "episodes": episodes_id(episodes)}
        inputs["split"] = content_id(to_json(split))
        stage = Stage(
            folder=as_path(folder, "folder"),
            name=STAGE,
            version=STAGE_VERSION,
            config=config,
            inputs=inputs if task is None else {**inputs, "task": task},
        )
        if not stage.is_complete():
            action_dim, image_size = sizes(episodes)
            require_fits(loaded, action_dim=action_dim, image_size=image_size)
            require_finite_actions(episodes)
            _require_steps(episodes, split)
            with stage.writing() as partial:
                work = _Embedding(episodes, FrameEncoder(loaded.model, devices), config.batch)
                work.run(partial, save_seconds, on_progress)
                _conclude(partial, episodes, loaded, split, name)
    (folder / DONE).unlink(missing_ok=True)
    return open_latents(folder)


def open_latents(folder: str | Path) -> Latents:
    """Open what `embed` wrote.

    Raises:
        ValueError: nothing complete is there, or what is there is damaged.
    """
    folder = as_path(folder, "folder")
    manifest = load_manifest(folder, stage=STAGE)
    arrays = {name: _open_array(folder / name) for name in (LATENTS, ACTIONS, LENGTHS)}
    found = Latents(
        folder=folder,
        id=manifest.id,
        metadata=read_config(LatentsMetadata, folder / CARD),
        z=arrays[LATENTS],
        actions=arrays[ACTIONS],
        lengths=np.asarray(arrays[LENGTHS]),
    )
    _require_whole(found)
    return found


def _require_whole(latents: Latents) -> None:
    """Refuse arrays that do not fit each other: sizes on the disk alone do not tell."""
    metadata, rows = latents.metadata, latents.metadata.rows
    fits = (
        latents.z.shape == (rows, len(metadata.mean))
        and latents.actions.shape == (rows, len(metadata.action_low))
        and latents.lengths.ndim == 1
        and int(latents.lengths.sum()) == rows
        and [str(a.dtype) for a in (latents.z, latents.actions)] == ["float32", "float32"]
        and str(latents.lengths.dtype) == "int64"
        and bool((latents.lengths > 0).all())
    )
    if not fits:
        raise ValueError(f"{latents.folder}: its files do not fit each other; embed anew")


class _Embedding:
    """Fills the array of latents, batch by batch, and notes how far it is safe on the disk."""

    def __init__(self, episodes: Episodes, encode: FrameEncoder, batch: int) -> None:
        self._episodes, self._encode, self._batch = episodes, encode, batch

    def run(self, folder: Path, save_seconds: float, on_progress: OnProgress | None) -> None:
        rows, first = self._episodes.num_rows, _rows_done(folder)
        latents_ND: np.memmap[Any, np.dtype[np.float32]] | None = None
        if first:
            latents_ND = np.lib.format.open_memmap(folder / LATENTS, mode="r+")
        saved = time.monotonic()
        for start, z_BD in self._batches(first):
            if latents_ND is None:
                shape = (rows, z_BD.shape[1])
                latents_ND = _new_array(folder / LATENTS, shape)
            stop = start + len(z_BD)
            latents_ND[start:stop] = z_BD
            if on_progress is not None:
                on_progress(stop, stop - first)
            if stop == rows or time.monotonic() - saved >= save_seconds:
                latents_ND.flush()
                write_json(folder / DONE, {"rows": stop})
                saved = time.monotonic()

    def _batches(self, first: int) -> Iterator[tuple[int, Array]]:
        """First rows and latents of the batches that are left; each is read while one is encoded.

        Batches lie where they would have without an interruption, because an encoder's rounding
        may depend on the batch.
        """
        starts = range(first, self._episodes.num_rows, self._batch)
        frames = prefetched(lambda k: self._read(starts[k]), range(len(starts)))
        for start, batch in zip(starts, frames, strict=True):
            z_BD = self._encode(torch.from_numpy(batch)).cpu()
            if not torch.isfinite(z_BD).all():
                raise ValueError(
                    f"{self._episodes.path}: the latents of rows {start} to "
                    f"{start + len(batch) - 1} are not finite; train another world model"
                )
            yield start, z_BD.numpy()

    def _read(self, start: int) -> Array:
        stop = min(start + self._batch, self._episodes.num_rows)
        return self._episodes.read("pixels", start, stop)


def _new_array(path: Path, shape: tuple[int, int]) -> np.memmap[Any, np.dtype[np.float32]]:
    """An array on the disk, with its space taken: writing into a hole of a full disk is fatal."""
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    size = path.stat().st_size
    with path.open("rb+") as stream:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(stream.fileno(), 0, size)
        else:  # macOS
            stream.seek(array.offset)
            for first in range(array.offset, size, BLOCK):
                stream.write(bytes(min(BLOCK, size - first)))
    return array


def _save_array(path: Path, array: Array) -> None:
    """Plainly, so that a full disk is told by the system's own error."""
    stream = io.BytesIO()
    np.save(stream, array)
    path.write_bytes(stream.getvalue())


def _rows_done(folder: Path) -> int:
    path = folder / DONE
    return int(read_json(path)["rows"]) if path.exists() else 0


def _conclude(
    folder: Path, episodes: Episodes, world: World, split: SplitConfig, task: str | None
) -> None:
    """Write what is left beside the latents."""
    actions_NA = episodes.read("action", 0, episodes.num_rows).astype(np.float32)
    has_action = np.isfinite(actions_NA).all(axis=1)
    train = episodes.window_starts(1, split_episodes(episodes.num_episodes, split).train)
    low, high = _bounds(actions_NA[train[np.isin(train, np.flatnonzero(has_action))]], task)
    actions_NA[~has_action] = 0.0
    _save_array(folder / ACTIONS, actions_NA)
    _save_array(folder / LENGTHS, episodes.lengths)
    save_world(folder / WORLD, "best", world.model, world.actions)
    mean, std = _statistics(_open_array(folder / LATENTS), train)
    metadata = LatentsMetadata(
        world_id=world.id,
        episodes_id=episodes_id(episodes),
        task=task,
        split=split,
        rows=episodes.num_rows,
        mean=tuple(map(float, mean)),
        std=tuple(map(float, std)),
        action_low=low,
        action_high=high,
    )
    write_json(folder / CARD, to_json(metadata))


def _require_steps(episodes: Episodes, split: SplitConfig) -> None:
    """Refuse a dataset without an action to learn from, before anything is written."""
    train = split_episodes(episodes.num_episodes, split).train
    if not (episodes.lengths[train] > 1).any():
        raise ValueError(
            f"{episodes.path}: its training episodes have no step; collect longer ones"
        )


def _bounds(actions_NA: Array, task: str | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The smallest and largest value of each number of an action."""
    if find_task(task) is not None:
        return (-1.0,) * actions_NA.shape[1], (1.0,) * actions_NA.shape[1]
    low, high = actions_NA.min(axis=0), actions_NA.max(axis=0)
    return tuple(map(float, low)), tuple(map(float, high))


def _statistics(latents_ND: Array, rows: Index) -> tuple[Array, Array]:
    """Mean and standard deviation of each number, a part of the rows at a time."""
    starts = range(0, len(rows), STATISTICS_ROWS)
    parts = [rows[at : at + STATISTICS_ROWS] for at in starts]
    mean_D = np.zeros(latents_ND.shape[1])
    for part in parts:
        mean_D += latents_ND[part].sum(axis=0, dtype=np.float64) / len(rows)
    variance_D = np.zeros_like(mean_D)
    for part in parts:
        variance_D += np.square(latents_ND[part] - mean_D).sum(axis=0) / len(rows)
    return mean_D, np.sqrt(variance_D)


def _open_array(path: Path) -> Array:
    try:
        # Copy on write: torch asks for memory that could be written; the file stays as it is.
        return np.load(path, mmap_mode="c", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: damaged or cut short; delete the folder, embed anew") from error
