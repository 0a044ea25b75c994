"""Running experiments: every cell once, whichever tables it stands in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from goalward.config import to_json, write_json
from goalward.evaluate.rows import EpisodeRow
from goalward.evaluate.summary import MethodSummary, summarise_method
from goalward.evaluate.timing import Latency
from goalward.experiments.cell import Cell
from goalward.experiments.experiment import Experiment, Label, MethodName
from goalward.experiments.lab import Lab
from goalward.experiments.verdict import Verdict, judge_claim
from goalward.provenance import git_revision, library_versions
from goalward.tasks import get_task

OnCell = Callable[[int, int, Cell], None]  # (number, of how many, about to run)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One number of a table, with the paper's beside it."""

    task: str
    method: MethodName
    point: Label
    summary: MethodSummary
    latency: Latency | None
    paper: float | None  # percent


@dataclass(frozen=True, kw_only=True)
class Table:
    """What an experiment found."""

    id: str
    title: str
    paper: str
    axis: str
    preset: str
    pairs: int
    entries: tuple[Entry, ...]
    verdicts: tuple[Verdict, ...]
    git_revision: str | None
    versions: dict[str, str]


def all_cells(experiments: Sequence[Experiment], tasks: Sequence[str] = ()) -> list[Cell]:
    """Every cell once, the tasks one after the other so that simulators are shared.

    Raises:
        ValueError: a task is unknown, or none of the experiments has it.
    """
    for task in tasks:
        if not any(get_task(task).name in experiment.tasks for experiment in experiments):
            raise ValueError(f"none of these experiments is about task {task}")
    found = [
        cell
        for experiment in experiments
        for task in experiment.tasks
        if not tasks or task in tasks
        for _, _, cell in experiment.cells(task)
    ]
    return sorted(dict.fromkeys(found), key=lambda cell: (cell.task, cell.protocol))


def run_cells(lab: Lab, cells: Sequence[Cell], on_cell: OnCell | None = None) -> None:
    """Run what is missing."""
    for number, cell in enumerate(cells):
        if on_cell is not None:
            on_cell(number, len(cells), cell)
        lab.run(cell)


def tabulate(lab: Lab, experiment: Experiment, tasks: Sequence[str] = ()) -> Table:
    """The table of an experiment whose cells were run; those that were not are run now.

    It is empty if the experiment has none of the tasks.
    """
    entries: list[Entry] = []
    verdicts: list[Verdict] = []
    for task in experiment.tasks:
        if tasks and task not in tasks:
            continue
        rows, times = _collect(lab, experiment, task)
        entries += [
            Entry(
                task=task,
                method=method,
                point=point,
                summary=summarise_method(found),
                latency=times.get(method),
                paper=experiment.figure(task, point, method),
            )
            for (method, point), found in rows.items()
        ]
        judged = (judge_claim(claim, task, rows) for claim in experiment.claims)
        verdicts += [verdict for verdict in judged if verdict is not None]
    return Table(
        id=experiment.id,
        title=experiment.title,
        paper=experiment.paper,
        axis=experiment.axis,
        preset=lab.preset,
        pairs=lab.pairs,
        entries=tuple(entries),
        verdicts=tuple(verdicts),
        git_revision=git_revision(),
        versions=library_versions(),
    )


def save_table(folder: Path, table: Table) -> Path:
    """Write a table as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{table.id}.json"
    write_json(path, to_json(table))
    return path


def _collect(
    lab: Lab, experiment: Experiment, task: str
) -> tuple[dict[tuple[MethodName, Label], list[EpisodeRow]], dict[MethodName, Latency]]:
    """Rows of all seeds by place in the table, and times by method."""
    rows: dict[tuple[MethodName, Label], list[EpisodeRow]] = {}
    timed: dict[MethodName, Cell] = {}
    for point, method, cell in experiment.cells(task):
        if point.first is None or point.first <= lab.pairs:
            found = _first(lab.run(cell), point.first)
            rows.setdefault((method, point.label), []).extend(found)
            timed.setdefault(method, cell)
    return rows, lab.times(list(timed.values())) if experiment.timed else {}


def _first(rows: Sequence[EpisodeRow], number: int | None) -> Iterator[EpisodeRow]:
    return (row for row in rows if number is None or row.pair < number)
