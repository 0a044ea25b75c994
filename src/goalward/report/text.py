"""The report as Markdown, and as CSV with a row a number."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from goalward.report.content import MARKS, Report, Section

COLUMNS = (
    *(
        "experiment",
        "preset",
        "task",
        "method",
        "point",
        "success",
        "low",
        "high",
        "pairs",
        "seeds",
    ),
    *("seed_std", "paper", "jerk", "monotone", "ms_decision", "ms_plan"),
)


def markdown_page(report: Report) -> str:
    """The whole page."""
    return "\n".join(line for section in report.sections for line in _markdown(section)) + "\n"


def _markdown(section: Section) -> Iterator[str]:
    table = section.table
    yield f"## {table.title}\n\n{table.paper}.\n\n    {section.command}\n"
    for grid in section.grids:
        yield f"### {grid.task}\n"
        yield _line(grid.header)
        yield f"|{' --- |' * len(grid.header)}"
        yield from map(_line, grid.rows)
        yield ""
    for verdict in table.verdicts:
        mark, change = MARKS[verdict.verdict], verdict.difference
        yield f"- {mark}: {verdict.task}: {verdict.claim} ({change} points)"
    yield ""


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def csv_rows(report: Report) -> str:
    """One row a method, point and task."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for section in report.sections:
        for entry in section.table.entries:
            summary, time = entry.summary, entry.latency
            writer.writerow(
                (
                    *(
                        section.table.id,
                        section.table.preset,
                        entry.task,
                        entry.method,
                        entry.point,
                    ),
                    *(summary.rate.mean, summary.rate.low, summary.rate.high, summary.rate.count),
                    *(summary.seeds, summary.seed_std, entry.paper, summary.jerk, summary.monotone),
                    *((None, None) if time is None else (time.mean, time.plan)),
                )
            )
    return out.getvalue()
