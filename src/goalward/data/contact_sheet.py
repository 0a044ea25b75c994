"""A contact sheet: frames of a few episodes side by side, to see what a dataset shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from goalward.data.episodes import Episodes
from goalward.files import appearing
from goalward.types import Array

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
    with appearing(path) as temporary:
        contact_sheet(episodes).save(temporary, format="PNG")
