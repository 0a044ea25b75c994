"""The cells of a report's tables, as texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from goalward.evaluation.latency import SpeedUp
from goalward.experiments.experiment import ALL_PAIRS, CEM, PAIRS
from goalward.experiments.paper import paper_trajectory
from goalward.experiments.tables import Entry, Metric, Table

T = TypeVar("T")

MOST_VALUES = 4  # columns of a Markdown table beside the two that name a row
MOST_POINTS = 3  # more points are rows, not columns


@dataclass(frozen=True)
class Grid:
    """Rows of cells; the first two columns are the task and what the row is."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def split(self) -> Iterator[Grid]:
        """Grids that are narrow enough for Markdown."""
        for start in range(2, len(self.header), MOST_VALUES):
            stop = start + MOST_VALUES
            yield Grid(
                (*self.header[:2], *self.header[start:stop]),
                tuple((*row[:2], *row[start:stop]) for row in self.rows),
            )


def success_grid(table: Table) -> Grid:
    """A row for each task and variant and a column for each point; many points are rows."""
    entries = table.entries
    tasks, variants, points = (
        [*dict.fromkeys(getattr(entry, name) for entry in entries)]
        for name in ("task", "variant", "point")
    )
    if len(points) > MOST_POINTS and len(points) > len(variants):
        kind, rows, columns = table.axis, points, variants
        places = {(e.task, e.point, e.variant): _success(e) for e in entries}
    else:
        kind, rows, columns = "controller", variants, points
        places = {(e.task, e.variant, e.point): _success(e) for e in entries}
    found = (
        (task, row, *(places.get((task, row, column), "") for column in columns))
        for task in tasks
        for row in rows
    )
    return Grid(("task", kind, *columns), tuple(row for row in found if any(row[2:])))


def details_grid(table: Table) -> Grid | None:
    """Latency, smoothness and difference to CEM at the last point of every controller."""
    points = {entry.point for entry in table.entries}
    if len(points) > 1 and table.axis != PAIRS:
        return None
    last = {(entry.task, entry.variant): entry for entry in table.entries}
    rows = {key: _details(entry, last.get((key[0], CEM.label))) for key, entry in last.items()}
    columns = [c for c in next(iter(rows.values())) if any(row[c] for row in rows.values())]
    return Grid(
        ("task", "controller", *columns),
        tuple((*key, *(row[c] for c in columns)) for key, row in rows.items()),
    )


def _details(entry: Entry, reference: Entry | None) -> dict[str, str]:
    summary, latency = entry.summary, entry.latency
    same_pairs = entry.point == ALL_PAIRS  # as in the paper, whose figures are of all pairs
    paper = paper_trajectory(entry.task, summary.method) if same_pairs else {}
    jerk, monotonic = (
        (f" [{paper['jerk']:g}]", f" [{paper['monotonic']:g}%]") if paper else ("", "")
    )
    slow = None if reference is None else reference.latency
    speed_up = None if latency is None or slow is None else SpeedUp.of(latency, slow).decision
    share = "{:.0%}".format
    return {
        "jerk": _shown(summary.jerk, "{:.3f}".format, jerk),
        "monotonic": _shown(summary.monotonic, share, monotonic),
        "approach rate": _shown(summary.approach_rate, share),
        "steps": f"{summary.steps:.1f}",
        "ms a decision": _shown(latency and latency.mean, "{:,.2f}".format),
        "ms a plan": _shown(latency and latency.plan, "{:,.2f}".format),
        "CEM's time / its time": _shown(speed_up, "{:,.3g}".format),
        "difference to CEM": _shown(summary.difference, str),
    }


def _shown(value: T | None, show: Callable[[T], str], suffix: str = "") -> str:
    """A value as text; nothing for one that was not measured."""
    return "" if value is None else show(value) + suffix


def metric_grids(table: Table) -> list[Grid]:
    """A grid for each set of columns, with the rows that have them."""
    rows: dict[tuple[str, str], dict[str, Metric]] = {}
    for metric in table.metrics:
        rows.setdefault((metric.task, metric.row), {})[metric.column] = metric
    groups: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for key, row in rows.items():
        cells = (*key, *(_number(metric) for metric in row.values()))
        groups.setdefault(tuple(row), []).append(cells)
    header = ("task", table.axis or "what")
    return [Grid((*header, *columns), tuple(found)) for columns, found in groups.items()]


def _number(metric: Metric) -> str:
    """A number with its interval, and the paper's in brackets."""
    text = "∞" if metric.value is None else _short(metric.value)
    if metric.low is not None and metric.high is not None:
        text += f" ({metric.low:.0f} to {metric.high:.0f})"
    text += "" if metric.count is None else f" n={metric.count}"
    return text if metric.paper is None else f"{text} [{_short(metric.paper)}]"


def _short(value: float) -> str:
    """Four digits, and no exponent for large numbers."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


def _success(entry: Entry) -> str:
    """A success rate with its interval, and the paper's in brackets."""
    rate, spread = entry.summary.rate, entry.summary.seed_std
    low, high = round(100 * rate.low), round(100 * rate.high)
    text = f"{100 * rate.mean:.1f}"
    text += "" if spread is None else f" ±{100 * spread:.1f}"
    text += f" ({low} to {high})"
    if entry.paper is None:
        return text
    mark = "↑" if low > entry.paper else "↓" if high < entry.paper else "="  # as it is shown
    return f"{text} [{entry.paper:g} {mark}]"
