"""A contact sheet: frames of a few episodes side by side, to see what a dataset shows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from goalward.core.arrays import Array
from goalward.core.files import atomic_write
from goalward.data.episodes import Episodes
from goalward.tasks import get_task

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
        ValueError: file and user disagree, or the user's task is unknown.
    """
    if given is not None:
        get_task(given)  # refuses an unknown name
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


TILE = 128  # pixels a side that a frame is shown at
GAP = 4
MARGIN = 64  # left, for the episode's number
HEADER = 24  # above each row, for the step numbers
BACKGROUND, INK = (250, 250, 250), (40, 40, 40)


def contact_sheet(episodes: Episodes, *, num_episodes: int = 4, num_frames: int = 8) -> Image.Image:
    """Evenly spaced frames (columns) of evenly spaced episodes (rows), with their numbers."""
    chosen = np.unique(np.linspace(0, episodes.num_episodes - 1, num_episodes).round().astype(int))
    width = MARGIN + num_frames * (TILE + GAP)
    sheet = Image.new("RGB", (width, len(chosen) * (TILE + GAP + HEADER)), BACKGROUND)
    for row, episode in enumerate(chosen):
        steps = np.unique(
            np.linspace(0, episodes.lengths[episode] - 1, num_frames).round().astype(int)
        )
        frames = episodes.rows("pixels", episodes.offsets[episode] + steps)
        _draw_row(sheet, row * (TILE + GAP + HEADER), int(episode), steps, frames)
    return sheet


def _draw_row(sheet: Image.Image, top: int, episode: int, steps: Array, frames: Array) -> None:
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=14)
    pen.text((8, top + HEADER + TILE // 2 - 8), f"ep {episode}", fill=INK, font=font)
    for column, (step, frame) in enumerate(zip(steps, frames, strict=True)):
        left = MARGIN + column * (TILE + GAP)
        pen.text((left, top + 5), f"t = {step}", fill=INK, font=font)
        shown = Image.fromarray(frame).resize((TILE, TILE), Image.Resampling.NEAREST)
        sheet.paste(shown, (left, top + HEADER))


def save_contact_sheet(episodes: Episodes, path: Path) -> None:
    """Write the contact sheet as a PNG; after a failure there is no half-written file."""
    with atomic_write(path) as temporary:
        contact_sheet(episodes).save(temporary, format="PNG")
