"""Start and goal pairs: a row of an episode, and the row some steps later."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from goalward.checks import described, shown, whole_number
from goalward.data.episodes import Episodes
from goalward.defaults import GOAL_OFFSET
from goalward.seeding import generator
from goalward.tasks.spec import Protocol, Row, Task
from goalward.types import Array


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Global row numbers of starts and goals, each of shape (n,)."""

    start_rows: Array
    goal_rows: Array

    def __post_init__(self) -> None:
        for name in ("start_rows", "goal_rows"):
            rows = getattr(self, name)
            if not isinstance(rows, np.ndarray) or rows.ndim != 1 or rows.dtype.kind not in "iu":
                raise ValueError(f"{name} must be integers of shape (n,), got {described(rows)}")
        if len(self.start_rows) != len(self.goal_rows):
            raise ValueError(
                f"start_rows and goal_rows must be as many, got {len(self.start_rows)} and "
                f"{len(self.goal_rows)}"
            )

    def __len__(self) -> int:
        return len(self.start_rows)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One pair to be run: all that it takes, without the dataset."""

    pair: int  # its number
    episode: int  # that it was drawn from: pairs of the same one may be alike
    start: Row
    goal: Row
    goal_frame: Array  # as recorded
    recorded: Array  # (offset, A) actions that lead from start to goal


def attempts(episodes: Episodes, task: Task, pairs: Pairs) -> list[Attempt]:
    """The pairs' states, goal frames and recorded actions, read at once.

    Raises:
        ValueError: there are no pairs, they are not equally far apart, or the file lacks columns.
    """
    offsets = np.unique(pairs.goal_rows - pairs.start_rows)
    if len(offsets) != 1 or offsets[0] < 1:
        raise ValueError(f"pairs must all be as many steps apart, at least 1, got {shown(offsets)}")
    starts = state_rows(episodes, task, pairs.start_rows)
    goals = state_rows(episodes, task, pairs.goal_rows)
    frames = episodes.rows("pixels", pairs.goal_rows)
    actions = episodes.windows(pairs.start_rows, int(offsets[0]), columns=["action"])["action"]
    owners = _owners(pairs.start_rows, episodes)
    return [
        Attempt(
            pair=k,
            episode=int(owners[k]),
            start={name: values[k] for name, values in starts.items()},
            goal={name: values[k] for name, values in goals.items()},
            goal_frame=frames[k],
            recorded=actions[k],
        )
        for k in range(len(pairs))
    ]


def state_rows(episodes: Episodes, task: Task, index: Array) -> Row:
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
) -> Pairs:
    """Every pair that is `offset` steps apart within one of the episodes."""
    whole_number(offset, "offset")
    starts = episodes.window_starts(offset + 1, among)
    return Pairs(start_rows=starts, goal_rows=starts + offset)


def draw_pairs(
    episodes: Episodes,
    task: Task,
    protocol: Protocol,
    count: int,
    *,
    seed: int,
    offset: int = GOAL_OFFSET,
    among: Array | None = None,
) -> Pairs:
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
    return Pairs(start_rows=chosen, goal_rows=chosen + offset)


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
