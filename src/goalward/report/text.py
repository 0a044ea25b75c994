"""The report as Markdown, and as CSV with a row a number."""

from __future__ import annotations

import csv
import io
import os
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from goalward.experiments.tables import Entry
from goalward.report.content import MARKS, Report, Section
from goalward.report.words import GLOSSARY, INTRODUCTION

WIDTH = 100
COLUMNS = (
    *("experiment", "preset", "task", "method", "point", "quantity", "value", "low", "high"),
    *("pairs", "seeds", "seed_std", "paper"),
)


def legend() -> str:
    """What the page's words and figures mean."""
    paragraphs = [f"{textwrap.fill(paragraph, WIDTH)}\n" for paragraph in INTRODUCTION]
    terms = [f"- *{name}*: {meaning}." for name, meaning in GLOSSARY.items()]
    return "\n".join([*paragraphs, *terms, ""])


def markdown_page(report: Report, folder: Path) -> str:
    """The whole page, for a file in this folder; pictures stay where they are."""
    parts = [*_claims(report)]
    for section in report.sections:
        parts += _markdown(section, folder)
    return "\n".join(parts) + "\n"


def _claims(report: Report) -> Iterator[str]:
    """What was judged, a line a claim."""
    if report.claims:
        yield _line(("claim", *report.tasks))
        yield f"|{' --- |' * (1 + len(report.tasks))}"
        for claim in report.claims:
            yield _line((claim, *(report.shown(claim, task) for task in report.tasks)))
        yield ""
    if report.missing:
        yield f"Not run yet: {', '.join(report.missing)}.\n"


def _markdown(section: Section, folder: Path) -> Iterator[str]:
    table = section.table
    commands = "\n    ".join(section.commands)
    yield f"## {table.title}\n\n{table.paper}.\n\n    {commands}\n"
    drawn = [] if section.figure is None else [(table.title, section.figure)]
    drawn += [(f"{table.title}: {picture.name}", picture.path) for picture in section.pictures]
    for name, path in drawn:
        # Not Path.relative_to, which cannot go up.
        yield f"![{name}]({Path(os.path.relpath(path, folder)).as_posix()})\n"
    for grid in section.grids:
        yield f"### {grid.task}\n"
        yield _line(grid.header)
        yield f"|{' --- |' * len(grid.header)}"
        yield from map(_line, grid.rows)
        yield ""
    for verdict in table.verdicts:
        yield f"- {MARKS[verdict.verdict]}: {verdict.task}: {verdict.claim} ({verdict.shown})"
    if table.verdicts:
        yield ""
    yield f"Measured: {'; '.join(section.sources)}.\n"


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
    others = {"jerk": summary.jerk, "monotone": summary.monotone, "closing": summary.closing}
    others["steps"] = summary.steps
    if entry.latency is not None:
        others |= {"ms_decision": entry.latency.mean, "ms_plan": entry.latency.plan}
    for name, value in others.items():
        yield {"quantity": name, "value": value, "seeds": summary.seeds}
