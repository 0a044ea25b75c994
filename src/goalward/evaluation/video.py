"""Chosen pairs as pictures: the demonstration and every controller on the same pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from goalward import defaults
from goalward.core.arrays import Array
from goalward.core.config import content_id
from goalward.core.figures import GREEN, INK, VERMILION
from goalward.core.files import atomic_write
from goalward.evaluation.pairs import Pair, Pairs
from goalward.evaluation.rollout import run_batch
from goalward.evaluation.simulators import SimulatorController, SimulatorPools, replay_policy
from goalward.evaluation.specs import ControllerSpec, first_seeds

COLOURS = {None: INK, True: GREEN, False: VERMILION}  # by success
TILE, GAP, FONT = 128, 12, 13  # pixels: least side of a frame, space between, type
FRAME_MS, LAST_MS = 100, 1000  # milliseconds that a GIF's frames stay
Panel = tuple[str, str, Array, bool | None]  # text above, text below, frame, success


@dataclass(frozen=True, kw_only=True)
class Strip:
    """One trajectory to draw; a demonstration has no success to show."""

    label: str  # such as "demonstration", "cem", "gc-idm"
    frames: Array  # uint8 (T, side, side, 3), from the start on
    success: bool | None  # at the last frame

    @property
    def steps(self) -> int:
        """Steps from the first frame to the last."""
        return len(self.frames) - 1

    @property
    def outcome(self) -> str:
        """How it ended, in words."""
        words = "" if self.success is None else "solved in " if self.success else "failed after "
        return f"{words}{self.steps} step{'' if self.steps == 1 else 's'}"

    def panel(self, step: int) -> Panel:
        """The frame at a step; the last one stays, with how it ended."""
        if step < self.steps:
            return self.label, f"t = {step}", self.frames[step], None
        return self.label, self.outcome, self.frames[-1], self.success


def save_filmstrip(
    path: Path, start: Array, goal: Array, strips: Sequence[Strip], *, title: str, columns: int = 10
) -> None:
    """Write a PNG: start and goal, then a row of evenly spaced frames for each strip.

    Controllers share one time axis, the longest one's. A demonstration has its own. The write is
    atomic, and always gives the same bytes.
    """
    shared = max((strip.steps for strip in strips if strip.success is not None), default=0)
    rows: list[list[Panel]] = [[("start", "", start, None), ("goal", "", goal, None)]]
    for strip in strips:
        end = strip.steps if strip.success is None else shared
        steps = np.unique(np.linspace(0, end, columns).round().astype(int))
        rows.append([strip.panel(step) for step in steps])
    with atomic_write(path) as temporary:
        _page(rows, strips, title).save(temporary, format="PNG")


def save_gif(path: Path, goal: Array, strips: Sequence[Strip]) -> None:
    """Write a GIF that loops: the goal and all strips side by side, on one time axis.

    The write is atomic, and always gives the same bytes.
    """
    steps = range(max(strip.steps for strip in strips) + 1)
    still: Panel = ("goal", "", goal, None)
    rows = [[still, *(strip.panel(step) for strip in strips)] for step in steps]
    pages = [_page([row], strips) for row in rows]
    durations = [FRAME_MS] * (len(pages) - 1) + [LAST_MS]
    with atomic_write(path) as temporary:
        pages[0].save(
            temporary,
            format="GIF",
            save_all=True,
            append_images=pages[1:],
            duration=durations,
            loop=0,
        )


def _page(rows: Sequence[Sequence[Panel]], strips: Sequence[Strip], title: str = "") -> Image.Image:
    """Panels of strips in rows; the colour of a border shows success."""
    font, side = ImageFont.load_default(size=FONT), len(rows[0][0][2])
    tile = -(-TILE // side) * side  # a whole multiple, so that pixels stay square
    texts = [text for strip in strips for text in (strip.label, strip.outcome)]
    pitch = int(max(tile, *map(font.getlength, texts))) + GAP
    top, height = 2 * FONT if title else 0, tile + 4 * FONT + GAP
    size = (GAP + pitch * max(map(len, rows)), top + height * len(rows))
    page = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(page)
    pen.text((GAP, FONT // 2), title, fill=INK, font=font)
    for line, row in enumerate(rows):
        for column, (label, caption, frame, success) in enumerate(row):
            x, y = GAP + column * pitch, top + line * height + 2 * FONT
            shown = Image.fromarray(frame).resize((tile, tile), Image.Resampling.NEAREST)
            page.paste(shown, (x, y))
            if success is not None:
                box = (x - 4, y - 4, x + tile + 3, y + tile + 3)
                pen.rectangle(box, outline=COLOURS[success], width=4)
            pen.text((x, y - 2 * FONT + FONT // 3), label, fill=INK, font=font)
            pen.text((x, y + tile + FONT // 2), caption, fill=COLOURS[success], font=font)
    return page


def require_pairs(numbers: Sequence[int], count: int) -> None:
    """Refuse to draw pairs that do not exist."""
    for number in numbers:
        if not 0 <= number < count:
            raise ValueError(f"there is no pair {number}, only 0 to {count - 1}")


def save_comparison(
    folder: Path,
    pairs: Pairs,
    specs: Sequence[ControllerSpec],
    *,
    numbers: Sequence[int] = (0,),
    budget: int = defaults.BUDGET,
) -> list[Path]:
    """Write a filmstrip and a GIF of each pair, unless they exist already; returns the paths.

    Args:
        folder: Where to write.
        pairs: Of an evaluation.
        specs: The controllers to show; of several seeds of one, the first.
        numbers: Of the pairs to draw.
        budget: Steps an episode may take.
    """
    shown = first_seeds(specs)
    about = [(spec.name, spec.model_id, spec.seed) for spec in shown]
    drawn = content_id([budget, pairs.id, about])[:6]  # other controllers have other pictures
    paths = []
    with SimulatorPools() as pools:
        simulators = pools.use(*pairs.setting, 1)
        for pair in (pairs.pairs[number] for number in numbers):
            png, gif = (folder / f"pair-{pair.number}-{drawn}.{kind}" for kind in ("png", "gif"))
            paths += [png, gif]
            if png.exists() and gif.exists():
                continue
            strips = [_demonstration(simulators, pair)]
            strips += [_strip(spec, simulators, pair, budget) for spec in shown]
            title = f"{pairs.task.name}, pair {pair.number}"
            save_filmstrip(png, strips[0].frames[0], pair.goal_frame, strips, title=title)
            save_gif(gif, pair.goal_frame, strips)
    return paths


def _demonstration(pool: SimulatorPools, pair: Pair) -> Strip:
    """The recorded actions, replayed."""
    replay = SimulatorController(policy=replay_policy)
    results = [pool.begin({0: pair}, replay)[0]]
    results += [pool.step({0: None})[0] for _ in pair.recorded]
    frames = np.stack([result.frame for result in results])
    return Strip(label="demonstration", frames=frames, success=None)


def _strip(spec: ControllerSpec, pool: SimulatorPools, pair: Pair, budget: int) -> Strip:
    (episode,) = run_batch(spec.controller(), pool, [pair], budget=budget)
    label = spec.name.partition(":")[0]  # settings would leave the frames no room
    return Strip(label=label, frames=episode.frames, success=episode.success)
