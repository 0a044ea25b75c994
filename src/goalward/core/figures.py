"""The style of all figures: colours, panels, legends, curves over training steps, the file.

matplotlib is imported inside the functions, because its import is slow, and used through its
objects, because pyplot keeps global state. Shapes: M points of a curve.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from goalward.core.arrays import Array
from goalward.core.console import duration
from goalward.core.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Okabe & Ito's colours, which colour-blind readers can distinguish too.
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, BLACK = "#CC79A7", "#56B4E9", "#000000"
CYCLE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
INK, GRID = "#333333", "#E3E3E3"
DPI = 150
SMALL = 8  # points of the type of labels and legends
PANEL_WIDTH, PANEL_HEIGHT, HEADING_HEIGHT = 3.7, 2.7, 0.6  # inches
MIN_WIDTH = 6.0  # inches that a heading needs
MOST_LEGEND_COLUMNS = 4
POINTS_PER_INCH = 72
LEGEND_MARK = 4.8  # ems that a legend's mark with its margins needs

STEP, SECONDS = "step", "seconds"
SMOOTHED_PART = 40  # a smoothed line averages over 1/40 of its curve
SPARSE = 40  # a curve of at most this number of points shows each of them

Curve = tuple[Array, Array]  # steps (M,) and values (M,)
History = Sequence[Mapping[str, float]]  # rows with "step" and any of the other keys


def curves_of(history: History) -> dict[str, Curve]:
    """The finite values of every key in order of appearance, without times and mere zeros."""
    curves: dict[str, Curve] = {}
    for name in dict.fromkeys(name for row in history for name in row):
        points = [(r[STEP], r[name]) for r in history if math.isfinite(r.get(name, math.nan))]
        steps, values = np.array(points, dtype=np.float64).reshape(-1, 2).T
        if name != STEP and not name.endswith(SECONDS) and values.any():
            curves[name] = (steps, values)
    return curves


def effort(history: History) -> str:
    """Such as '12,000 steps in 1 h 05 min'."""
    steps = f"{max(row[STEP] for row in history):,.0f} steps"
    seconds = max((row[SECONDS] for row in history if SECONDS in row), default=None)
    return steps if seconds is None else f"{steps} in {duration(seconds)}"


def smooth(values: Array) -> Array:
    """A centred moving average whose window is cut at the ends."""
    window = np.ones(2 * (len(values) // (2 * SMOOTHED_PART)) + 1)
    return np.convolve(values, window, "same") / np.convolve(np.ones_like(values), window, "same")


def rows_and_columns(number: int) -> tuple[int, int]:
    """Rows of up to three panels, of about the same length."""
    rows = -(-number // 3)
    return rows, -(-number // rows)


def panels_size(rows: float, columns: int) -> tuple[float, float]:
    """Width and height in inches of a figure with a heading; 0.5 is a row of half the height."""
    return max(PANEL_WIDTH * columns, MIN_WIDTH), PANEL_HEIGHT * rows + HEADING_HEIGHT


def new_figure(width: float, height: float) -> Figure:
    """An empty white figure, in inches, whose texts do not overlap."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)  # inches
    figure = Figure(figsize=(width, height), dpi=DPI, layout=layout, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write a PNG or, by the path's suffix, an SVG, atomically; equal figures give equal bytes."""
    from matplotlib import rc_context

    vector = path.suffix == ".svg"
    metadata = {"Date": None} if vector else {"Software": None}
    with atomic_write(path) as temporary, rc_context({"svg.hashsalt": "goalward"}):
        figure.savefig(temporary, format="svg" if vector else "png", metadata=metadata)


def save_panels(
    path: Path, title: str, history: History, panels: Sequence[Callable[[Axes], None]]
) -> None:
    """Write a training's panels in rows below its title, number of steps and time."""
    rows, columns = rows_and_columns(len(panels))
    figure = new_figure(*panels_size(rows, columns))
    add_heading(figure, title, effort(history))
    places = figure.subplots(rows, columns, squeeze=False).flat
    for axes, draw in zip(places, panels, strict=False):
        draw(axes)
    for axes in places[len(panels) :]:
        axes.remove()
    save_figure(figure, path)


def add_heading(figure: Figure, *lines: str) -> None:
    """Write lines above all panels."""
    figure.suptitle("\n".join(lines), fontsize=11, color=INK, wrap=True)


def style_axes(axes: Axes, title: str) -> None:
    """Title, spines and grid of a panel."""
    axes.set_title(title, fontsize=10, color=INK, loc="left")
    axes.tick_params(labelsize=SMALL, colors=INK, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)


def label_axes(axes: Axes, x: str, y: str = "") -> None:
    """Name what the axes show."""
    axes.set_xlabel(x, fontsize=SMALL, color=INK)
    axes.set_ylabel(y, fontsize=SMALL, color=INK)


def label_steps(axes: Axes) -> None:
    """Training steps along x, with few and short numbers."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.margins(x=0.02)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    label_axes(axes, "training step")


def add_legend(axes: Axes) -> None:
    """A legend without a frame, where it hides least."""
    # loc is explicit, because matplotlib would warn of its own choice on a slow machine.
    axes.legend(loc="best", fontsize=SMALL, frameon=False, labelcolor=INK)


def add_common_legend(figure: Figure, axes: Axes) -> None:
    """A legend below all panels, of what one of them shows, in columns that fit the width."""
    from matplotlib.textpath import TextPath

    handles, names = axes.get_legend_handles_labels()
    widths = [TextPath((0, 0), name, size=SMALL).get_extents().width for name in names]
    column = (SMALL * LEGEND_MARK + max(widths, default=0.0)) / POINTS_PER_INCH
    columns = max(1, min(len(names), MOST_LEGEND_COLUMNS, int(figure.get_figwidth() / column)))
    look = {"fontsize": SMALL, "frameon": False, "labelcolor": INK}
    figure.legend(handles, names, loc="outside lower center", ncols=columns, **look)


def plot_curve(axes: Axes, curve: Curve, colour: str, label: str) -> None:
    """Plot a line, with its points where they are few."""
    marker = "o" if len(curve[0]) <= SPARSE else ""
    axes.plot(*curve, color=colour, linewidth=1.5, marker=marker, markersize=3, label=label)


def plot_loss(axes: Axes, training: Curve | None, held_out: Curve | None, label: str) -> None:
    """Plot the raw training curve, pale under its smoothed one, and that of held-out episodes."""
    if training is not None:
        axes.plot(*training, color=SKY, linewidth=0.7, alpha=0.5)
        axes.plot(training[0], smooth(training[1]), color=BLUE, linewidth=1.5, label="training")
    if held_out is not None:
        plot_curve(axes, held_out, VERMILION, label)
    label_steps(axes)
    log_scale_where_positive(axes, [c[1] for c in (training, held_out) if c is not None])


def log_scale_where_positive(axes: Axes, curves: Sequence[Array]) -> None:
    """Logarithmic where every value is positive; plain numbers at the ticks."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    values = np.concatenate(curves)
    if values.min() <= 0:
        return
    decades = np.log10(values.max() / values.min())
    by_decade = LogLocator(subs=(1, 2, 5) if decades < 2.5 else (1,))
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(MaxNLocator(5) if decades < 1 else by_decade)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")
