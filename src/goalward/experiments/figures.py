"""Pictures of experiments, one panel a task.

matplotlib is imported inside functions only; see `drawing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from goalward.drawing import (
    CYCLE,
    INK,
    SMALL,
    add_heading,
    add_legend,
    label_axes,
    new_figure,
    panels_size,
    rows_and_columns,
    save_figure,
    style_axes,
)
from goalward.experiments.experiment import Chart
from goalward.experiments.runner import Entry, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAR = 0.8  # of the room that a bar has


def save_table_figure(path: Path, table: Table, chart: Chart) -> None:
    """Write success over the points, with intervals, and the paper's figures as hollow marks."""
    tasks = list(dict.fromkeys(entry.task for entry in table.entries))
    rows, columns = rows_and_columns(len(tasks))
    figure = new_figure(*panels_size(rows, columns))
    add_heading(figure, table.title, f"preset {table.preset}, {table.pairs} pairs; hollow: paper")
    for number, task in enumerate(tasks):
        axes = figure.add_subplot(rows, columns, number + 1)
        style_axes(axes, task)
        entries = [entry for entry in table.entries if entry.task == task]
        (_draw_lines if chart == "line" else _draw_bars)(axes, entries)
        axes.set_ylim(-4, 108)
        label_axes(axes, table.axis, "success, %")
        if number == 0:
            add_legend(axes)
    save_figure(figure, path)


def _draw_lines(axes: Axes, entries: Sequence[Entry]) -> None:
    """A line a method over the points, evenly spaced."""
    points = list(dict.fromkeys(entry.point for entry in entries))
    for colour, (method, own) in zip(CYCLE, _by_method(entries).items(), strict=False):
        x = [points.index(entry.point) for entry in own]
        axes.errorbar(
            x,
            [100 * entry.summary.rate.mean for entry in own],
            yerr=_error_bars(own),
            color=colour,
            linewidth=1.5,
            marker="o",
            markersize=3,
            elinewidth=0.8,
            label=method,
        )
        _draw_paper(axes, x, own, colour)
    axes.set_xticks(range(len(points)), points)


def _draw_bars(axes: Axes, entries: Sequence[Entry]) -> None:
    """A group of bars a point, a bar a method."""
    points = list(dict.fromkeys(entry.point for entry in entries))
    methods = _by_method(entries)
    width = BAR / len(methods)
    for k, (method, own) in enumerate(methods.items()):
        colour = CYCLE[k % len(CYCLE)]
        x = [points.index(entry.point) + (k - (len(methods) - 1) / 2) * width for entry in own]
        heights = [100 * entry.summary.rate.mean for entry in own]
        axes.bar(x, heights, width=0.9 * width, color=colour, label=method)
        axes.errorbar(x, heights, yerr=_error_bars(own), color=INK, linewidth=0, elinewidth=0.8)
        _draw_paper(axes, x, own, INK)
    axes.set_xticks(
        range(len(points)), points, fontsize=SMALL, rotation=20 if len(points) > 3 else 0
    )


def _draw_paper(axes: Axes, x: Sequence[float], own: Sequence[Entry], colour: str) -> None:
    known = [(at, entry.paper) for at, entry in zip(x, own, strict=True) if entry.paper is not None]
    if known:
        axes.plot(
            *zip(*known, strict=True),
            linestyle="",
            marker="D",
            markersize=4,
            markerfacecolor="white",
            markeredgecolor=colour,
        )


def _error_bars(own: Sequence[Entry]) -> list[list[float]]:
    rates = [entry.summary.rate for entry in own]
    return [
        [100 * (rate.mean - rate.low) for rate in rates],
        [100 * (rate.high - rate.mean) for rate in rates],
    ]


def _by_method(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.method, []).append(entry)
    return found
