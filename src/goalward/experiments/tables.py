"""Tables of experiments, from the rows of their cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from goalward.config import read_config, to_json, write_json
from goalward.devices import machine
from goalward.evaluate.rows import EpisodeRow
from goalward.evaluate.summary import MethodSummary, summarise_method
from goalward.evaluate.timing import Latency
from goalward.experiments.cell import Cell
from goalward.experiments.experiment import TASKS, Experiment, Label, MethodName
from goalward.experiments.lab import Lab
from goalward.experiments.study import Fact, Study
from goalward.experiments.verdict import Rows, Times, Verdict, judge_claim
from goalward.experiments.work import CellRows, Outcome
from goalward.provenance import library_versions
from goalward.tasks import get_task


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
class Picture:
    """One that is an outcome itself."""

    task: str
    path: str  # beside the table's own


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where numbers come from."""

    pairs: int  # of start and goal
    machine: str
    git_revision: str | None
    versions: dict[str, str]  # of libraries


@dataclass(frozen=True, kw_only=True)
class Table:
    """What an experiment found."""

    id: str
    title: str
    paper: str
    axis: str
    preset: str
    tasks: tuple[str, ...]
    entries: tuple[Entry, ...]  # success rates
    verdicts: tuple[Verdict, ...]
    facts: tuple[Fact, ...]  # other numbers
    pictures: tuple[Picture, ...]
    sources: dict[str, Source]  # of every task, since sittings may be far apart

    def __post_init__(self) -> None:
        if {*self.sources} != {*self.tasks}:
            raise ValueError(f"sources must be of {', '.join(self.tasks)}, got {[*self.sources]}")

    @property
    def tasks_by_pairs(self) -> dict[int, list[str]]:
        """Which tasks were measured on how many pairs: time may not allow as many of each."""
        found: dict[int, list[str]] = {}
        for task in self.tasks:
            found.setdefault(self.sources[task].pairs, []).append(task)
        return found

    @property
    def shown_pairs(self) -> str:
        """Their numbers in words."""
        found = self.tasks_by_pairs
        if len(found) == 1:
            return f"{next(iter(found))} pairs"
        return ", ".join(f"{pairs} pairs ({', '.join(tasks)})" for pairs, tasks in found.items())

    @property
    def is_empty(self) -> bool:
        """Whether nothing was found."""
        return not (self.entries or self.facts or self.pictures)


def all_cells(experiments: Sequence[Experiment | Study], tasks: Sequence[str] = ()) -> list[Cell]:
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
        if isinstance(experiment, Experiment)
        for task in experiment.tasks
        if not tasks or task in tasks
        for _, _, cell in experiment.cells(task)
    ]
    return sorted(dict.fromkeys(found), key=lambda cell: (cell.task, cell.protocol))


def used_cells(experiments: Sequence[Experiment | Study], tasks: Sequence[str] = ()) -> list[Cell]:
    """Those whose models are looked at by a study."""
    return [
        cell
        for study in experiments
        if isinstance(study, Study)
        for task in study.tasks
        if not tasks or task in tasks
        for cell in study.uses(task)
    ]


def ready_tasks(
    lab: Lab, one: Experiment | Study, found: Outcome, tasks: Sequence[str] = ()
) -> list[str]:
    """Its tasks of which all could be run, or prepared."""

    def is_ready(task: str) -> bool:
        if isinstance(one, Experiment):
            return all(cell in found.rows for _, _, cell in one.cells(task))
        cells = map(lab.plain, one.uses(task))
        return not any(f.work.is_for(cell) for cell in cells for f in found.failures)

    return [task for task in one.tasks if (not tasks or task in tasks) and is_ready(task)]


def tabulate(
    lab: Lab,
    one: Experiment | Study,
    folder: Path,
    *,
    rows: CellRows,
    revision: str | None,
    tasks: Sequence[str],
) -> Table:
    """The table of an experiment whose cells were run; it is empty without tasks.

    Args:
        lab: Where it is run.
        one: The experiment, or a study.
        folder: Where pictures go.
        rows: Of its cells.
        revision: Of goalward, from before any table was written into its checkout.
        tasks: Those that it is to have.
    """
    source = Source(
        pairs=lab.pairs, machine=machine(), git_revision=revision, versions=library_versions()
    )
    entries: list[Entry] = []
    verdicts: list[Verdict] = []
    facts: list[Fact] = []
    pictures: list[Picture] = []
    for task in tasks:
        if isinstance(one, Study):
            found = one.measure(lab, task, folder)
            facts += found.facts
            paths = (path.relative_to(folder).as_posix() for path in found.pictures)
            pictures += [Picture(task=task, path=path) for path in paths]
        else:
            places, times = _collect(lab, one, task, rows)
            entries += entries_of(one, task, places, times)
            verdicts += verdicts_on(one, task, places, times)
    return Table(
        id=one.id,
        title=one.title,
        paper=one.paper,
        axis=one.axis,
        preset=lab.preset,
        tasks=tuple(tasks),
        entries=tuple(entries),
        verdicts=tuple(verdicts),
        facts=tuple(facts),
        pictures=tuple(pictures),
        sources=dict.fromkeys(tasks, source),
    )


def entries_of(experiment: Experiment, task: str, rows: Rows, times: Times) -> list[Entry]:
    """The numbers of one task, from rows by place in the table and times by method."""
    return [
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


def verdicts_on(experiment: Experiment, task: str, rows: Rows, times: Times) -> list[Verdict]:
    """What the same rows and times say about the experiment's claims."""
    judged = (judge_claim(claim, task, rows, times) for claim in experiment.claims)
    return [verdict for verdict in judged if verdict is not None]


def stored_table(folder: Path, name: str) -> Table | None:
    """What an earlier run wrote of an experiment.

    Raises:
        ValueError: the file is damaged, or of another version.
    """
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    try:
        return read_config(Table, path)
    except ValueError as error:
        raise ValueError(
            f"{error}; it is damaged or of another version: give another --out, or delete it"
        ) from error


def require_no_fewer_pairs(
    folder: Path, experiments: Sequence[Experiment | Study], pairs: int, tasks: Sequence[str]
) -> None:
    """Refuse what would put a weaker measurement in a better one's place, before hours are spent.

    Raises:
        ValueError: a table there has one of the tasks with more pairs.
    """
    for one in experiments:
        old = stored_table(folder, one.id)
        for task, source in ({} if old is None else old.sources).items():
            known = source.pairs
            if (not tasks or task in tasks) and known > pairs:
                raise ValueError(
                    f"{folder / one.id}.json has {task} measured on {known} pairs, more than "
                    f"{pairs}; give --pairs {known}, or another --out"
                )


def save_table(folder: Path, table: Table) -> Table:
    """Write a table as JSON, with the tasks of the one before that it lacks; returns all of it."""
    old = stored_table(folder, table.id)
    whole = table if old is None else merged(old, table)
    write_json(folder / f"{table.id}.json", to_json(whole))
    return whole


def merged(old: Table, new: Table) -> Table:
    """The new table, and of the old one the tasks that the new one lacks."""
    kept = [task for task in old.tasks if task not in new.tasks]
    parts = [(new if task in new.tasks else old, task) for task in TASKS]
    return replace(
        new,
        tasks=tuple(task for task in TASKS if task in (*kept, *new.tasks)),
        entries=tuple(e for part, task in parts for e in part.entries if e.task == task),
        verdicts=tuple(v for part, task in parts for v in part.verdicts if v.task == task),
        facts=tuple(f for part, task in parts for f in part.facts if f.task == task),
        pictures=tuple(p for part, task in parts for p in part.pictures if p.task == task),
        sources={**new.sources, **{task: old.sources[task] for task in kept}},
    )


def _collect(
    lab: Lab, experiment: Experiment, task: str, known: CellRows
) -> tuple[Rows, dict[MethodName, Latency]]:
    """Rows of all seeds by place in the table, and times by method."""
    rows = rows_by_place(experiment, task, lab.pairs, known.__getitem__)
    if not experiment.timed:
        return rows, {}
    timed: dict[MethodName, Cell] = {}
    for _, method, cell in experiment.cells(task):
        timed.setdefault(method, cell)
    return rows, lab.times(list(timed.values()))


def rows_by_place(
    experiment: Experiment,
    task: str,
    pairs: int,
    rows_of: Callable[[Cell], Sequence[EpisodeRow]],
) -> Rows:
    """Rows of all seeds by method and point, without the points that take more pairs."""
    rows: dict[tuple[MethodName, Label], list[EpisodeRow]] = {}
    for point, method, cell in experiment.cells(task):
        first = pairs if point.first is None else point.first
        if first <= pairs:
            kept = (row for row in rows_of(cell) if row.pair < first)
            rows.setdefault((method, point.label), []).extend(kept)
    return rows
