"""Pairs of a start and a goal, drawn once and stored, so that every controller gets the same ones.

The file holds everything that an evaluation needs: states, goal frames and recorded actions. Its
id is a hash of that content, and every result names it.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from goalward import defaults
from goalward.core.array_files import read_arrays, write_arrays
from goalward.core.arrays import Array
from goalward.core.config import NonNegative, Positive, canonical, config, parse_config, to_json
from goalward.core.random import generator
from goalward.data.episodes import Episodes, episodes_id, open_episodes
from goalward.data.splits import SplitConfig, split_episodes
from goalward.data.windows import sizes
from goalward.defaults import SplitPart
from goalward.tasks import get_task
from goalward.tasks.task import RenderConfig, State, Task

PAIRS = "pairs.safetensors"
METADATA = "metadata"  # key of the file's header
EPISODE, GOAL_FRAMES, RECORDED = "episode", "goal_frames", "recorded"  # names of its arrays
START, GOAL = "start/", "goal/"  # in front of the state columns' names
REMEDY = "draw the pairs again into another folder, or restore the file"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One start and goal: everything that an episode needs, without the dataset."""

    number: int
    episode: int  # that it was drawn from: pairs of one episode may be alike
    start: State
    goal: State
    goal_frame: Array  # as recorded
    recorded: Array  # (goal offset, A) actions that lead from start to goal


@config
class PairsConfig:
    """Which pairs to draw."""

    task: str
    protocol: str = ""  # empty: the task's first one
    count: Positive = defaults.PAIRS
    goal_offset: Positive = defaults.GOAL_OFFSET  # recorded steps from start to goal
    seed: NonNegative = defaults.SEED
    split: SplitPart = "test"  # all: training episodes too, as in the paper
    split_config: SplitConfig = field(default_factory=SplitConfig)

    def __post_init__(self) -> None:
        known = get_task(self.task).protocols
        if not self.protocol:
            object.__setattr__(self, "protocol", next(iter(known)))
        if self.protocol not in known:
            raise ValueError(
                f"task {self.task} has no protocol {self.protocol!r}, only: {', '.join(known)}"
            )


@config
class PairsMetadata:
    """What stored pairs are and where they came from."""

    format: Literal["goalward-pairs"] = "goalward-pairs"
    version: Literal[3] = 3
    config: PairsConfig
    episodes_id: str
    render: RenderConfig  # how the dataset was drawn, and under which physics to evaluate


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Pairs to evaluate controllers on."""

    metadata: PairsMetadata
    pairs: tuple[Pair, ...]

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def task(self) -> Task:
        """The task that they are of."""
        return get_task(self.metadata.config.task)

    @property
    def setting(self) -> tuple[Task, str, RenderConfig]:
        """What simulators of them need: task, protocol, and how to draw."""
        return self.task, self.metadata.config.protocol, self.metadata.render

    @cached_property
    def id(self) -> str:
        """16 hex digits that change with any bit of the pairs."""
        digest = hashlib.sha256(canonical(to_json(self.metadata)).encode())
        for name, values in sorted(_arrays(self.pairs).items()):
            digest.update(canonical([name, str(values.dtype), list(values.shape)]).encode())
            digest.update(np.ascontiguousarray(values).data)
        return digest.hexdigest()[:16]


def draw_pairs(dataset: Path, wanted: PairsConfig) -> Pairs:
    """Draw the pairs of a dataset."""
    protocol = get_task(wanted.task).protocols[wanted.protocol]
    with open_episodes(dataset) as episodes:
        starts = draw_starts(episodes, wanted)
        sizes(episodes)  # refuses a file without frames or actions
        is_fast = episodes.attributes.get("rendering") == "fast"
        ours, theirs = get_task(wanted.task).renderer, episodes.attributes.get("renderer", "1")
        if is_fast and theirs != str(ours):
            raise ValueError(
                f"{dataset}: its frames were drawn by version {theirs} of the task's renderer, and "
                f"this goalward has version {ours}; collect them again"
            )
        render = RenderConfig(
            image_size=episodes.columns["pixels"].shape[0],
            rendering="fast" if is_fast else "environment",
            physics=protocol.physics,
        )
        metadata = PairsMetadata(config=wanted, episodes_id=episodes_id(episodes), render=render)
        return Pairs(metadata=metadata, pairs=read_pairs(episodes, wanted, starts))


def draw_starts(episodes: Episodes, wanted: PairsConfig) -> Array:
    """Draw the rows (count,) of starts whose pairs the protocol admits.

    They are spread evenly: each episode gives one random pair before any gives a second one, so
    that long stretches of a few episodes do not decide the result.
    """
    among = None
    if wanted.split != "all":
        split = split_episodes(episodes.num_episodes, wanted.split_config)
        among = split.test if wanted.split == "test" else split.validation
    task = get_task(wanted.task)
    every = episodes.window_starts(wanted.goal_offset + 1, among)
    ends = (state_rows(episodes, task, every + k) for k in (0, wanted.goal_offset))
    admitted = every[task.protocols[wanted.protocol].admits(*ends)]
    if len(admitted) < wanted.count:
        raise ValueError(
            f"asked for {wanted.count} pairs, but {len(admitted)} of the {len(every)} pairs in "
            f"{episodes.path} are admitted; ask for fewer or collect more episodes"
        )
    shuffled = generator("pairs", wanted.seed).permutation(admitted)
    return _one_an_episode_first(shuffled, episodes)[: wanted.count]


def _one_an_episode_first(rows: Array, episodes: Episodes) -> Array:
    """The rows with every episode's first before any episode's second."""
    seen: Counter[int] = Counter()
    turns = []
    for episode in _owners(rows, episodes).tolist():
        turns.append(seen[episode])
        seen[episode] += 1
    return rows[np.argsort(turns, kind="stable")]


def _owners(rows: Array, episodes: Episodes) -> Array:
    """The episode of each row."""
    return np.asarray(np.searchsorted(episodes.offsets, rows, side="right") - 1)


def read_pairs(episodes: Episodes, wanted: PairsConfig, starts: Array) -> tuple[Pair, ...]:
    """States, goal frames and recorded actions of the pairs with these start rows."""
    task, goals = get_task(wanted.task), starts + wanted.goal_offset
    return _pairs(
        _owners(starts, episodes),
        episodes.rows("pixels", goals),
        episodes.windows(starts, wanted.goal_offset, columns=["action"])["action"],
        state_rows(episodes, task, starts),
        state_rows(episodes, task, goals),
    )


def state_rows(episodes: Episodes, task: Task, index: Array) -> State:
    """The state columns of many rows at once; refuses a file that lacks what the task needs."""
    if lacking := [name for name in task.restore_columns if name not in episodes.columns]:
        raise ValueError(
            f"{episodes.path} lacks the column {lacking[0]!r}, which task {task.name} needs; "
            f"it has: {', '.join(episodes.columns)}"
        )
    found = {}
    for name in [name for name in task.state_columns if name in episodes.columns]:
        shape, width = episodes.columns[name].shape, task.state_columns[name]
        if shape != (width,):
            raise ValueError(
                f"{episodes.path}: a row of column {name!r} has shape {shape}, but task "
                f"{task.name} needs ({width},); is this a file of another task?"
            )
        found[name] = episodes.rows(name, index)
        bad = np.flatnonzero(~np.isfinite(found[name]).all(axis=1))
        if bad.size:
            row = np.asarray(index)[bad[0]]
            raise ValueError(f"{episodes.path}: row {row} of column {name!r} holds NaN or infinity")
    return found


def save_pairs(path: Path, pairs: Pairs) -> None:
    """Write the pairs with their checksum; the write is atomic."""
    arrays = _arrays(pairs.pairs)
    # Frames are most of the file, and of a few colours.
    arrays[GOAL_FRAMES] = np.frombuffer(zlib.compress(arrays[GOAL_FRAMES].tobytes()), np.uint8)
    write_arrays(path, arrays, {METADATA: canonical(to_json(pairs.metadata))})


def load_pairs(path: Path) -> Pairs:
    """Read pairs that `save_pairs` wrote; refuses any changed byte."""
    arrays, header = read_arrays(path)
    if GOAL_FRAMES not in arrays:
        raise ValueError(f"{path}: not a file of pairs; pass one that `goalward evaluate` wrote")
    metadata = parse_config(PairsMetadata, header[METADATA].encode(), path)
    side, task = metadata.render.image_size, get_task(metadata.config.task)
    start, goal = (
        {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}
        for prefix in (START, GOAL)
    )
    if missing := [name for name in task.restore_columns if name not in start]:
        raise ValueError(f"{path}: lacks {missing[0]!r}, which task {task.name} needs; {REMEDY}")
    frames = np.frombuffer(zlib.decompress(arrays[GOAL_FRAMES].tobytes()), np.uint8)
    frames = frames.reshape(-1, side, side, 3)
    pairs = _pairs(arrays[EPISODE], frames, arrays[RECORDED], start, goal)
    return Pairs(metadata=metadata, pairs=pairs)


def _arrays(pairs: Sequence[Pair]) -> dict[str, Array]:
    """All pairs as one array a column."""
    return {
        EPISODE: np.array([pair.episode for pair in pairs], dtype=np.int64),
        GOAL_FRAMES: np.stack([pair.goal_frame for pair in pairs]),
        RECORDED: np.stack([pair.recorded for pair in pairs]),
        **{START + name: np.stack([pair.start[name] for pair in pairs]) for name in pairs[0].start},
        **{GOAL + name: np.stack([pair.goal[name] for pair in pairs]) for name in pairs[0].goal},
    }


def _pairs(
    episode: Array, goal_frames: Array, recorded: Array, start: State, goal: State
) -> tuple[Pair, ...]:
    """One pair for each row."""
    return tuple(
        Pair(
            number=k,
            episode=int(episode[k]),
            start={name: values[k] for name, values in start.items()},
            goal={name: values[k] for name, values in goal.items()},
            goal_frame=goal_frames[k],
            recorded=recorded[k],
        )
        for k in range(len(episode))
    )
