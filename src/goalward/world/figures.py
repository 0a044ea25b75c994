"""Pictures of a training run: its curves, and one episode's path through latent space.

matplotlib is imported inside the functions, because it is slow to import, and used through its
objects, because pyplot keeps global state. Shapes: N frames of H x W pixels, D latent numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from goalward.files import appearing
from goalward.types import Array
from goalward.world.probe import Standardiser
from goalward.world.tsne import tsne

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito's colours, which colour-blind readers can tell apart too.
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, BLACK = "#CC79A7", "#56B4E9", "#000000"
CYCLE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
INK, GRID = "#333333", "#E3E3E3"
DPI = 150

STEP, SECONDS, LEARNING_RATE = "step", "seconds", "lr"
HELD_OUT, PROBE = "held_out_", "probe/"
SMOOTHED_PART = 40  # a smoothed line averages over one part in so many of its curve
SPARSE = 40  # a curve of at most so many points shows each of them
SHOWN_SNAPSHOTS, SHOWN_FRAMES = 5, 8

Curve = tuple[Array, Array]  # steps (M,) and values (M,)


def save_curves(path: Path, history: Sequence[Mapping[str, float]], title: str) -> None:
    """Write training curves as a PNG, which appears whole or not at all.

    Args:
        path: The file to write.
        history: Rows with "step" and any of: "seconds" since the start, "lr", errors of probes
            such as "probe/block", loss terms, and loss terms of held-out episodes such as
            "held_out_prediction". Each row may leave out any of them. What is not finite, times
            such as "data_seconds" and terms that are always zero are not drawn.
        title: Heading; number of steps and time are added to it.

    Raises:
        ValueError: No row holds a loss or a probe's error.
    """
    curves = _curves(history)
    terms = dict.fromkeys(n.removeprefix(HELD_OUT) for n in curves if _is_loss(n))
    probes = {n.removeprefix(PROBE): c for n, c in curves.items() if n.startswith(PROBE)}
    if not terms and not probes:
        raise ValueError("no curve to draw: rows need a step and a loss or a probe's error")
    figure, panels, rate = _grid(len(terms) + bool(probes), with_rate=LEARNING_RATE in curves)
    figure.suptitle(f"{title}\n{_effort(history)}", fontsize=11, color=INK, wrap=True)
    for axes, term in zip(panels, terms, strict=False):
        _draw_term(axes, term, curves.get(term), curves.get(HELD_OUT + term))
    if terms:
        _legend(panels[0])
    if probes:
        _draw_probes(panels[-1], probes)
    if rate is not None:
        _draw_learning_rate(rate, curves[LEARNING_RATE])
    _save(figure, path)


def save_latent_path(path: Path, snapshots: Mapping[int, Array], frames: Array, title: str) -> None:
    """Write one episode's path through latent space as a PNG, which appears whole or not at all.

    Above: t-SNE of the latents at up to five training steps, and how the last latents are
    distributed, each of the D numbers standardised, beside the normal density that the regulariser
    asks for. Below: frames of the episode, framed in the colour of their points.

    Args:
        path: The file to write.
        snapshots: Latents (N, D) of the episode's frames, by training step.
        frames: The episode's frames, uint8 (N, H, W, 3).
        title: Heading.

    Raises:
        ValueError: There is no snapshot, or one that does not fit the frames.
    """
    _check_snapshots(snapshots, frames)
    steps = [sorted(snapshots)[i] for i in _spread(len(snapshots), SHOWN_SNAPSHOTS)]
    width = max(2.7 * (len(steps) + 1), 7.5)
    heights = (width / (len(steps) + 1) + 0.7, width / SHOWN_FRAMES + 0.3)
    figure = _figure(width, sum(heights) + 0.4)
    figure.suptitle(title, fontsize=11, color=INK, wrap=True)
    grid = figure.add_gridspec(2, 1, height_ratios=heights)
    above, below = figure.add_subfigure(grid[0]), figure.add_subfigure(grid[1])
    *paths, distribution = above.subplots(1, len(steps) + 1)
    for axes, step in zip(paths, steps, strict=True):
        _draw_path(axes, tsne(snapshots[step]), f"step {step:,}")
    _draw_distribution(distribution, snapshots[steps[-1]], f"distribution, step {steps[-1]:,}")
    shown = _spread(len(frames), SHOWN_FRAMES)
    for axes, i in zip(below.subplots(1, len(shown)), shown, strict=True):
        _draw_frame(axes, frames[i], i, len(frames))
    _save(figure, path)


def _curves(history: Sequence[Mapping[str, float]]) -> dict[str, Curve]:
    """Every key that has something to show, in order of appearance."""
    names = dict.fromkeys(name for row in history for name in row)
    curves = {n: _curve(history, n) for n in names if n != STEP and not n.endswith(SECONDS)}
    return {name: curve for name, curve in curves.items() if curve[1].any()}


def _curve(history: Sequence[Mapping[str, float]], name: str) -> Curve:
    """The finite values of one key."""
    points = [(row[STEP], row[name]) for row in history if math.isfinite(row.get(name, math.nan))]
    steps, values = np.array(points, dtype=np.float64).reshape(-1, 2).T
    return steps, values


def _is_loss(name: str) -> bool:
    return name != LEARNING_RATE and not name.startswith(PROBE)


def _effort(history: Sequence[Mapping[str, float]]) -> str:
    """Such as '12,000 steps in 1 h 05 min'."""
    steps = f"{max(row[STEP] for row in history):,.0f} steps"
    seconds = max((row[SECONDS] for row in history if SECONDS in row), default=None)
    if seconds is None:
        return steps
    if seconds < 60:
        return f"{steps} in {seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{steps} in " + (f"{hours} h {minutes:02d} min" if hours else f"{minutes} min")


def _smooth(values: Array) -> Array:
    """A centred moving average whose window is cut at the ends."""
    window = np.ones(2 * (len(values) // (2 * SMOOTHED_PART)) + 1)
    return np.convolve(values, window, "same") / np.convolve(np.ones_like(values), window, "same")


def _spread(number: int, limit: int) -> list[int]:
    """At most `limit` of the indices below `number`, evenly spaced, the ends among them."""
    return np.unique(np.linspace(0, number - 1, limit).round().astype(int)).tolist()


def _check_snapshots(snapshots: Mapping[int, Array], frames: Array) -> None:
    if not snapshots:
        raise ValueError("no snapshot to draw: give the latents of at least one training step")
    if frames.ndim != 4 or frames.shape[-1] != 3 or frames.dtype != np.uint8:
        raise ValueError(
            f"frames must be uint8 of shape (N, H, W, 3), not {frames.dtype} of {frames.shape}"
        )
    for step, latents_ND in snapshots.items():
        if len(latents_ND) != len(frames):
            raise ValueError(
                f"step {step} has {len(latents_ND)} latents for {len(frames)} frames; "
                "encode every frame of the episode"
            )


def _figure(width: float, height: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)  # inches
    figure = Figure(figsize=(width, height), dpi=DPI, layout=layout, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Figure, path: Path) -> None:
    with appearing(path) as temporary:
        figure.savefig(temporary, format="png", metadata={"Software": None})


def _style(axes: Axes, title: str) -> None:
    """The look that all panels share."""
    axes.set_title(title, fontsize=10, color=INK, loc="left")
    axes.tick_params(labelsize=8, colors=INK, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)


def _grid(number: int, *, with_rate: bool) -> tuple[Figure, list[Axes], Axes | None]:
    """Panels in rows of up to three; the learning rate's fills a gap or is a low strip below."""
    rows = -(-number // 3)
    columns = -(-number // rows)
    gap = number < rows * columns
    heights = [1.0] * rows + [0.28] * (with_rate and not gap)
    figure = _figure(max(3.7 * columns, 6.0), 2.7 * sum(heights) + 0.6)
    grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
    places = [grid[divmod(k, columns)] for k in range(number)]
    places += [grid[divmod(number, columns)] if gap else grid[-1, :]] * with_rate
    panels: list[Axes] = []
    for place in places:
        panels.append(figure.add_subplot(place, sharex=panels[0] if panels else None))
    return figure, panels, panels.pop() if with_rate else None


def _draw_term(axes: Axes, term: str, training: Curve | None, held_out: Curve | None) -> None:
    """The raw training curve, pale under its smoothed one, and the held-out curve."""
    _style(axes, term.replace("_", " "))
    if training is not None:
        axes.plot(*training, color=SKY, linewidth=0.7, alpha=0.5)
        axes.plot(training[0], _smooth(training[1]), color=BLUE, linewidth=1.5, label="training")
    if held_out is not None:
        _plot(axes, held_out, VERMILION, "held out")
    _scale(axes, [curve[1] for curve in (training, held_out) if curve is not None])


def _draw_probes(axes: Axes, probes: Mapping[str, Curve]) -> None:
    """Errors relative to the first; the legend tells the first and the last as they are."""
    _style(axes, "probe RMSE relative to the first")
    relative = [values / (values[0] or 1.0) for _, values in probes.values()]
    for k, (name, (steps, values)) in enumerate(probes.items()):
        label = f"{name}: {values[0]:.3g} → {values[-1]:.3g}"
        _plot(axes, (steps, relative[k]), CYCLE[k % len(CYCLE)], label)
    _scale(axes, relative)
    _legend(axes)


def _draw_learning_rate(axes: Axes, curve: Curve) -> None:
    _style(axes, "learning rate")
    axes.plot(*curve, color=GREEN, linewidth=1.2)
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="y", nbins=3)
    axes.yaxis.set_major_formatter("{x:g}")
    _label_steps(axes)


def _plot(axes: Axes, curve: Curve, colour: str, label: str) -> None:
    marker = "o" if len(curve[0]) <= SPARSE else ""
    axes.plot(*curve, color=colour, linewidth=1.5, marker=marker, markersize=3, label=label)


def _legend(axes: Axes) -> None:
    axes.legend(fontsize=8, frameon=False, labelcolor=INK)


def _scale(axes: Axes, curves: Sequence[Array]) -> None:
    """Logarithmic where every value is positive; plain numbers at the ticks."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    _label_steps(axes)
    values = np.concatenate(curves)
    if values.min() <= 0:
        return
    decades = np.log10(values.max() / values.min())
    by_decade = LogLocator(subs=(1, 2, 5) if decades < 2.5 else (1,))
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(MaxNLocator(5) if decades < 1 else by_decade)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")


def _label_steps(axes: Axes) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.margins(x=0.02)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel("training step", fontsize=8, color=INK)


def _draw_path(axes: Axes, places_N2: Array, title: str) -> None:
    """Points coloured from first to last frame, joined by a thin line; the ends are marked."""
    _style(axes, title)
    x_N, y_N = places_N2.T
    axes.plot(x_N, y_N, color="#999999", linewidth=0.5, zorder=1)
    axes.scatter(x_N, y_N, c=np.arange(len(x_N)), cmap="viridis", s=9, linewidths=0, zorder=2)
    for end, marker in ((0, "o"), (-1, "s")):
        axes.plot(x_N[end], y_N[end], marker, ms=7, mfc="none", mec=INK, mew=1.2, zorder=3)
    axes.set(xticks=[], yticks=[], aspect="equal", adjustable="datalim", box_aspect=1)
    axes.set_xlabel("○ first frame   □ last frame", fontsize=8, color=INK)
    axes.spines[:].set(visible=True, color=GRID)


def _draw_distribution(axes: Axes, latents_ND: Array, title: str) -> None:
    """All standardised numbers in one histogram, and the standard normal density."""
    _style(axes, title)
    edges = np.linspace(-4, 4, 65)
    numbers = Standardiser.fit(latents_ND)(latents_ND).ravel()
    heights, _, _ = axes.hist(
        numbers, bins=edges.tolist(), density=True, color=SKY, alpha=0.7, label="latents"
    )
    normal = np.exp(-np.square(edges) / 2) / math.sqrt(2 * math.pi)
    axes.plot(edges, normal, color=VERMILION, linewidth=1.5, label="normal")
    top = 1.25 * max(normal.max(), np.max(heights))  # room for the legend
    axes.set(yticks=[], box_aspect=1, xlim=(-4, 4), ylim=(0, top))
    axes.set_xlabel("standardised latent", fontsize=8, color=INK)
    _legend(axes)


def _draw_frame(axes: Axes, frame: Array, index: int, number: int) -> None:
    """One frame, in a border of the colour of its point."""
    from matplotlib import colormaps

    axes.imshow(frame, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.set_title(f"frame {index}", fontsize=8, color=INK)
    axes.spines[:].set(color=colormaps["viridis"](index / (number - 1)), linewidth=3)
