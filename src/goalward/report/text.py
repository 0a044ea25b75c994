"""The report as Markdown, and as CSV with a row a number."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from goalward.experiments.tables import Entry
from goalward.report.content import MARKS, Report, Section

COLUMNS = (
    *("experiment", "preset", "task", "method", "point", "quantity", "value", "low", "high"),
    *("pairs", "seeds", "seed_std", "paper"),
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
    """One row a number: experiment, task, method and point, what it is, and how sure it is."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    for section in report.sections:
        about = {"experiment": section.table.id, "preset": section.table.preset}
        for entry in section.table.entries:
            place = {"task": entry.task, "method": entry.method, "point": entry.point}
            writer.writerows({**about, **place, **number} for number in _numbers(entry))
        for fact in section.table.facts:
            writer.writerow(
                {
                    **about,
                    "task": fact.task,
                    "point": fact.row,
                    "quantity": fact.column,
                    "value": fact.value,
                    "paper": fact.paper,
                }
            )
    return out.getvalue()


def _numbers(entry: Entry) -> Iterator[dict[str, object]]:
    """The success of an entry first, then what else is known of it."""
    summary, rate = entry.summary, entry.summary.rate
    yield {
        "quantity": "success",
        "value": rate.mean,
        "low": rate.low,
        "high": rate.high,
        "pairs": rate.count,
        "seeds": summary.seeds,
        "seed_std": summary.seed_std,
        "paper": None if entry.paper is None else entry.paper / 100,
    }
    others = {"jerk": summary.jerk, "monotone": summary.monotone, "steps": summary.steps}
    if entry.latency is not None:
        others |= {"ms_decision": entry.latency.mean, "ms_plan": entry.latency.plan}
    for name, value in others.items():
        yield {"quantity": name, "value": value, "seeds": summary.seeds}
