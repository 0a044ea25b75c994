"""The stage `embed`: every frame of a dataset through a frozen encoder, once.

The folder has everything that controllers are trained on: the latents, which are memory-mapped;
the actions; the episodes' lengths; and a copy of the world model that made the latents, or the
name of the registered encoder that did.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from goalward import defaults
from goalward.core.arrays import Array
from goalward.core.artifacts import Stage, open_stage
from goalward.core.config import config, content_id, read_config, to_json, write_json
from goalward.data.episodes import Episodes, Index, episodes_id, open_episodes
from goalward.data.splits import Split, SplitConfig, split_episodes
from goalward.data.summary import task_name
from goalward.data.windows import prefetched, require_finite_actions, sizes
from goalward.tasks import find_task
from goalward.world.checkpoint import (
    Weights,
    World,
    load_world,
    require_fits,
    require_world,
    save_world,
)
from goalward.world.frozen import FrameEncoder
from goalward.world.protocol import Encoder, NamedEncoder, get_encoder, is_encoder_name

STAGE, STAGE_VERSION = "embed", 2
METADATA, WORLD, ENCODER = "metadata.json", "world", "encoder.json"
LATENTS, ACTIONS, LENGTHS = "latents.npy", "actions.npy", "lengths.npy"
STATISTICS_ROWS = 65_536  # at a time
CPU = (torch.device("cpu"),)

OnProgress = Callable[[int, int], None]  # (rows done, rows of this session)


@config
class EmbedConfig:
    """What the latents depend on, beside the dataset and the encoder."""

    batch: Annotated[int, Field(ge=1, le=2**20)] = defaults.EMBED_BATCH  # frames in a call


@dataclass(frozen=True, kw_only=True, slots=True)
class LatentsMetadata:
    """Describes the latents; statistics are over the training episodes alone."""

    world_id: str  # of the encoder
    episodes_id: str
    task: str | None
    split: SplitConfig  # of the world model's training
    rows: int
    mean: tuple[float, ...]  # of each number of a latent
    std: tuple[float, ...]
    action_low: tuple[float, ...]  # the task's bounds; for a task of your own, the data's
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

    def encoder(self) -> Encoder:
        """The world model, or the registered encoder, that made the latents."""
        if (self.folder / WORLD).is_dir():
            return load_world(self.folder / WORLD)
        return self.named_encoder().load(self.metadata.world_id)

    def named_encoder(self) -> NamedEncoder:
        """The registered encoder that made the latents, as files refer to it."""
        if not (self.folder / ENCODER).is_file():
            raise ValueError(
                f"{self.folder}: latents of an encoder without a name; register it with "
                "register_encoder, and embed the dataset by that name into another folder"
            )
        return read_config(NamedEncoder, self.folder / ENCODER)

    def world(self) -> World:
        """The world model that made the latents."""
        return require_world(self.encoder())

    def require_made_by(self, world_id: str) -> None:
        """Refuse latents of another encoder than the one with this id."""
        if self.metadata.world_id != world_id:
            raise ValueError(
                f"{self.folder}: latents of world model {self.metadata.world_id}, but the "
                f"controller was trained on those of {world_id}; embed the dataset with that model"
            )


def embed(
    world: str | Path | Encoder,
    dataset: Path,
    folder: Path,
    config: EmbedConfig | None = None,
    *,
    weights: Weights = "best",
    task: str | None = None,
    frameskip: int = defaults.FRAMESKIP,
    devices: Sequence[torch.device] = CPU,
    on_progress: OnProgress | None = None,
) -> Latents:
    """Embed a dataset into the stage folder `folder`, or find it complete there.

    `world` is the folder of a world model, an encoder, or the name of a registered one. An
    interrupted embedding is resumed. Batches are shared between the devices.
    """
    config = config or EmbedConfig()
    name = None
    if isinstance(world, Encoder):
        encoder = world
    elif is_encoder_name(str(world)):
        name, encoder = str(world), get_encoder(str(world))
    else:
        encoder = load_world(world, weights=weights, device=devices[0], frameskip=frameskip)
    split = encoder.split if isinstance(encoder, World) else SplitConfig()
    with open_episodes(dataset) as episodes:
        inputs = {"world": encoder.id, "episodes": episodes_id(episodes)}
        inputs |= {"split": content_id(to_json(split)), **({"task": task} if task else {})}
        stage = Stage(
            folder=folder, name=STAGE, version=STAGE_VERSION, config=config, inputs=inputs
        )
        if not stage.is_complete():
            _require_fitting(episodes, encoder, split)
            with stage.writing() as partial:
                encode, size = FrameEncoder(encoder, devices), (config.batch, encoder.latent_dim)
                _write_latents(partial / LATENTS, episodes, encode, size, on_progress)
                _conclude(partial, episodes, encoder, split, task_name(episodes, task))
                if isinstance(encoder, World):
                    save_world(partial / WORLD, "best", encoder.model, encoder.actions)
                elif name is not None:
                    side, dim = encoder.image_size, encoder.latent_dim
                    record = NamedEncoder(name=name, image_size=side, latent_dim=dim)
                    write_json(partial / ENCODER, to_json(record))
    return open_latents(folder)


def open_latents(folder: Path) -> Latents:
    """Open what `embed` wrote; every file must be as it was written."""
    return Latents(
        folder=folder,
        id=open_stage(folder, STAGE).id,
        metadata=read_config(LatentsMetadata, folder / METADATA),
        z=_open_array(folder / LATENTS),
        actions=_open_array(folder / ACTIONS),
        lengths=np.asarray(_open_array(folder / LENGTHS)),
    )


def _open_array(path: Path) -> Array:
    # Copy on write: torch asks for memory that can be written; the file does not change.
    return np.load(path, mmap_mode="c", allow_pickle=False)


def _require_fitting(episodes: Episodes, encoder: Encoder, split: SplitConfig) -> None:
    """Refuse a dataset that cannot be embedded, before anything is written."""
    if isinstance(encoder, World):
        require_fits(encoder.model.config, episodes)
    else:
        sizes(episodes)
        require_finite_actions(episodes)
    train = split_episodes(episodes.num_episodes, split).train
    if not (episodes.lengths[train] > 1).any():
        raise ValueError(
            f"{episodes.path}: its training episodes have no step; collect longer ones"
        )


def _write_latents(
    path: Path,
    episodes: Episodes,
    encode: FrameEncoder,
    size: tuple[int, int],
    on_progress: OnProgress | None,
) -> None:
    """Append to the .npy file the batches that it lacks; `size` is (frames, D) of a batch.

    Each is read while the one before it is encoded. They begin where they would without an
    interruption: an encoder's rounding may depend on the batch.
    """
    (batch, dim), rows, header = size, episodes.num_rows, io.BytesIO()
    layout = {"descr": "<f4", "fortran_order": False, "shape": (rows, dim)}
    np.lib.format.write_array_header_1_0(header, layout)
    before, batch_bytes = len(header.getvalue()), batch * dim * 4

    def read(number: int) -> Array:
        return episodes.read("pixels", number * batch, min((number + 1) * batch, rows))

    with path.open("ab") as stream:
        done = max(0, stream.tell() - before) // batch_bytes
        stream.truncate(before + done * batch_bytes if done else 0)
        stream.write(b"" if done else header.getvalue())
        numbers = range(done, -(-rows // batch))
        for number, frames in zip(numbers, prefetched(read, numbers), strict=True):
            z_BD, first = encode(torch.from_numpy(frames)).cpu(), number * batch
            _require_latents(z_BD, (len(frames), dim), f"{episodes.path}, from row {first} on")
            stream.write(z_BD.numpy().tobytes())
            stream.flush()  # then a killed process loses no batch
            if on_progress is not None:
                stop = first + len(frames)
                on_progress(stop, stop - done * batch)


def _require_latents(z_BD: Tensor, wanted: tuple[int, int], where: str) -> None:
    if z_BD.shape != wanted:
        raise ValueError(
            f"{where}: latents of {wanted[0]} frames have shape {tuple(z_BD.shape)}, expected "
            f"{wanted}; correct the encoder's latent_dim"
        )
    if not torch.isfinite(z_BD).all():
        raise ValueError(f"{where}: latents are not finite; train another world model")


def _conclude(
    folder: Path, episodes: Episodes, encoder: Encoder, split: SplitConfig, task: str | None
) -> None:
    """Write actions, lengths and metadata beside the latents."""
    actions_NA = episodes.read("action", 0, episodes.num_rows).astype(np.float32)
    has_action = np.isfinite(actions_NA).all(axis=1)
    train = episodes.window_starts(1, split_episodes(episodes.num_episodes, split).train)
    acted_MA = actions_NA[np.intersect1d(train, np.flatnonzero(has_action))]
    if find_task(task) is not None:
        low, high = -np.ones(actions_NA.shape[1]), np.ones(actions_NA.shape[1])
    else:
        low, high = acted_MA.min(axis=0), acted_MA.max(axis=0)
    actions_NA[~has_action] = 0.0
    np.save(folder / ACTIONS, actions_NA)
    np.save(folder / LENGTHS, episodes.lengths)
    mean, std = _statistics(_open_array(folder / LATENTS), train)
    metadata = LatentsMetadata(
        world_id=encoder.id,
        episodes_id=episodes_id(episodes),
        task=task,
        split=split,
        rows=episodes.num_rows,
        mean=tuple(mean.tolist()),
        std=tuple(std.tolist()),
        action_low=tuple(low.tolist()),
        action_high=tuple(high.tolist()),
    )
    write_json(folder / METADATA, to_json(metadata))


def _statistics(latents_ND: Array, rows: Index) -> tuple[Array, Array]:
    """Mean and standard deviation of each number, over some rows at a time."""
    parts = [rows[at : at + STATISTICS_ROWS] for at in range(0, len(rows), STATISTICS_ROWS)]
    mean_D = np.zeros(latents_ND.shape[1])
    for part in parts:
        mean_D += latents_ND[part].sum(axis=0, dtype=np.float64) / len(rows)
    variance_D = np.zeros_like(mean_D)
    for part in parts:
        variance_D += np.square(latents_ND[part] - mean_D).sum(axis=0) / len(rows)
    return mean_D, np.sqrt(variance_D)
