"""Chosen episodes as pictures: the demonstration and every method on the same pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from PIL.ImageColor import getrgb

from goalward import defaults
from goalward.core.arrays import Array
from goalward.core.config import content_id
from goalward.core.figures import GREEN, GRID, INK, VERMILION
from goalward.core.files import atomic_write
from goalward.evaluation.pairs import Pair, Pairs
from goalward.evaluation.rollout import run_wave
from goalward.evaluation.run import Run
from goalward.evaluation.simulators import SimulatorPool, simulator_pool

MIN_TILE = 96  # pixels a side that a frame is shown at, at least
WHITE = "#FFFFFF"
COLOURS = {None: INK, True: GREEN, False: VERMILION}  # of a verdict
SHADE = 0.2  # part of green in a frame that shows success
HOLD = 1000  # milliseconds that a GIF's last frame stays
MAX_SPEED = 50  # frames a second; viewers slow down what asks for more
PALETTE_FRAMES = 32  # of each strip, to choose a GIF's colours by
EDGES = ("#666666", "#999999", "#CCCCCC", "#80CEB9", "#EAAE80")  # of letters on white
RESERVED = (WHITE, INK, GREEN, VERMILION, GRID, *EDGES)  # colours of every GIF

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass(frozen=True, kw_only=True)
class Strip:
    """One way from the start towards the goal; a strip that is not judged is a demonstration."""

    label: str  # such as "demonstration", "CEM", "GC-IDM"
    frames: Array  # uint8 (T, side, side, 3), from the start on
    success: bool | None  # at the last frame; None: not judged

    @property
    def steps(self) -> int:
        """Steps from the first frame to the last."""
        return len(self.frames) - 1

    @property
    def outcome(self) -> str:
        """How it ended, in words."""
        words = "" if self.success is None else "solved in " if self.success else "failed after "
        return f"{words}{self.steps} step{'' if self.steps == 1 else 's'}"

    def at(self, step: int) -> tuple[Array, bool | None]:
        """The frame at a step, where the last stays for ever, and the verdict once it is known."""
        return self.frames[min(step, self.steps)], self.success if step >= self.steps else None


def save_filmstrip(
    path: Path,
    start: Array,
    goal: Array,
    strips: Sequence[Strip],
    *,
    title: str,
    columns: int = 10,
) -> None:
    """Write a PNG: start and goal at the left, then a row of evenly spaced frames for each strip.

    Judged strips share one time axis, the longest one's: those that ended earlier keep showing
    their last frame. A demonstration has its own. The same input gives the same bytes.

    Args:
        path: The file, which appears whole or not at all.
        start: uint8 (side, side, 3).
        goal: uint8 (side, side, 3).
        strips: At least one, in order from the top.
        title: One line above all.
        columns: Frames in a row, where the time axis has so many.

    Raises:
        ValueError: There are no strips, fewer than two columns, or frames of another kind or size.
    """
    if columns < 2:
        raise ValueError(f"columns: {columns} given, but a filmstrip has at least 2")
    _require_frames({"start": start, "goal": goal}, strips)
    with atomic_write(path) as temporary:
        _filmstrip(start, goal, strips, title, columns).save(temporary, format="PNG")


def save_gif(
    path: Path, goal: Array, strips: Sequence[Strip], *, frames_per_second: int = 10
) -> None:
    """Write a GIF that loops: the goal and all strips side by side, on one time axis.

    A strip that ended keeps showing its last frame, with a border and how it ended. The last frame
    of all stays for a second. The same input gives the same bytes.

    Args:
        path: The file, which appears whole or not at all.
        goal: uint8 (side, side, 3).
        strips: At least one, in order from the left.
        frames_per_second: 1 to 50; a GIF counts in hundredths of a second.

    Raises:
        ValueError: There are no strips, a speed out of bounds, or frames of another kind or size.
    """
    if not 1 <= frames_per_second <= MAX_SPEED:
        raise ValueError(f"frames_per_second: {frames_per_second} is not between 1 and {MAX_SPEED}")
    _require_frames({"goal": goal}, strips)
    palette = _palette(goal, strips)
    pages = [
        _indexed(_gif_page(goal, strips, step), palette)
        for step in range(max(len(strip.frames) for strip in strips))
    ]
    durations = [round(100 / frames_per_second) * 10] * (len(pages) - 1) + [HOLD]
    with atomic_write(path) as temporary:
        pages[0].save(
            temporary,
            format="GIF",
            save_all=True,
            append_images=pages[1:],
            duration=durations,
            loop=0,
            palette=palette.tobytes(),  # once, not with every page
        )


def _require_frames(references: dict[str, Array], strips: Sequence[Strip]) -> None:
    """Refuse what cannot be drawn."""
    if not strips:
        raise ValueError("strips: there are none, but a picture needs at least one")
    named = list(references.items()) + [(f"frames of '{s.label}'", s.frames) for s in strips]
    for k, (name, frames) in enumerate(named):
        shape = ("side", "side", 3) if k < len(references) else ("T", "side", "side", 3)
        fits = frames.ndim == len(shape) and frames.shape[-1] == 3 and frames.size
        if frames.dtype != np.uint8 or not fits or frames.shape[-2] != frames.shape[-3]:
            kind = f"uint8 ({', '.join(map(str, shape))})"
            raise ValueError(f"{name}: {frames.dtype} {frames.shape} given, but {kind} is needed")
        side, first = frames.shape[-2], named[0][1].shape[-2]
        if side != first:
            raise ValueError(f"{name}: {side} pixels a side, but {named[0][0]} has {first}")


@dataclass(frozen=True, kw_only=True)
class _Look:
    """Sizes in pixels: of a shown frame, of what is between them, and of small and large type."""

    tile: int
    gap: int
    margin: int
    border: int
    small: int
    large: int

    @property
    def row(self) -> int:
        """Height of a frame, of its caption and of the space around them."""
        return self.tile + 2 * self.small + self.gap


def _look(frame: Array) -> _Look:
    """Frames at a whole multiple of their size, so that their pixels stay alike."""
    tile = len(frame) * -(-MIN_TILE // len(frame))
    gap, border, small, large = tile // 12, tile // 32, tile // 8, tile // 7
    return _Look(tile=tile, gap=gap, margin=2 * gap, border=border, small=small, large=large)


class _Sheet:
    """A white picture, and how texts and frames are drawn on it; no verdict, no mark."""

    def __init__(self, look: _Look, width: int, height: int) -> None:
        self.look = look
        self.image = Image.new("RGB", (width, height), WHITE)
        self._pen = ImageDraw.Draw(self.image)

    def text(self, x: int, y: int, text: str, size: int, anchor: str, colour: str = INK) -> None:
        """Draw a text whose anchor, in Pillow's letters, is at (x, y)."""
        self._pen.text((x, y), text, fill=colour, font=_font(size), anchor=anchor)

    def tile(
        self, x: int, y: int, frame: Array, verdict: bool | None = None, *, shade: bool = False
    ) -> None:
        """Draw a frame with its top left corner at (x, y), and a border around it."""
        border, colour = (1, GRID) if verdict is None else (self.look.border, COLOURS[verdict])
        end = self.look.tile + border - 1
        self._pen.rectangle((x - border, y - border, x + end, y + end), fill=colour)
        size = (self.look.tile, self.look.tile)
        image = Image.fromarray(frame).resize(size, Image.Resampling.NEAREST)
        if shade and verdict:
            image = Image.blend(image, Image.new("RGB", size, GREEN), SHADE)
        self.image.paste(image, (x, y))

    def caption(self, x: int, y: int, text: str, verdict: bool | None = None) -> None:
        """Draw a remark centred under the frame at (x, y)."""
        x += (self.look.tile - _remark_width(text, verdict, self.look)) // 2
        self.remark(x, y + self.look.tile + self.look.small, text, verdict)

    def remark(self, x: int, y: int, text: str, verdict: bool | None) -> None:
        """Draw the mark of a verdict and a text, from x on and centred on y."""
        size = self.look.small
        if verdict is not None:
            self._mark(x, y, size // 3, verdict)
            x += size
        self.text(x, y, text, size, "lm", COLOURS[verdict])

    def _mark(self, x: int, y: int, half: int, verdict: bool) -> None:
        """Draw a tick or a cross, which the font does not have."""
        tick = (((0.0, 0.1), (0.7, 0.9), (2.0, -0.9)),)
        cross = ((0.1, -0.9), (1.9, 0.9)), ((0.1, 0.9), (1.9, -0.9))
        for stroke in tick if verdict else cross:
            points = [(x + half * right, y + half * down) for right, down in stroke]
            self._pen.line(points, fill=COLOURS[verdict], width=max(2, half // 2), joint="curve")


def _filmstrip(
    start: Array, goal: Array, strips: Sequence[Strip], title: str, columns: int
) -> Image.Image:
    look, axes = _look(goal), _time_axes(strips, columns)
    label_width = max(_width(strip.label, look.large) for strip in strips)
    left = 2 * look.margin + look.tile + label_width + look.margin  # of the first column
    right = left + max(map(len, axes)) * (look.tile + look.gap) + look.gap
    end = right + max(_remark_width(strip.outcome, strip.success, look) for strip in strips)
    top, rows = 2 * look.margin + look.large, max(2, len(strips))
    width = max(end, look.margin + _width(title, look.large)) + look.margin
    sheet = _Sheet(look, width, top + rows * look.row + look.gap)
    sheet.text(look.margin, look.margin, title, look.large, "la")
    for name, frame, row in (("start", start, 0), ("goal", goal, rows - 1)):
        sheet.tile(look.margin, top + row * look.row, frame)
        sheet.caption(look.margin, top + row * look.row, name)
    for row, (strip, axis) in enumerate(zip(strips, axes, strict=True)):
        y = top + row * look.row
        sheet.text(left - look.margin, y + look.tile // 2, strip.label, look.large, "rm")
        _draw_strip(sheet, left, y, strip, axis)
        sheet.remark(right, y + look.tile // 2, strip.outcome, strip.success)
    return sheet.image


def _draw_strip(sheet: _Sheet, x: int, y: int, strip: Strip, axis: Array) -> None:
    """Draw a row of frames; those from its end on show the last, with border and mark."""
    for step in axis.tolist():
        frame, verdict = strip.at(step)
        sheet.tile(x, y, frame, verdict, shade=True)
        sheet.caption(x, y, f"t = {step}", verdict)
        x += sheet.look.tile + sheet.look.gap


def _time_axes(strips: Sequence[Strip], columns: int) -> list[Array]:
    """The steps that each strip shows: fewer than the columns where it took fewer."""
    shared = max((strip.steps for strip in strips if strip.success is not None), default=0)
    ends = (strip.steps if strip.success is None else shared for strip in strips)
    return [np.unique(np.linspace(0, end, columns).round().astype(int)) for end in ends]


def _gif_page(goal: Array, strips: Sequence[Strip], step: int) -> Image.Image:
    """All panels at a step; its number is on the page, so no two pages are the same."""
    look = _look(goal)
    labels = max(_width(strip.label, look.large) for strip in strips)
    outcomes = max(_remark_width(strip.outcome, strip.success, look) for strip in strips)
    pitch = max(look.tile, labels, outcomes) + look.margin
    top = 2 * look.gap + look.large
    sheet = _Sheet(look, look.margin + (1 + len(strips)) * pitch, top + look.row)
    x = (look.margin + pitch - look.tile) // 2
    sheet.text(x + look.tile // 2, look.gap, "goal", look.large, "ma")
    sheet.tile(x, top, goal)
    for strip in strips:
        x += pitch
        frame, verdict = strip.at(step)
        sheet.text(x + look.tile // 2, look.gap, strip.label, look.large, "ma")
        sheet.tile(x, top, frame, verdict)
        sheet.caption(x, top, f"t = {step}" if step < strip.steps else strip.outcome, verdict)
    return sheet.image


def _palette(goal: Array, strips: Sequence[Strip]) -> Array:
    """Up to 256 colours for all pages, so that none flickers; texts' and borders' are exact.

    Returns:
        uint8 (K, 3).
    """
    shown = [goal[None]]
    for strip in strips:
        steps = np.linspace(0, strip.steps, PALETTE_FRAMES).round().astype(int)
        shown.append(strip.frames[np.unique(steps)])
    column = Image.fromarray(np.concatenate(shown).reshape(-1, len(goal), 3))
    parts = column.quantize(256 - len(RESERVED), Image.Quantize.MEDIANCUT).getpalette() or []
    colours = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return np.array(list(dict.fromkeys([*map(getrgb, RESERVED), *colours])), dtype=np.uint8)


def _indexed(page: Image.Image, palette_K3: Array) -> Image.Image:
    """The page in the nearest colours; Pillow's own search turns white into nearly white."""
    packed = np.asarray(page).astype(np.int64) @ np.array([1 << 16, 1 << 8, 1])
    found, inverse = np.unique(packed, return_inverse=True)
    colours_N3 = found[:, None] >> np.array([16, 8, 0]) & 255
    far_NK = ((colours_N3[:, None] - palette_K3.astype(np.int64)) ** 2).sum(axis=2)
    index = far_NK.argmin(axis=1).astype(np.uint8)[inverse].reshape(packed.shape)
    indexed = Image.fromarray(index)
    indexed.putpalette(palette_K3.tobytes())
    return indexed


def _width(text: str, size: int) -> int:
    """Pixels that a text takes, rounded up."""
    return -int(-_font(size).getlength(text) // 1)


def _remark_width(text: str, verdict: bool | None, look: _Look) -> int:
    return _width(text, look.small) + (0 if verdict is None else look.small)


@cache
def _font(size: int) -> Font:
    return ImageFont.load_default(size=size)


SHOWN = 1  # pairs, if none are named


def require_pairs(shown: Sequence[int], count: int) -> None:
    """Refuse to show pairs that there are not.

    Raises:
        ValueError: there is no pair of that number.
    """
    for number in shown:
        if not 0 <= number < count:
            raise ValueError(f"there is no pair {number}, only 0 to {count - 1}")


def save_comparison(
    folder: Path,
    pairs: Pairs,
    runs: Sequence[Run],
    *,
    shown: Sequence[int] = tuple(range(SHOWN)),
    budget: int = defaults.BUDGET,
) -> list[Path]:
    """Write a filmstrip and a GIF of each shown pair, unless they are there; returns the paths.

    Args:
        folder: Where to write.
        pairs: Of an evaluation.
        runs: The methods to show; of several seeds of one, the first.
        shown: Numbers of the pairs.
        budget: Steps an episode may take.

    Raises:
        ValueError: there is no pair of that number.
    """
    require_pairs(shown, len(pairs.attempts))
    methods = list({run.method.name: run for run in reversed(runs)}.values())[::-1]
    about = [
        budget,
        pairs.id,
        [(run.method.name, run.method.model_id, run.seed) for run in methods],
    ]
    drawn = content_id(about)[:6]  # other methods have pictures of their own
    names = [(number, _paths(folder, f"pair-{number}-{drawn}")) for number in shown]
    missing = [(number, paths) for number, paths in names if not all(p.exists() for p in paths)]
    if missing:
        metadata = pairs.metadata
        task, protocol = metadata.config.task, metadata.config.protocol
        with simulator_pool(task, protocol, metadata.scene, number=1, workers=1) as pool:
            for number, paths in missing:
                attempt = pairs.attempts[number]
                strips = [
                    _demonstration(pool, attempt),
                    *(_strip(run, pool, attempt, budget) for run in methods),
                ]
                title = f"{task}, pair {number}"
                start = strips[0].frames[0]
                save_filmstrip(paths[0], start, attempt.goal_frame, strips, title=title)
                save_gif(paths[1], attempt.goal_frame, strips)
    return [path for _, paths in names for path in paths]


def _paths(folder: Path, name: str) -> tuple[Path, Path]:
    return folder / f"{name}.png", folder / f"{name}.gif"


def _demonstration(pool: SimulatorPool, attempt: Pair) -> Strip:
    """The recorded actions, replayed."""
    frames = [pool.begin({0: (attempt.start, attempt.goal)})[0].frame]
    frames += [pool.step({0: action})[0].frame for action in attempt.recorded]
    return Strip(label="demonstration", frames=np.stack(frames), success=None)


def _strip(run: Run, pool: SimulatorPool, attempt: Pair, budget: int) -> Strip:
    (episode,) = run_wave(run.method.make(run.seed), pool, [attempt], budget=budget)
    label = run.method.name.partition(":")[0]  # settings would leave the frames no room
    return Strip(label=label, frames=episode.frames, success=episode.success)
