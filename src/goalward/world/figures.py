"""Pictures of a training: its curves, and one episode's path through latent space.

matplotlib is imported inside functions only; see `core.figures`. Shapes: N frames of H x W pixels,
D latent numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from goalward.core import figures as draw
from goalward.core.arrays import Array, spread
from goalward.world.metrics import Standardizer

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEARNING_RATE = "lr"
HELD_OUT, PROBE = "held_out_", "probe/"
SHOWN_SNAPSHOTS, SHOWN_FRAMES = 5, 8
MIN_POINTS = 4  # of a map
PERPLEXITY = 30.0
START_SPREAD = 1e-4  # of a map before its optimisation


def save_curves(path: Path, history: draw.History, title: str) -> None:
    """Write training curves as a PNG.

    Args:
        path: The file to write.
        history: Rows with "step" and any of: "seconds" since the start, "lr", errors of probes
            such as "probe/block", loss terms, and loss terms of held-out episodes such as
            "held_out_prediction". Values that are not finite and terms that are always zero are
            not drawn.
        title: Heading; number of steps and time are added to it.
    """
    curves = draw.curves_of(history)
    losses = [name for name in curves if name != LEARNING_RATE and not name.startswith(PROBE)]
    terms = dict.fromkeys(name.removeprefix(HELD_OUT) for name in losses)
    probes = {n.removeprefix(PROBE): c for n, c in curves.items() if n.startswith(PROBE)}
    panels = [partial(_draw_term, curves, term, has_legend=k == 0) for k, term in enumerate(terms)]
    if probes:
        panels.append(partial(_draw_probes, probes))
    if LEARNING_RATE in curves:
        panels.append(partial(_draw_learning_rate, curves[LEARNING_RATE]))
    draw.save_panels(path, title, history, panels)


def save_latent_path(path: Path, snapshots: Mapping[int, Array], frames: Array, title: str) -> None:
    """Write one episode's path through latent space as a PNG.

    Above: a map of the latents at up to five training steps, and the distribution of the last
    latents, each number standardised, beside the normal density that the regulariser asks for.
    Below: frames of the episode, framed in the colour of their points.

    Args:
        path: The file to write.
        snapshots: Latents (N, D) of the episode's frames, by training step; at least one.
        frames: The episode's frames, uint8 (N, H, W, 3), at least `MIN_POINTS`.
        title: Heading; the method of the map is added to it.
    """
    steps = [sorted(snapshots)[i] for i in spread(len(snapshots), SHOWN_SNAPSHOTS)]
    width = max(2.7 * (len(steps) + 1), 7.5)
    heights = (width / (len(steps) + 1) + 0.7, width / SHOWN_FRAMES + 0.3)
    figure = draw.new_figure(width, sum(heights) + 0.4)
    draw.add_heading(figure, f"{title}: latents of one episode, {map_method()}")
    grid = figure.add_gridspec(2, 1, height_ratios=heights)
    above, below = figure.add_subfigure(grid[0]), figure.add_subfigure(grid[1])
    *paths, distribution = above.subplots(1, len(steps) + 1)
    for axes, step in zip(paths, steps, strict=True):
        _draw_path(axes, latent_map(snapshots[step]), f"step {step:,}")
    _draw_distribution(distribution, snapshots[steps[-1]], f"distribution, step {steps[-1]:,}")
    shown = spread(len(frames), SHOWN_FRAMES)
    for axes, i in zip(below.subplots(1, len(shown)), shown, strict=True):
        _draw_frame(axes, frames[i], i, len(frames))
    draw.save_figure(figure, path)


def map_method() -> str:
    """How latents are mapped to a plane on this machine."""
    if find_spec("sklearn") is None:
        return "principal axes (for t-SNE, install scikit-learn)"
    return "t-SNE"


def latent_map(points_ND: Array) -> Array:
    """Places (N, 2) in a plane by t-SNE, or on the two principal axes without scikit-learn.

    t-SNE starts from the principal axes, so that the map keeps the large distances too.
    """
    centred_ND = points_ND - points_ND.mean(axis=0)
    padded = np.pad(centred_ND, ((0, 0), (0, 1)))  # a single column has no second axis
    plane_N2 = padded @ np.linalg.svd(padded, full_matrices=False)[2][:2].T
    spread = plane_N2[:, 0].std()
    if find_spec("sklearn") is None or spread == 0:
        return plane_N2
    from sklearn.manifold import TSNE

    start = (plane_N2 * (START_SPREAD / spread)).astype(np.float32)
    perplexity = min(PERPLEXITY, (len(points_ND) - 1) / 3)
    return TSNE(init=start, perplexity=perplexity, random_state=0).fit_transform(centred_ND)


def _draw_term(
    curves: Mapping[str, draw.Curve], term: str, axes: Axes, *, has_legend: bool
) -> None:
    draw.style_axes(axes, term.replace("_", " "))
    draw.plot_loss(axes, curves.get(term), curves.get(HELD_OUT + term), "held out")
    if has_legend:
        draw.add_legend(axes)


def _draw_probes(probes: Mapping[str, draw.Curve], axes: Axes) -> None:
    """Errors relative to the first; the legend has the first and the last in their unit."""
    draw.style_axes(axes, "probe RMSE relative to the first")
    relative = [values / (values[0] or 1.0) for _, values in probes.values()]
    for k, (name, (steps, values)) in enumerate(probes.items()):
        label = f"{name}: {values[0]:.3g} → {values[-1]:.3g}"
        draw.plot_curve(axes, (steps, relative[k]), draw.CYCLE[k % len(draw.CYCLE)], label)
    draw.label_steps(axes)
    draw.log_scale_where_positive(axes, relative)
    draw.add_legend(axes)


def _draw_learning_rate(curve: draw.Curve, axes: Axes) -> None:
    draw.style_axes(axes, "learning rate")
    axes.plot(*curve, color=draw.GREEN, linewidth=1.2)
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="y", nbins=3)
    axes.yaxis.set_major_formatter("{x:g}")
    draw.label_steps(axes)


def _draw_path(axes: Axes, places_N2: Array, title: str) -> None:
    """Points coloured from first to last frame, joined by a thin line; the ends are marked."""
    draw.style_axes(axes, title)
    x_N, y_N = places_N2.T
    axes.plot(x_N, y_N, color="#999999", linewidth=0.5, zorder=1)
    axes.scatter(x_N, y_N, c=np.arange(len(x_N)), cmap="viridis", s=9, linewidths=0, zorder=2)
    for end, marker in ((0, "o"), (-1, "s")):
        axes.plot(x_N[end], y_N[end], marker, ms=7, mfc="none", mec=draw.INK, mew=1.2, zorder=3)
    axes.set(xticks=[], yticks=[], aspect="equal", adjustable="datalim", box_aspect=1)
    draw.label_axes(axes, "○ first frame   □ last frame")
    axes.spines[:].set(visible=True, color=draw.GRID)


def _draw_distribution(axes: Axes, latents_ND: Array, title: str) -> None:
    """All standardised numbers in one histogram, and the standard normal density."""
    draw.style_axes(axes, title)
    edges = np.linspace(-4, 4, 65)
    numbers = Standardizer.fit(latents_ND)(latents_ND).ravel()
    heights, _, _ = axes.hist(
        numbers, bins=edges.tolist(), density=True, color=draw.SKY, alpha=0.7, label="latents"
    )
    normal = np.exp(-np.square(edges) / 2) / math.sqrt(2 * math.pi)
    axes.plot(edges, normal, color=draw.VERMILION, linewidth=1.5, label="normal")
    top = 1.25 * max(normal.max(), np.max(heights))  # room for the legend
    axes.set(yticks=[], box_aspect=1, xlim=(-4, 4), ylim=(0, top))
    draw.label_axes(axes, "standardised latent")
    draw.add_legend(axes)


def _draw_frame(axes: Axes, frame: Array, index: int, number: int) -> None:
    """One frame, in a border of the colour of its point."""
    from matplotlib import colormaps

    axes.imshow(frame, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.set_title(f"frame {index}", fontsize=draw.SMALL, color=draw.INK)
    axes.spines[:].set(color=colormaps["viridis"](index / (number - 1)), linewidth=3)
