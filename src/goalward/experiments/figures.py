"""Pictures of experiments, one panel a task.

matplotlib is imported inside functions only, because it is slow to import.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from goalward.core import figures as style
from goalward.experiments.experiment import Chart
from goalward.experiments.tables import Entry, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAR = 0.8  # width of all bars of a point
Place = tuple[float, float]  # milliseconds, percent


def save_table_figure(path: Path, table: Table, chart: Chart) -> None:
    """Write success over the points, with intervals, and the paper's figures as hollow marks.

    The chart `frontier` has the time of a decision along x instead.
    """
    tasks = list(dict.fromkeys(entry.task for entry in table.entries))
    rows, columns = style.rows_and_columns(len(tasks))
    figure = style.new_figure(*style.panels_size(rows, columns))
    about = f"preset {table.preset}, {table.shown_pairs}"
    if chart == "frontier":
        about += "; colour: iterations, size: samples"
    elif any(entry.paper is not None for entry in table.entries):
        about += "; hollow: paper"
    style.add_heading(figure, table.title, about)
    for number, task in enumerate(tasks):
        axes = figure.add_subplot(rows, columns, number + 1)
        style.style_axes(axes, task)
        entries = [entry for entry in table.entries if entry.task == task]
        DRAW[chart](axes, entries)
        axes.set_ylim(-4, 108)
        style.label_axes(axes, _along(table, chart), "success, %")
    style.add_common_legend(figure, axes)
    style.save_figure(figure, path)


def _along(table: Table, chart: Chart) -> str:
    """What the x axis shows; of a single point, nothing."""
    if chart == "frontier":
        return "ms a decision"
    return table.axis if len({entry.point for entry in table.entries}) > 1 else ""


def _draw_lines(axes: Axes, entries: Sequence[Entry]) -> None:
    """A line for each variant over the points, evenly spaced."""
    points = list(dict.fromkeys(entry.point for entry in entries))
    for colour, (name, own) in zip(style.CYCLE, _by_variant(entries).items(), strict=False):
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
            label=name,
        )
        _draw_paper(axes, x, own, colour)
    axes.set_xticks(range(len(points)), points)


def _draw_bars(axes: Axes, entries: Sequence[Entry]) -> None:
    """A group of bars for each point, a bar for each variant."""
    points = list(dict.fromkeys(entry.point for entry in entries))
    variants = _by_variant(entries)
    width = BAR / len(variants)
    for k, (name, own) in enumerate(variants.items()):
        colour = style.CYCLE[k % len(style.CYCLE)]
        x = [points.index(entry.point) + (k - (len(variants) - 1) / 2) * width for entry in own]
        heights = [100 * entry.summary.rate.mean for entry in own]
        axes.bar(x, heights, width=0.9 * width, color=colour, label=name)
        axes.errorbar(
            x, heights, yerr=_error_bars(own), color=style.INK, linewidth=0, elinewidth=0.8
        )
        _draw_paper(axes, x, own, style.INK)
    shown = points if len(points) > 1 else []
    axes.set_xticks(range(len(shown)), shown, fontsize=style.SMALL)
    if len(shown) > 3:  # each ends at its bars, so that long ones do not run into each other
        for label in axes.get_xticklabels():
            label.set(rotation=30, horizontalalignment="right", rotation_mode="anchor")


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


def _draw_frontier(axes: Axes, entries: Sequence[Entry]) -> None:
    """Success over time: sizes of CEM, their envelope, GC-IDM, and where a better one would be."""
    searches: dict[tuple[int, int], Place] = {}
    stars: dict[str, Place] = {}
    for entry in entries:
        assert entry.latency is not None
        place = (entry.latency.mean, 100 * entry.summary.rate.mean)
        if entry.search_size is None:
            stars[entry.variant] = place
        else:
            searches[entry.search_size] = place
    for colour, (name, place) in zip((style.ORANGE, style.GREEN), stars.items(), strict=False):
        star = {"marker": "*", "markersize": 13, "markeredgecolor": style.INK, "zorder": 3}
        axes.plot(*place, linestyle="", color=colour, label=name, **star)  # type: ignore[arg-type]
    iterations = sorted({iters for _, iters in searches})
    fewest = {iters: min(s for s, i in searches if i == iters) for iters in iterations}
    for (samples, iters), place in searches.items():
        axes.plot(
            *place,
            linestyle="",
            marker="o",
            markersize=2 + samples**0.33,
            color=style.CYCLE[iterations.index(iters) % len(style.CYCLE)],
            alpha=0.8,
            label=f"CEM, {iters} iterations" if samples == fewest[iters] else None,
        )
    _draw_envelope(axes, sorted(searches.values()))
    quick, good = next(iter(stars.values()))
    least = min(place[0] for place in (*stars.values(), *searches.values())) / 3
    axes.fill_between([least, quick], good, 108, color=style.ORANGE, alpha=0.15, linewidth=0)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set_xlim(least, 2 * max(place[0] for place in searches.values()))


def _draw_envelope(axes: Axes, places: Sequence[Place]) -> None:
    """A dashed line through the places that are better than every quicker one."""
    best: list[Place] = []
    for place in places:
        if not best or place[1] > best[-1][1]:
            best.append(place)
    axes.plot(*zip(*best, strict=True), color=style.INK, linewidth=0.8, linestyle="--", zorder=1)


def _error_bars(own: Sequence[Entry]) -> list[list[float]]:
    rates = [entry.summary.rate for entry in own]
    return [
        [100 * (rate.mean - rate.low) for rate in rates],
        [100 * (rate.high - rate.mean) for rate in rates],
    ]


def _by_variant(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.variant, []).append(entry)
    return found


DRAW: dict[Chart, Callable[[Axes, Sequence[Entry]], None]] = {
    "line": _draw_lines,
    "bars": _draw_bars,
    "frontier": _draw_frontier,
}
