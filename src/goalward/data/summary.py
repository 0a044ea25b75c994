"""What is in an episode file, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from goalward.data.episodes import Episodes

MOST_ROWS = 200_000  # action statistics read at most so many rows


@dataclass(frozen=True, kw_only=True)
class ColumnSummary:
    """One column, as stored."""

    name: str
    shape: tuple[int, ...]  # a row's
    dtype: str


@dataclass(frozen=True, kw_only=True)
class ActionSummary:
    """Statistics of each action component, over the rows that have an action."""

    rows: int
    mean: list[float]
    std: list[float]
    low: list[float]
    high: list[float]
    roughness: float  # mean norm of the second difference within an episode


@dataclass(frozen=True, kw_only=True)
class Summary:
    """An episode file in numbers."""

    path: str
    attributes: dict[str, str]
    episodes: int
    steps: int  # rows
    shortest: int
    longest: int
    columns: list[ColumnSummary]
    action: ActionSummary


def task_name(episodes: Episodes, given: str | None) -> str | None:
    """The task of a file: what it says itself, or what the user says where it says nothing.

    Raises:
        ValueError: file and user disagree.
    """
    said = episodes.attributes.get("task")
    if given is not None and said is not None and given != said:
        raise ValueError(
            f"{episodes.path} is a file of task {said}, not of {given}; leave --task out"
        )
    return given if said is None else said


def summarise(episodes: Episodes) -> Summary:
    """Summarise an episode file without reading its frames."""
    return Summary(
        path=str(episodes.path),
        attributes=episodes.attributes,
        episodes=episodes.num_episodes,
        steps=episodes.num_rows,
        shortest=int(episodes.lengths.min()),
        longest=int(episodes.lengths.max()),
        columns=[
            ColumnSummary(name=c.name, shape=c.shape, dtype=str(c.dtype))
            for c in episodes.columns.values()
        ],
        action=_summarise_actions(episodes),
    )


def _summarise_actions(episodes: Episodes) -> ActionSummary:
    stop = min(episodes.num_rows, MOST_ROWS)
    action = episodes.read("action", 0, stop)
    action = action.reshape(stop, -1)
    known = ~np.isnan(action).any(axis=1)
    if not known.any():
        raise ValueError(f"{episodes.path}: no row has an action")
    if np.isinf(action).any():
        row = np.argwhere(np.isinf(action))[0, 0]
        raise ValueError(f"{episodes.path}: row {row} of column 'action' holds infinity")
    starts = episodes.window_starts(3)
    starts = starts[starts + 3 <= stop]
    second = action[starts] - 2 * action[starts + 1] + action[starts + 2]
    bends = np.linalg.norm(second, axis=1)
    bends = bends[~np.isnan(bends)]
    acts = action[known]
    return ActionSummary(
        rows=int(known.sum()),
        mean=acts.mean(axis=0).tolist(),
        std=acts.std(axis=0).tolist(),
        low=acts.min(axis=0).tolist(),
        high=acts.max(axis=0).tolist(),
        roughness=float(bends.mean()) if len(bends) else 0.0,
    )
