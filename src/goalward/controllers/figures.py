"""A picture of a controller's training: its errors, and how calibrated its time to go is.

matplotlib is imported inside functions only; see `drawing`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from goalward.controllers.judge import ActionError, TimeToGoQuality
from goalward.controllers.train import NETWORK, TIME_TO_GO
from goalward.drawing import (
    GREEN,
    INK,
    SMALL,
    Curve,
    add_heading,
    add_legend,
    curves_of,
    effort,
    label_axes,
    new_figure,
    panels_size,
    plot_loss,
    rows_and_columns,
    save_figure,
    style_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VALIDATION = "validation"
LEGEND_ROOM, LABEL_ROOM = 0.3, 0.14  # parts of the range of R² kept free above and below bars


def save_curves(
    path: Path,
    history: Sequence[Mapping[str, float]],
    errors: Sequence[ActionError],
    time_to_go: TimeToGoQuality | None,
    title: str,
) -> None:
    """Write training curves and validation results as a PNG, which appears whole or not at all.

    Args:
        path: The file to write.
        history: Rows with "step", perhaps "seconds" since the start, and any of: the training
            losses "network" and "time_to_go", "validation/network", "validation/time_to_go".
        errors: Errors over all horizons first, then those of each bucket of horizons, if any.
        time_to_go: Quality of the time to go, if the controller has it.
        title: Heading; number of steps and time are added to it.

    Raises:
        ValueError: No row holds an action error, of training or of validation.
    """
    curves = curves_of(history)
    if NETWORK not in curves and f"{VALIDATION}/{NETWORK}" not in curves:
        raise ValueError(
            f"no curve to draw: rows need a step and {NETWORK} or validation/{NETWORK}"
        )
    draws = _draws(curves, errors, time_to_go)
    rows, columns = rows_and_columns(len(draws))
    figure = new_figure(*panels_size(rows, columns))
    add_heading(figure, title, effort(history))
    panels = figure.subplots(rows, columns, squeeze=False).flat
    for axes, draw in zip(panels, draws, strict=True):
        draw(axes)
    save_figure(figure, path)


def _draws(
    curves: Mapping[str, Curve], errors: Sequence[ActionError], time_to_go: TimeToGoQuality | None
) -> Sequence[Callable[[Axes], None]]:
    """What to draw into each panel, only where there is something to show."""
    draws = [partial(_draw_loss, curves, NETWORK, "action error (MSE)")]
    if len(errors) > 1:
        draws.append(partial(_draw_buckets, errors))
    if TIME_TO_GO in curves or f"{VALIDATION}/{TIME_TO_GO}" in curves:
        draws.append(partial(_draw_loss, curves, TIME_TO_GO, "time to go: cross-entropy (nats)"))
    if time_to_go is not None:
        draws.append(partial(_draw_calibration, time_to_go))
    return draws


def _draw_loss(curves: Mapping[str, Curve], name: str, title: str, axes: Axes) -> None:
    style_axes(axes, title)
    plot_loss(axes, curves.get(name), curves.get(f"{VALIDATION}/{name}"), VALIDATION)
    add_legend(axes)


def _draw_buckets(errors: Sequence[ActionError], axes: Axes) -> None:
    """A bar with its value for each bucket, and a line for all of them."""
    overall, *buckets = errors
    style_axes(axes, "explained variance of actions (R²)")
    bars = axes.bar([e.horizons for e in buckets], [e.r2 for e in buckets], 0.65, color=GREEN)
    label = f"all: {overall.r2:.3f}"
    axes.axhline(overall.r2, color=INK, linewidth=1.2, linestyle="--", label=label)
    # The values stand on white, because the line may pass behind them.
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    axes.bar_label(bars, fmt="{:.2f}", fontsize=SMALL, color=INK, padding=3, bbox=ground)
    _limit_r2(axes, min(0.0, *(e.r2 for e in errors)))
    axes.grid(visible=False, axis="x")
    label_axes(axes, f"steps to the goal (n = {overall.count:,} validation examples)")
    add_legend(axes)


def _limit_r2(axes: Axes, lowest: float) -> None:
    """Room for values and legend; no tick above 1, because R² cannot be larger."""
    from matplotlib.ticker import MaxNLocator

    span = 1 - lowest
    ticks = MaxNLocator(5).tick_values(lowest, 1)
    axes.set_yticks([tick for tick in ticks if lowest <= tick <= 1])
    axes.set_ylim(lowest - LABEL_ROOM * span * (lowest < 0), 1 + LEGEND_ROOM * span)


def _draw_calibration(quality: TimeToGoQuality, axes: Axes) -> None:
    """Points in the order of their levels, beside the diagonal that they should lie on."""
    style_axes(axes, "time to go: calibration")
    axes.plot((0, 1), (0, 1), color=INK, linewidth=1.2, linestyle="--", label="calibrated")
    expected, observed = zip(*((c.expected, c.observed) for c in quality.coverage), strict=True)
    label = f"observed, largest gap {quality.calibration_error:.3f}"
    axes.plot(expected, observed, color=GREEN, linewidth=1.5, marker="o", ms=5, label=label)
    axes.set(xlim=(0, 1.03), ylim=(0, 1.03))
    levels = ", ".join(f"{100 * c.level:g}" for c in quality.coverage)
    label_axes(axes, f"expected coverage (quantiles {levels} %)", "observed coverage")
    add_legend(axes)
