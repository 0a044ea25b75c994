"""What a report tells, before it becomes a page or a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from goalward.config import read_config
from goalward.experiments.runner import Entry, Table

MARKS = {"holds": "✓ holds", "fails": "✗ fails", "open": "~ open"}


@dataclass(frozen=True, kw_only=True)
class Grid:
    """One task's table: a row a method, a column a point."""

    task: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Section:
    """One experiment."""

    table: Table
    grids: tuple[Grid, ...]
    figure: Path | None
    command: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """All of them."""

    sections: tuple[Section, ...]
    verdicts: dict[str, int]  # how many claims hold, fail or are open


def read_report(folder: Path) -> Report:
    """The tables and figures that `goalward reproduce` wrote into a folder.

    Raises:
        ValueError: there are none, or one is damaged.
    """
    tables = [read_config(Table, path) for path in sorted(folder.glob("*.json"))]
    if not tables:
        raise ValueError(f"{folder}: no tables there; run `goalward reproduce` first")
    sections = tuple(_section(table, folder) for table in tables)
    counts: Counter[str] = Counter(
        verdict.verdict for table in tables for verdict in table.verdicts
    )
    return Report(sections=sections, verdicts={name: counts[name] for name in MARKS})


def _section(table: Table, folder: Path) -> Section:
    tasks = dict.fromkeys(entry.task for entry in table.entries)
    figure = folder / f"{table.id}.svg"
    return Section(
        table=table,
        grids=tuple(_grid(table, task) for task in tasks),
        figure=figure if figure.exists() else None,
        command=(
            f"goalward reproduce {table.id} --preset {table.preset} --pairs {table.pairs} "
            f"--tasks {' '.join(tasks)}"
        ),
    )


def _grid(table: Table, task: str) -> Grid:
    entries = [entry for entry in table.entries if entry.task == task]
    points = list(dict.fromkeys(entry.point for entry in entries))
    methods = list(dict.fromkeys(entry.method for entry in entries))
    places = {(entry.method, entry.point): entry for entry in entries}
    rows = tuple(
        (method, *(_cell(places.get((method, point))) for point in points), *_rest(entries, method))
        for method in methods
    )
    more = ("jerk", "monotone", "ms a decision")
    return Grid(task=task, header=(table.axis or "method", *points, *more), rows=rows)


def _cell(entry: Entry | None) -> str:
    """A success with its interval, and the paper's in brackets."""
    if entry is None:
        return ""
    rate, spread = entry.summary.rate, entry.summary.seed_std
    text = f"{100 * rate.mean:.1f}"
    text += "" if spread is None else f" ±{100 * spread:.1f}"
    text += f" ({100 * rate.low:.0f} to {100 * rate.high:.0f})"
    return text if entry.paper is None else f"{text} [{entry.paper:g}]"


def _rest(entries: Sequence[Entry], method: str) -> tuple[str, str, str]:
    """Trajectories and time at a method's last point."""
    last = [entry for entry in entries if entry.method == method][-1]
    jerk, monotone = last.summary.jerk, last.summary.monotone
    return (
        "" if jerk is None else f"{jerk:.3f}",
        "" if monotone is None else f"{100 * monotone:.0f}%",
        "" if last.latency is None else f"{last.latency.mean:.2f}",
    )
