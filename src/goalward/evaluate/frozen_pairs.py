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
from goalward.checks import given_path, shown
from goalward.config import canonical, parse_config, require_at_least, require_types, to_json
from goalward.data.episodes import Episodes, Index, open_episodes
from goalward.data.identity import episodes_id
from goalward.data.splits import SplitConfig, split_episodes
from goalward.evaluate.pairs import Attempt, attempts, draw_pairs
from goalward.files import appearing
from goalward.tasks import get_task
from goalward.tasks.spec import ProtocolName, Row, SceneConfig
from goalward.types import Array
from goalward.world.windows import sizes

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
    protocol: ProtocolName = "paper"
    count: int = defaults.PAIRS
    offset: int = defaults.GOAL_OFFSET  # recorded steps from start to goal
    seed: int = defaults.SEED
    episodes: EpisodeSet = "test"  # all: training episodes too, as in the paper
    split: SplitConfig = field(default_factory=SplitConfig)

    def __post_init__(self) -> None:
        require_types(self)
        get_task(self.task)
        require_at_least(self, 1, "count", "offset")
        require_at_least(self, 0, "seed")


@dataclass(frozen=True, kw_only=True, slots=True)
class PairsCard:
    """What frozen pairs are and where they came from."""

    format: Literal["goalward-pairs"] = "goalward-pairs"
    version: Literal[2] = 2
    config: PairsConfig
    episodes_id: str
    scene: SceneConfig  # how the dataset was drawn, and under which physics to evaluate


@dataclass(frozen=True, kw_only=True)
class FrozenPairs:
    """Pairs to evaluate."""

    card: PairsCard
    attempts: tuple[Attempt, ...]

    @cached_property
    def id(self) -> str:
        """16 hex digits that change with any bit of the pairs."""
        digest = hashlib.sha256(canonical(to_json(self.card)).encode())
        for name, values in sorted(_arrays(self.attempts).items()):
            digest.update(canonical([name, str(values.dtype), list(values.shape)]).encode())
            digest.update(np.ascontiguousarray(values).data)
        return digest.hexdigest()[:16]


def freeze_pairs(dataset: Path, config: PairsConfig) -> FrozenPairs:
    """Draw the pairs of a dataset.

    Raises:
        ValueError: the protocol admits fewer pairs than asked for, or the file lacks columns.
    """
    if not isinstance(config, PairsConfig):
        raise ValueError(f"config must be a PairsConfig, got {shown(config)}")
    task = get_task(config.task)
    protocol = task.protocols[config.protocol]
    with open_episodes(dataset) as episodes:
        pairs = draw_pairs(
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
        scene = SceneConfig(
            image_size=episodes.columns["pixels"].shape[0],
            rendering="fast" if rendering == "fast" else "environment",
            physics=protocol.physics,
        )
        card = PairsCard(config=config, episodes_id=episodes_id(episodes), scene=scene)
        return FrozenPairs(card=card, attempts=tuple(attempts(episodes, task, pairs)))


def save_pairs(path: Path, pairs: FrozenPairs) -> None:
    """Write the pairs; the file appears whole or not at all."""
    card = np.frombuffer(canonical(to_json(pairs.card)).encode(), dtype=np.uint8)
    arrays: dict[str, Any] = {CARD: card, **_arrays(pairs.attempts)}
    with appearing(path) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, **arrays)


def load_pairs(path: str | Path) -> FrozenPairs:
    """Read pairs that `save_pairs` wrote.

    Raises:
        ValueError: the file is missing, something else, or damaged.
    """
    path = given_path(path)
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
    card = parse_config(PairsCard, arrays[CARD].tobytes(), path)
    starts, goals = (_columns(arrays, prefix) for prefix in (START, GOAL))
    _require_whole(path, card, arrays, (starts, goals))
    rows = range(card.config.count)
    found = tuple(
        Attempt(
            pair=k,
            episode=int(arrays[EPISODE][k]),
            start={name: values[k] for name, values in starts.items()},
            goal={name: values[k] for name, values in goals.items()},
            goal_frame=arrays[GOAL_FRAMES][k],
            recorded=arrays[RECORDED][k],
        )
        for k in rows
    )
    return FrozenPairs(card=card, attempts=found)


def _require_whole(
    path: Path,
    card: PairsCard,
    arrays: Mapping[str, Array],
    states: tuple[Mapping[str, Array], ...],
) -> None:
    """Refuse arrays that do not fit the card or each other."""
    task, count = get_task(card.config.task), card.config.count
    size = card.scene.image_size
    frames, recorded, episodes = arrays[GOAL_FRAMES], arrays[RECORDED], arrays[EPISODE]
    fits = (
        episodes.shape == (count,)
        and episodes.dtype.kind in "iu"
        and bool((episodes >= 0).all())
        and frames.shape == (count, size, size, 3)
        and frames.dtype == np.uint8
        and recorded.shape == (count, card.config.offset, task.action_dim)
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


def _arrays(work: tuple[Attempt, ...]) -> dict[str, Array]:
    return {
        EPISODE: np.array([attempt.episode for attempt in work], dtype=np.int64),
        GOAL_FRAMES: np.stack([attempt.goal_frame for attempt in work]),
        RECORDED: np.stack([attempt.recorded for attempt in work]),
        **_stacked(START, [attempt.start for attempt in work]),
        **_stacked(GOAL, [attempt.goal for attempt in work]),
    }


def _stacked(prefix: str, rows: list[Row]) -> dict[str, Array]:
    return {prefix + name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _columns(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {
        name.removeprefix(prefix): values
        for name, values in arrays.items()
        if name.startswith(prefix)
    }
