"""Pictures of a training run: its curves, and one episode's path through latent space.

matplotlib is imported inside functions only; see `drawing`. Shapes: N frames of H x W pixels, D
latent numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from goalward.core.arrays import Array
from goalward.core.figures import (
    CYCLE,
    GREEN,
    GRID,
    INK,
    SKY,
    SMALL,
    VERMILION,
    Curve,
    History,
    add_heading,
    add_legend,
    curves_of,
    effort,
    label_axes,
    label_steps,
    log_scale_where_positive,
    new_figure,
    panels_size,
    plot_curve,
    plot_loss,
    rows_and_columns,
    save_figure,
    style_axes,
)
from goalward.world.metrics import Standardizer
from goalward.world.tsne import tsne

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


LEARNING_RATE = "lr"
HELD_OUT, PROBE = "held_out_", "probe/"
SHOWN_SNAPSHOTS, SHOWN_FRAMES = 5, 8


def save_curves(path: Path, history: History, title: str) -> None:
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
    curves = curves_of(history)
    terms = dict.fromkeys(n.removeprefix(HELD_OUT) for n in curves if _is_loss(n))
    probes = {n.removeprefix(PROBE): c for n, c in curves.items() if n.startswith(PROBE)}
    if not terms and not probes:
        raise ValueError("no curve to draw: rows need a step and a loss or a probe's error")
    figure, panels, rate = _grid(len(terms) + bool(probes), with_rate=LEARNING_RATE in curves)
    add_heading(figure, title, effort(history))
    for axes, term in zip(panels, terms, strict=False):
        _draw_term(axes, term, curves.get(term), curves.get(HELD_OUT + term))
    if terms:
        add_legend(panels[0])
    if probes:
        _draw_probes(panels[-1], probes)
    if rate is not None:
        _draw_learning_rate(rate, curves[LEARNING_RATE])
    save_figure(figure, path)


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
    figure = new_figure(width, sum(heights) + 0.4)
    add_heading(figure, title)
    grid = figure.add_gridspec(2, 1, height_ratios=heights)
    above, below = figure.add_subfigure(grid[0]), figure.add_subfigure(grid[1])
    *paths, distribution = above.subplots(1, len(steps) + 1)
    for axes, step in zip(paths, steps, strict=True):
        _draw_path(axes, tsne(snapshots[step]), f"step {step:,}")
    _draw_distribution(distribution, snapshots[steps[-1]], f"distribution, step {steps[-1]:,}")
    shown = _spread(len(frames), SHOWN_FRAMES)
    for axes, i in zip(below.subplots(1, len(shown)), shown, strict=True):
        _draw_frame(axes, frames[i], i, len(frames))
    save_figure(figure, path)


def _is_loss(name: str) -> bool:
    return name != LEARNING_RATE and not name.startswith(PROBE)


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


def _grid(number: int, *, with_rate: bool) -> tuple[Figure, list[Axes], Axes | None]:
    """Panels in rows of up to three; the learning rate's fills a gap or is a low strip below."""
    rows, columns = rows_and_columns(number)
    gap = number < rows * columns
    heights = [1.0] * rows + [0.28] * (with_rate and not gap)
    figure = new_figure(*panels_size(sum(heights), columns))
    grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
    places = [grid[divmod(k, columns)] for k in range(number)]
    places += [grid[divmod(number, columns)] if gap else grid[-1, :]] * with_rate
    panels: list[Axes] = []
    for place in places:
        panels.append(figure.add_subplot(place, sharex=panels[0] if panels else None))
    return figure, panels, panels.pop() if with_rate else None


def _draw_term(axes: Axes, term: str, training: Curve | None, held_out: Curve | None) -> None:
    style_axes(axes, term.replace("_", " "))
    plot_loss(axes, training, held_out, "held out")


def _draw_probes(axes: Axes, probes: Mapping[str, Curve]) -> None:
    """Errors relative to the first; the legend tells the first and the last as they are."""
    style_axes(axes, "probe RMSE relative to the first")
    relative = [values / (values[0] or 1.0) for _, values in probes.values()]
    for k, (name, (steps, values)) in enumerate(probes.items()):
        label = f"{name}: {values[0]:.3g} → {values[-1]:.3g}"
        plot_curve(axes, (steps, relative[k]), CYCLE[k % len(CYCLE)], label)
    label_steps(axes)
    log_scale_where_positive(axes, relative)
    add_legend(axes)


def _draw_learning_rate(axes: Axes, curve: Curve) -> None:
    style_axes(axes, "learning rate")
    axes.plot(*curve, color=GREEN, linewidth=1.2)
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="y", nbins=3)
    axes.yaxis.set_major_formatter("{x:g}")
    label_steps(axes)


def _draw_path(axes: Axes, places_N2: Array, title: str) -> None:
    """Points coloured from first to last frame, joined by a thin line; the ends are marked."""
    style_axes(axes, title)
    x_N, y_N = places_N2.T
    axes.plot(x_N, y_N, color="#999999", linewidth=0.5, zorder=1)
    axes.scatter(x_N, y_N, c=np.arange(len(x_N)), cmap="viridis", s=9, linewidths=0, zorder=2)
    for end, marker in ((0, "o"), (-1, "s")):
        axes.plot(x_N[end], y_N[end], marker, ms=7, mfc="none", mec=INK, mew=1.2, zorder=3)
    axes.set(xticks=[], yticks=[], aspect="equal", adjustable="datalim", box_aspect=1)
    label_axes(axes, "○ first frame   □ last frame")
    axes.spines[:].set(visible=True, color=GRID)


def _draw_distribution(axes: Axes, latents_ND: Array, title: str) -> None:
    """All standardised numbers in one histogram, and the standard normal density."""
    style_axes(axes, title)
    edges = np.linspace(-4, 4, 65)
    numbers = Standardizer.fit(latents_ND)(latents_ND).ravel()
    heights, _, _ = axes.hist(
        numbers, bins=edges.tolist(), density=True, color=SKY, alpha=0.7, label="latents"
    )
    normal = np.exp(-np.square(edges) / 2) / math.sqrt(2 * math.pi)
    axes.plot(edges, normal, color=VERMILION, linewidth=1.5, label="normal")
    top = 1.25 * max(normal.max(), np.max(heights))  # room for the legend
    axes.set(yticks=[], box_aspect=1, xlim=(-4, 4), ylim=(0, top))
    label_axes(axes, "standardised latent")
    add_legend(axes)


def _draw_frame(axes: Axes, frame: Array, index: int, number: int) -> None:
    """One frame, in a border of the colour of its point."""
    from matplotlib import colormaps

    axes.imshow(frame, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.set_title(f"frame {index}", fontsize=SMALL, color=INK)
    axes.spines[:].set(color=colormaps["viridis"](index / (number - 1)), linewidth=3)
