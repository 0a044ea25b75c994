"""The report as one self-contained HTML page."""

from __future__ import annotations

import base64
import csv
import io
import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from goalward.core.config import read_config
from goalward.core.machine import Provenance, short_revision
from goalward.experiments.catalog import find_experiments
from goalward.experiments.claims import Verdict
from goalward.experiments.comparisons import PAIRS
from goalward.experiments.experiment import Experiment, Fact, method_name
from goalward.experiments.paper import trajectory_figure
from goalward.experiments.tables import Entry, Picture, Source, Table

TITLE = "goalward: the paper's tables, measured"
INTRODUCTION = (
    "Success in percent, ± the standard deviation over three seeds (without it: one seed), with "
    "the 95% interval over pairs; in brackets the paper's figure, and whether our interval lies "
    "around it (=), above it (↑) or below it (↓). Pairs are of held-out test episodes (but where a "
    "column says all), the goal 25 recorded steps on and the budget 50 steps unless a table varies "
    "them, judged by the environment itself, as in the paper, whose pairs are of all episodes.",
    "The paper's models are larger, and its demonstrations are others. And the CPU presets train "
    "their world models with two losses that the paper does not have, one of them an inverse "
    "dynamics loss, which teaches latents to show actions: the table of geometries tells what "
    "that one does. The paper's figures are for orientation.",
    "Claims (the paper's, but for those marked as ours) are judged by the 95% interval of a "
    "difference: on the same pairs (Agresti & Min) or, where the pairs themselves are varied, on "
    "different ones (Agresti & Caffo), wider where pairs of an episode are alike. A claim that few "
    "pairs cannot tell stays open. Intervals do not know how much another training would differ; "
    "tables of different revisions are of separate trainings, in which the same cell may differ by "
    "a few points.",
)
GLOSSARY = {
    "GC-IDM (budget)": "as in the paper: told the steps that are left of the budget",
    "GC-IDM (time to go)": "ours: told its own estimate of the steps to the goal",
    "hybrid": "ours: a short search around GC-IDM's proposal",
    "jerk": "mean size of the second difference of the actions",
    "monotonic": (
        "share of episodes in which the latent distance to the goal falls at every step, as the "
        "paper defines it; its figures are so high that they may be of the next kind"
    ),
    "approach rate": "mean share of steps at which that distance falls",
    "ms a decision": "one environment, a plan's time spread over the actions that it commits to",
    "isotropy": "1 if the latents vary as much in every direction, 1 / D if in one alone",
    "effective rank": "in how many directions they vary, by the entropy of the variances",
    "κ": (
        "how unevenly a step's actions show in the latents (condition number, median over states); "
        "it compares world models on one task"
    ),
    "inverse R²": "how well the pairwise model reads actions from true pairs of latents",
}


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
    others = {
        "jerk": summary.jerk,
        "monotonic": summary.monotonic,
        "approach rate": summary.approach_rate,
    }
    others["steps"] = summary.steps
    if entry.latency is not None:
        others |= {"ms_decision": entry.latency.mean, "ms_plan": entry.latency.plan}
    for name, value in others.items():
        yield {"quantity": name, "value": value, "seeds": summary.seeds}


MOST_COLUMNS = 3  # of points
ABOVE, BELOW, AROUND = "↑", "↓", "="
REST = ("jerk", "monotonic", "approach rate", "ms a decision")
LIBRARIES = {"torch": "torch", "Python": "python"}  # that are named beside a table
MARKS = {"holds": "✓ holds", "fails": "✗ fails", "open": "~ open"}


@dataclass(frozen=True, kw_only=True)
class Grid:
    """One task's table: a row a method and a column a point, or the other way round."""

    task: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A picture that is an outcome itself."""

    path: Path
    name: str  # the task, and what tells it from others of it


@dataclass(frozen=True, kw_only=True)
class Section:
    """One experiment."""

    table: Table
    grids: tuple[Grid, ...]
    figure: Path | None  # drawn from the table
    pictures: tuple[Shown, ...]
    commands: tuple[str, ...]  # that measure it anew

    @property
    def sources(self) -> list[str]:
        """On which machine, by which code and with which libraries each task was measured."""
        tasks: dict[str, list[str]] = {}
        for task in self.table.tasks:
            tasks.setdefault(_shown_source(self.table.sources[task]), []).append(task)
        return [f"{', '.join(names)}: {source}" for source, names in tasks.items()]


@dataclass(frozen=True, kw_only=True)
class Report:
    """All of them."""

    sections: tuple[Section, ...]  # in the catalog's order

    @property
    def claims(self) -> dict[str, dict[str, Verdict]]:
        """What was judged, by claim and task."""
        found: dict[str, dict[str, Verdict]] = {}
        for section in self.sections:
            for verdict in section.table.verdicts:
                found.setdefault(verdict.claim, {})[verdict.task] = verdict
        return found

    def verdicts(self, *, ours: bool, task: str | None = None) -> dict[str, int]:
        """How many claims hold, fail or are open, each task by itself: the paper's, or ours."""
        found: list[str] = [
            verdict.verdict
            for by_task in self.claims.values()
            for verdict in by_task.values()
            if verdict.ours == ours and task in (None, verdict.task)
        ]
        return {name: found.count(name) for name in MARKS}

    def shown(self, claim: str, task: str) -> str:
        """What was found of a claim on a task, or why nothing was."""
        verdict = self.claims[claim].get(task)
        if verdict is not None:
            return f"{MARKS[verdict.verdict]} {verdict.shown}"
        return "" if (claim, task) in _catalog_claims() else "not claimed"

    @property
    def missing(self) -> list[str]:
        """The experiments of the catalog that were not run."""
        known = {section.table.id for section in self.sections}
        return [one.id for one in find_experiments(()) if one.id not in known]

    @property
    def tasks(self) -> list[str]:
        """Every task that a claim was judged on."""
        return list(dict.fromkeys(task for by_task in self.claims.values() for task in by_task))


def read_report(folder: Path) -> Report:
    """The tables and figures that `goalward reproduce` wrote into a folder.

    Raises:
        ValueError: there are none, or one is damaged.
    """
    tables = [_table(path) for path in sorted(folder.glob("*.json"))]
    if not tables:
        raise ValueError(f"{folder}: no tables there; run `goalward reproduce` first")
    order = [one.id for one in find_experiments(())]
    tables.sort(key=lambda table: order.index(table.id) if table.id in order else len(order))
    sections = tuple(_section(table, folder) for table in tables)
    return Report(sections=sections)


def _catalog_claims() -> set[tuple[str, str]]:
    """Every claim with each task that it is made for and measured on."""
    return {
        (claim.wording, task)
        for one in find_experiments(())
        if isinstance(one, Experiment)
        for claim in one.claims
        for task in claim.tasks
        if task in one.tasks
    }


def _table(path: Path) -> Table:
    try:
        return read_config(Table, path)
    except ValueError as error:
        raise ValueError(
            f"{error}; a report is made from a folder of `goalward reproduce`, such as "
            "runs/experiments/tables/cpu"
        ) from error


def _section(table: Table, folder: Path) -> Section:
    figure = folder / f"{table.id}.svg"
    pictures = [
        Shown(path=folder / picture.path, name=_picture_name(table, picture))
        for picture in table.pictures
    ]
    return Section(
        table=table,
        grids=tuple(
            (_grid if table.entries else _fact_grid)(table, task) for task in _tasks(table)
        ),
        figure=figure if figure.exists() else None,
        pictures=tuple(picture for picture in pictures if picture.path.exists()),
        commands=tuple(
            f"goalward reproduce {table.id} --preset {table.preset} --pairs {pairs}"
            f" --tasks {' '.join(tasks)}"
            for pairs, tasks in table.tasks_by_pairs.items()
        ),
    )


def _picture_name(table: Table, picture: Picture) -> str:
    """`two-room` for plans-two-room.png, `two-room, pair 3` for two-room/pair-3-648713.png."""
    stem = re.sub("-[0-9a-f]{6}$", "", Path(picture.path).stem)  # without the id of its pairs
    if stem == f"{table.id}-{picture.task}":
        return picture.task
    return f"{picture.task}, {stem.replace('-', ' ')}"


def _tasks(table: Table) -> list[str]:
    """Those that have numbers."""
    found = {entry.task for entry in table.entries} | {fact.task for fact in table.facts}
    return [task for task in table.tasks if task in found]


def _grid(table: Table, task: str) -> Grid:
    entries = [entry for entry in table.entries if entry.task == task]
    points = list(dict.fromkeys(entry.point for entry in entries))
    methods = list(dict.fromkeys(entry.method for entry in entries))
    places = {(entry.method, entry.point): entry for entry in entries}
    if len(points) > max(MOST_COLUMNS, len(methods)):  # a long table reads better than a wide one
        return Grid(
            task=task,
            header=(table.axis, *map(method_name, methods)),
            rows=tuple((p, *(_cell(places.get((m, p))) for m in methods)) for p in points),
        )
    columns: dict[str, Sequence[str]] = {
        table.axis or "method": [method_name(method) for method in methods],
        **{point: [_cell(places.get((m, point))) for m in methods] for point in points},
    }
    if len(points) == 1 or table.axis == PAIRS:  # the last point is all there is
        rest = zip(*(_rest(entries, method) for method in methods), strict=True)
        columns |= {name: cells for name, cells in zip(REST, rest, strict=True) if any(cells)}
    return Grid(task=task, header=tuple(columns), rows=tuple(zip(*columns.values(), strict=True)))


def _fact_grid(table: Table, task: str) -> Grid:
    facts = [fact for fact in table.facts if fact.task == task]
    columns = list(dict.fromkeys(fact.column for fact in facts))
    places = {(fact.row, fact.column): fact for fact in facts}
    rows = tuple(
        (row, *(_number(places.get((row, column))) for column in columns))
        for row in dict.fromkeys(fact.row for fact in facts)
    )
    return Grid(task=task, header=(table.axis, *columns), rows=rows)


def _number(fact: Fact | None) -> str:
    """A number, and the paper's in brackets."""
    if fact is None:
        return ""
    text = "∞" if fact.value is None else f"{fact.value:.4g}"
    return text if fact.paper is None else f"{text} [{fact.paper:.4g}]"


def _cell(entry: Entry | None) -> str:
    """A success with its interval, and the paper's in brackets."""
    if entry is None:
        return ""
    rate, spread = entry.summary.rate, entry.summary.seed_std
    text = f"{100 * rate.mean:.1f}"
    text += "" if spread is None else f" ±{100 * spread:.1f}"
    text += " ({} to {})".format(*_shown_bounds(entry))
    return text if entry.paper is None else f"{text} [{entry.paper:g} {_mark(entry)}]"


def _mark(entry: Entry) -> str:
    """Where our interval, as it is shown, lies: around the paper's figure, above it or below it."""
    assert entry.paper is not None
    low, high = _shown_bounds(entry)
    if low > entry.paper:
        return ABOVE
    return BELOW if high < entry.paper else AROUND


def _shown_bounds(entry: Entry) -> tuple[int, int]:
    """The interval in whole percent."""
    rate = entry.summary.rate
    return round(100 * rate.low), round(100 * rate.high)


def _rest(entries: Sequence[Entry], method: str) -> tuple[str, ...]:
    """Trajectories and time at a method's last point."""
    last = [entry for entry in entries if entry.method == method][-1]
    summary, paper = last.summary, trajectory_figure(last.task, method)
    jerk, monotonic = ("", "") if paper is None else (f" [{paper[0]:g}]", f" [{paper[1]:g}%]")
    return (
        "" if summary.jerk is None else f"{summary.jerk:.3f}{jerk}",
        _percent(summary.monotonic) + monotonic,
        _percent(summary.approach_rate),
        "" if last.latency is None else f"{last.latency.mean:.2f}",
    )


def _shown_source(source: Source) -> str:
    return " and ".join(dict.fromkeys(map(_shown_origin, source.origins))) or "not noted by what"


def _shown_origin(origin: Provenance) -> str:
    known = {name: origin.versions.get(key) for name, key in LIBRARIES.items()}
    versions = (f"{name} {version}" for name, version in known.items() if version)
    revision = "unknown" if origin.git_revision is None else short_revision(origin.git_revision)
    return ", ".join([origin.machine, f"revision {revision}", *versions])


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f}%"


TEMPLATE = "page.html.j2"
MIME_TYPES = {".svg": "image/svg+xml", ".png": "image/png", ".gif": "image/gif"}


def html_page(report: Report) -> str:
    """The whole page: no other file, and no network, is needed to show it."""
    from jinja2 import Environment

    text = (files("goalward.experiments") / TEMPLATE).read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["as_image"] = _as_image
    return environment.from_string(text).render(
        title=TITLE, report=report, marks=MARKS, introduction=INTRODUCTION, glossary=GLOSSARY
    )


def _as_image(path: Path) -> str:
    content = base64.b64encode(path.read_bytes()).decode()
    return f"data:{MIME_TYPES[path.suffix]};base64,{content}"
