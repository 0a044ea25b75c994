"""Tables of experiments, from the rows of their cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from goalward.core.machine import Provenance, this_origin
from goalward.evaluation.latency import Latency
from goalward.evaluation.results import EpisodeResult, MethodSummary, summarise_method
from goalward.experiments.claims import Rows, Times, Verdict, judge_claim
from goalward.experiments.experiment import Cell, Experiment, Fact, Label, MethodName, Study
from goalward.experiments.run import Lab, Measured, Outcome
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
    """Where a task's numbers come from."""

    pairs: int  # of start and goal
    origins: tuple[Provenance, ...]  # none: it was not noted


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
            return all(cell in found.cells for _, _, cell in one.cells(task))
        cells = map(lab.plain, one.uses(task))
        return not any(f.work.is_for(cell) for cell in cells for f in found.failures)

    return [task for task in one.tasks if (not tasks or task in tasks) and is_ready(task)]


def tabulate(
    lab: Lab,
    one: Experiment | Study,
    folder: Path,
    *,
    cells: Mapping[Cell, Measured],
    tasks: Sequence[str],
) -> Table:
    """The table of an experiment whose cells were run; it is empty without tasks.

    Args:
        lab: Where it is run.
        one: The experiment, or a study.
        folder: Where pictures go.
        cells: What they gave.
        tasks: Those that it is to have.
    """
    sources: dict[str, Source] = {}
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
            origins = [this_origin()]
        else:
            places, times = _collect(lab, one, task, cells)
            origins = [o for _, _, cell in one.cells(task) for o in cells[cell].origins]
            origins += [this_origin()] if times else []
            entries += entries_of(one, task, places, times)
            verdicts += verdicts_on(one, task, places, times)
        sources[task] = Source(pairs=lab.pairs, origins=_each_once(origins))
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
        sources=sources,
    )


def _each_once(origins: Sequence[Provenance]) -> tuple[Provenance, ...]:
    return tuple(o for k, o in enumerate(origins) if o not in origins[:k])


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


def _collect(
    lab: Lab, experiment: Experiment, task: str, known: Mapping[Cell, Measured]
) -> tuple[Rows, dict[MethodName, Latency]]:
    """Rows of all seeds by place in the table, and times by method."""
    rows = rows_by_place(experiment, task, lab.pairs, lambda cell: known[cell].rows)
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
    rows_of: Callable[[Cell], Sequence[EpisodeResult]],
) -> Rows:
    """Rows of all seeds by method and point, without the points that take more pairs."""
    rows: dict[tuple[MethodName, Label], list[EpisodeResult]] = {}
    for point, method, cell in experiment.cells(task):
        first = pairs if point.first is None else point.first
        if first <= pairs:
            kept = (row for row in rows_of(cell) if row.pair < first)
            rows.setdefault((method, point.label), []).extend(kept)
    return rows
