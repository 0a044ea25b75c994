"""What an episode file holds: numbers, why training would refuse it, and a contact sheet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from goalward.core.arrays import Array, spread
from goalward.core.files import atomic_write
from goalward.data.episodes import Episodes
from goalward.data.windows import require_finite_actions, sizes
from goalward.tasks import get_task

ACTION_ROWS = 200_000  # action statistics read at most so many rows

EPISODES_SHOWN, FRAMES_SHOWN = 4, 8  # on the contact sheet
# In pixels: sides of a frame, gaps, space for labels at the left and above.
TILE, GAP, MARGIN, HEADER = 128, 4, 64, 24
BACKGROUND, INK = (250, 250, 250), (40, 40, 40)


@dataclass(frozen=True)
class ColumnSummary:
    """One column, as stored."""

    name: str
    shape: tuple[int, ...]  # of a row
    dtype: str


@dataclass(frozen=True, kw_only=True)
class ActionSummary:
    """Statistics of each number of an action, over the rows that have an action."""

    rows: int
    mean: list[float]
    std: list[float]
    low: list[float]
    high: list[float]
    roughness: float  # mean norm of the second difference within an episode


@dataclass(frozen=True, kw_only=True)
class EpisodesSummary:
    """An episode file in numbers."""

    path: str
    task: str | None  # None: neither the file nor the caller states it
    attributes: dict[str, str]
    episodes: int
    steps: int  # rows
    shortest: int
    longest: int
    columns: list[ColumnSummary]
    action: ActionSummary | None  # None: there are no actions
    problems: list[str]  # why training would refuse the file
    solved_pairs: Mapping[str, float] = field(default_factory=dict)  # protocol -> share of pairs
    contact_sheet: str | None = None  # where it was written


def task_name(episodes: Episodes, given: str | None) -> str | None:
    """The task that a file states or, where it states none, the one that the caller gives."""
    if given is not None:
        given = get_task(given).name
    stated = episodes.attributes.get("task")
    if given is not None and stated is not None and given != stated:
        raise ValueError(
            f"{episodes.path} is a file of task {stated}, not of {given}; leave --task out"
        )
    return given if stated is None else stated


def summarise(
    episodes: Episodes,
    task: str | None = None,
    *,
    solved_pairs: Mapping[str, float] | None = None,
) -> EpisodesSummary:
    """Summarise an episode file without reading its frames.

    Args:
        episodes: The file.
        task: Its task, where the file does not state it.
        solved_pairs: Share of the pairs that are solved at the start, by protocol: the caller's
            to measure, since it needs the evaluation.
    """
    problems = [_refusal(check, episodes) for check in (sizes, require_finite_actions)]
    return EpisodesSummary(
        path=str(episodes.path),
        task=task_name(episodes, task),
        attributes=episodes.attributes,
        episodes=episodes.num_episodes,
        steps=episodes.num_rows,
        shortest=int(episodes.lengths.min()),
        longest=int(episodes.lengths.max()),
        columns=[ColumnSummary(c.name, c.shape, str(c.dtype)) for c in episodes.columns.values()],
        action=_summarise_actions(episodes) if "action" in episodes.columns else None,
        problems=list(dict.fromkeys(filter(None, problems))),
        solved_pairs=dict(solved_pairs or {}),
    )


def _refusal(check: Callable[[Episodes], object], episodes: Episodes) -> str:
    try:
        check(episodes)
    except ValueError as error:
        return str(error)
    return ""


def _summarise_actions(episodes: Episodes) -> ActionSummary | None:
    stop = min(episodes.num_rows, ACTION_ROWS)
    action = episodes.read("action", 0, stop).reshape(stop, -1)
    acts = action[np.isfinite(action).all(axis=1)]
    if not len(acts):
        return None
    starts = episodes.window_starts(3)
    starts = starts[starts + 3 <= stop]
    bends = np.linalg.norm(action[starts] - 2 * action[starts + 1] + action[starts + 2], axis=1)
    bends = bends[np.isfinite(bends)]
    return ActionSummary(
        rows=len(acts),
        mean=acts.mean(axis=0).tolist(),
        std=acts.std(axis=0).tolist(),
        low=acts.min(axis=0).tolist(),
        high=acts.max(axis=0).tolist(),
        roughness=float(bends.mean()) if len(bends) else 0.0,
    )


def save_contact_sheet(episodes: Episodes, path: Path) -> None:
    """Write evenly spaced frames (columns) of evenly spaced episodes (rows) as a PNG."""
    chosen = spread(episodes.num_episodes, EPISODES_SHOWN)
    size = (MARGIN + FRAMES_SHOWN * (TILE + GAP), len(chosen) * (TILE + GAP + HEADER))
    sheet = Image.new("RGB", size, BACKGROUND)
    for row, episode in enumerate(chosen):
        steps = spread(episodes.lengths[episode], FRAMES_SHOWN)
        frames = episodes.rows("pixels", episodes.offsets[episode] + steps)
        _draw_row(sheet, row * (TILE + GAP + HEADER), episode, steps, frames)
    with atomic_write(path) as temporary:
        sheet.save(temporary, format="PNG")


def _draw_row(sheet: Image.Image, top: int, episode: int, steps: list[int], frames: Array) -> None:
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=14)
    pen.text((8, top + HEADER + TILE // 2 - 8), f"ep {episode}", fill=INK, font=font)
    for column, (step, frame) in enumerate(zip(steps, frames, strict=True)):
        left = MARGIN + column * (TILE + GAP)
        pen.text((left, top + 5), f"t = {step}", fill=INK, font=font)
        tile = Image.fromarray(frame).resize((TILE, TILE), Image.Resampling.NEAREST)
        sheet.paste(tile, (left, top + HEADER))
