"""Pairs drawn once and frozen to a file, so that every method is judged by the same ones.

The file holds all that an evaluation needs: states, goal frames and recorded actions. Its id is a
hash of that content, and every result names it.
"""

from __future__ import annotations

import hashlib
import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from goalward import defaults
from goalward.core.arrays import Array
from goalward.core.checks import as_path, describe, format_value, whole_number
from goalward.core.config import canonical, parse_config, require_at_least, require_types, to_json
from goalward.core.files import atomic_write
from goalward.core.random import generator
from goalward.data.episodes import Episodes, Index, episodes_id, open_episodes
from goalward.data.splits import SplitConfig, split_episodes
from goalward.data.windows import sizes
from goalward.defaults import GOAL_OFFSET
from goalward.tasks import get_task
from goalward.tasks.task import Protocol, RenderConfig, State, Task


@dataclass(frozen=True, kw_only=True)
class PairIndex:
    """Global row numbers of starts and goals, each of shape (n,)."""

    start_rows: Array
    goal_rows: Array

    def __post_init__(self) -> None:
        for name in ("start_rows", "goal_rows"):
            rows = getattr(self, name)
            if not isinstance(rows, np.ndarray) or rows.ndim != 1 or rows.dtype.kind not in "iu":
                raise ValueError(f"{name} must be integers of shape (n,), got {describe(rows)}")
        if len(self.start_rows) != len(self.goal_rows):
            raise ValueError(
                f"start_rows and goal_rows must be as many, got {len(self.start_rows)} and "
                f"{len(self.goal_rows)}"
            )

    def __len__(self) -> int:
        return len(self.start_rows)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One pair to be run: all that it takes, without the dataset."""

    pair: int  # its number
    episode: int  # that it was drawn from: pairs of the same one may be alike
    start: State
    goal: State
    goal_frame: Array  # as recorded
    recorded: Array  # (offset, A) actions that lead from start to goal


def attempts(episodes: Episodes, task: Task, pairs: PairIndex) -> list[Pair]:
    """The pairs' states, goal frames and recorded actions, read at once.

    Raises:
        ValueError: there are no pairs, they are not equally far apart, or the file lacks columns.
    """
    offsets = np.unique(pairs.goal_rows - pairs.start_rows)
    if len(offsets) != 1 or offsets[0] < 1:
        raise ValueError(
            f"pairs must all be as many steps apart, at least 1, got {format_value(offsets)}"
        )
    starts = state_rows(episodes, task, pairs.start_rows)
    goals = state_rows(episodes, task, pairs.goal_rows)
    frames = episodes.rows("pixels", pairs.goal_rows)
    actions = episodes.windows(pairs.start_rows, int(offsets[0]), columns=["action"])["action"]
    owners = _owners(pairs.start_rows, episodes)
    return [
        Pair(
            pair=k,
            episode=int(owners[k]),
            start={name: values[k] for name, values in starts.items()},
            goal={name: values[k] for name, values in goals.items()},
            goal_frame=frames[k],
            recorded=actions[k],
        )
        for k in range(len(pairs))
    ]


def state_rows(episodes: Episodes, task: Task, index: Array) -> State:
    """The state columns of many rows at once.

    Raises:
        ValueError: the file lacks a column that this task cannot do without.
    """
    for name in task.restore_columns:
        if name not in episodes.columns:
            raise ValueError(
                f"{episodes.path} lacks the column {name!r}, which task {task.name} needs; "
                f"it has: {', '.join(episodes.columns)}"
            )
    names = [name for name in task.state_columns if name in episodes.columns]
    return {name: _state_column(episodes, task, name, index) for name in names}


def _state_column(episodes: Episodes, task: Task, name: str, index: Array) -> Array:
    shape, width = episodes.columns[name].shape, task.state_columns[name]
    if shape != (width,):
        raise ValueError(
            f"{episodes.path}: a row of column {name!r} has shape {shape}, but task {task.name} "
            f"needs ({width},); is this a file of another task?"
        )
    values = episodes.rows(name, index)
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if bad.size:
        row = np.asarray(index)[bad[0]]
        raise ValueError(f"{episodes.path}: row {row} of column {name!r} holds NaN or infinity")
    return values


def candidate_pairs(
    episodes: Episodes, *, offset: int = GOAL_OFFSET, among: Array | None = None
) -> PairIndex:
    """Every pair that is `offset` steps apart within one of the episodes."""
    whole_number(offset, "offset")
    starts = episodes.window_starts(offset + 1, among)
    return PairIndex(start_rows=starts, goal_rows=starts + offset)


def draw_pair_index(
    episodes: Episodes,
    task: Task,
    protocol: Protocol,
    count: int,
    *,
    seed: int,
    offset: int = GOAL_OFFSET,
    among: Array | None = None,
) -> PairIndex:
    """Draw pairs that the protocol admits, spread evenly over the episodes.

    Each episode gives one random pair before any gives a second one, so that long stretches of a
    few episodes do not decide the result.

    Raises:
        ValueError: the protocol admits fewer pairs than asked for.
    """
    whole_number(count, "count", least=0)
    pairs = candidate_pairs(episodes, offset=offset, among=among)
    start = state_rows(episodes, task, pairs.start_rows)
    goal = state_rows(episodes, task, pairs.goal_rows)
    admitted = pairs.start_rows[protocol.admits(start, goal)] if len(pairs) else pairs.start_rows
    if count < 1 or len(admitted) < count:
        raise ValueError(
            f"asked for {count} pairs, but {len(admitted)} of the {len(pairs)} pairs in "
            f"{episodes.path} are admitted; ask for fewer or collect more episodes"
        )
    chosen = _one_an_episode_first(admitted, episodes, generator("pairs", seed))[:count]
    return PairIndex(start_rows=chosen, goal_rows=chosen + offset)


def _one_an_episode_first(rows: Array, episodes: Episodes, rng: np.random.Generator) -> Array:
    """Rows in random order, but every episode's first before any episode's second."""
    shuffled = rng.permutation(rows)
    owner = _owners(shuffled, episodes)
    by_owner = np.argsort(owner, kind="stable")
    _, first, counts = np.unique(owner[by_owner], return_index=True, return_counts=True)
    turn = np.empty(len(rows), dtype=np.int64)
    turn[by_owner] = np.arange(len(rows)) - np.repeat(first, counts)
    return shuffled[np.argsort(turn, kind="stable")]


def _owners(rows: Array, episodes: Episodes) -> Array:
    """The episode of each row."""
    owners: Array = np.searchsorted(episodes.offsets, rows, side="right") - 1
    return owners


CARD, EPISODE, GOAL_FRAMES, RECORDED = "card", "episode", "goal_frames", "recorded"
START, GOAL = "start/", "goal/"  # in front of the columns' names
UNREADABLE = (  # what numpy and the zip format answer to bytes that are none of theirs
    *(OSError, ValueError, EOFError, LookupError, TypeError, AttributeError, RuntimeError),
    *(MemoryError, OverflowError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, tokenize.TokenError),
)

EpisodeSet = Literal["test", "validation", "all"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PairsConfig:
    """Which pairs to draw."""

    task: str
    protocol: str = "paper"
    count: int = defaults.PAIRS
    offset: int = defaults.GOAL_OFFSET  # recorded steps from start to goal
    seed: int = defaults.SEED
    episodes: EpisodeSet = "test"  # all: training episodes too, as in the paper
    split: SplitConfig = field(default_factory=SplitConfig)

    def __post_init__(self) -> None:
        require_types(self)
        if self.protocol not in (known := get_task(self.task).protocols):
            raise ValueError(
                f"task {self.task} has no protocol {self.protocol!r}, only: {', '.join(known)}"
            )
        require_at_least(self, 1, "count", "offset")
        require_at_least(self, 0, "seed")


@dataclass(frozen=True, kw_only=True, slots=True)
class PairsMetadata:
    """What frozen pairs are and where they came from."""

    format: Literal["goalward-pairs"] = "goalward-pairs"
    version: Literal[2] = 2
    config: PairsConfig
    episodes_id: str
    scene: RenderConfig  # how the dataset was drawn, and under which physics to evaluate


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Pairs to evaluate."""

    metadata: PairsMetadata
    attempts: tuple[Pair, ...]

    @cached_property
    def id(self) -> str:
        """16 hex digits that change with any bit of the pairs."""
        digest = hashlib.sha256(canonical(to_json(self.metadata)).encode())
        for name, values in sorted(_arrays(self.attempts).items()):
            digest.update(canonical([name, str(values.dtype), list(values.shape)]).encode())
            digest.update(np.ascontiguousarray(values).data)
        return digest.hexdigest()[:16]


def draw_pairs(dataset: Path, config: PairsConfig) -> Pairs:
    """Draw the pairs of a dataset.

    Raises:
        ValueError: the protocol admits fewer pairs than asked for, or the file lacks columns.
    """
    if not isinstance(config, PairsConfig):
        raise ValueError(f"config must be a PairsConfig, got {format_value(config)}")
    task = get_task(config.task)
    protocol = task.protocols[config.protocol]
    with open_episodes(dataset) as episodes:
        pairs = draw_pair_index(
            episodes,
            task,
            protocol,
            config.count,
            seed=config.seed,
            offset=config.offset,
            among=_chosen(episodes, config),
        )
        sizes(episodes)  # refuses a file without frames or actions
        rendering = episodes.attributes.get("rendering", "environment")
        scene = RenderConfig(
            image_size=episodes.columns["pixels"].shape[0],
            rendering="fast" if rendering == "fast" else "environment",
            physics=protocol.physics,
        )
        metadata = PairsMetadata(config=config, episodes_id=episodes_id(episodes), scene=scene)
        return Pairs(metadata=metadata, attempts=tuple(attempts(episodes, task, pairs)))


def save_pairs(path: Path, pairs: Pairs) -> None:
    """Write the pairs; the file appears whole or not at all."""
    metadata = np.frombuffer(canonical(to_json(pairs.metadata)).encode(), dtype=np.uint8)
    arrays: dict[str, Any] = {CARD: metadata, **_arrays(pairs.attempts)}
    with atomic_write(path) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, **arrays)


def load_pairs(path: str | Path) -> Pairs:
    """Read pairs that `save_pairs` wrote.

    Raises:
        ValueError: the file is missing, something else, or damaged.
    """
    path = as_path(path)
    if not path.is_file():
        raise ValueError(f"{path}: no such file of pairs; draw the pairs first")
    try:
        # Opened here, because numpy leaves a file open that is none of its own.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except UNREADABLE as error:
        raise ValueError(f"{path}: no file of pairs, or damaged; draw the pairs anew") from error
    if not {CARD, EPISODE, GOAL_FRAMES, RECORDED} <= arrays.keys():
        raise ValueError(f"{path}: not a file of pairs; give one that `goalward evaluate` wrote")
    metadata = parse_config(PairsMetadata, arrays[CARD].tobytes(), path)
    starts, goals = (_columns(arrays, prefix) for prefix in (START, GOAL))
    _require_whole(path, metadata, arrays, (starts, goals))
    rows = range(metadata.config.count)
    found = tuple(
        Pair(
            pair=k,
            episode=int(arrays[EPISODE][k]),
            start={name: values[k] for name, values in starts.items()},
            goal={name: values[k] for name, values in goals.items()},
            goal_frame=arrays[GOAL_FRAMES][k],
            recorded=arrays[RECORDED][k],
        )
        for k in rows
    )
    return Pairs(metadata=metadata, attempts=found)


def _require_whole(
    path: Path,
    metadata: PairsMetadata,
    arrays: Mapping[str, Array],
    states: tuple[Mapping[str, Array], ...],
) -> None:
    """Refuse arrays that do not fit the card or each other."""
    task, count = get_task(metadata.config.task), metadata.config.count
    size = metadata.scene.image_size
    frames, recorded, episodes = arrays[GOAL_FRAMES], arrays[RECORDED], arrays[EPISODE]
    fits = (
        episodes.shape == (count,)
        and episodes.dtype.kind in "iu"
        and bool((episodes >= 0).all())
        and frames.shape == (count, size, size, 3)
        and frames.dtype == np.uint8
        and recorded.shape == (count, metadata.config.offset, task.action_dim)
        and recorded.dtype.kind == "f"
        and all(set(task.restore_columns) <= rows.keys() for rows in states)
        and all(
            values.shape == (count, task.state_columns.get(name, 0))
            and values.dtype.kind in "iuf"
            and np.isfinite(values).all()
            for rows in states
            for name, values in rows.items()
        )
    )
    if not fits:
        raise ValueError(f"{path}: its parts do not fit each other; draw the pairs anew")


def _chosen(episodes: Episodes, config: PairsConfig) -> Index | None:
    if config.episodes == "all":
        return None
    split = split_episodes(episodes.num_episodes, config.split)
    return split.test if config.episodes == "test" else split.validation


def _arrays(work: tuple[Pair, ...]) -> dict[str, Array]:
    return {
        EPISODE: np.array([attempt.episode for attempt in work], dtype=np.int64),
        GOAL_FRAMES: np.stack([attempt.goal_frame for attempt in work]),
        RECORDED: np.stack([attempt.recorded for attempt in work]),
        **_stacked(START, [attempt.start for attempt in work]),
        **_stacked(GOAL, [attempt.goal for attempt in work]),
    }


def _stacked(prefix: str, rows: list[State]) -> dict[str, Array]:
    return {prefix + name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _columns(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {
        name.removeprefix(prefix): values
        for name, values in arrays.items()
        if name.startswith(prefix)
    }
