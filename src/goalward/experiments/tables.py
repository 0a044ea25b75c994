"""Tables of results: from the rows of runs to one file a table."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from goalward.core.config import parse_config, to_json
from goalward.core.files import atomic_write
from goalward.core.machine import Provenance, this_provenance
from goalward.evaluation.latency import Latency
from goalward.evaluation.results import EpisodeResult, MethodSummary, summarise_method
from goalward.evaluation.statistics import Rate
from goalward.experiments.claims import Latencies, Rows, Verdict, decide
from goalward.experiments.experiment import (
    CEM,
    TASKS,
    Analysis,
    Beside,
    Experiment,
    Place,
    RunSpec,
    Variant,
)
from goalward.experiments.paper import paper_success
from goalward.experiments.runner import Runner, RunResults

SUFFIX = ".json.gz"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One variant at one point, with the paper's figure beside it."""

    task: str
    variant: str  # its label
    point: str
    search_size: tuple[int, int] | None  # samples and iterations, where the table varies them
    summary: MethodSummary
    latency: Latency | None
    paper: float | None  # percent
    outcomes: dict[str, str]  # by seed, 1 or 0 for every pair; empty if they were not kept


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One number of an analysis, in the unit that its row or column names."""

    task: str
    row: str
    column: str
    value: float | None  # None: infinite
    low: float | None = None  # of the 95% interval
    high: float | None = None
    count: int | None = None  # of the cases that the interval is over
    paper: float | None = None


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture that is a result itself."""

    task: str
    path: str  # from the table's folder


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the numbers of a task come from."""

    pairs: int  # of start and goal
    origins: tuple[Provenance, ...]  # empty: unknown


@dataclass(frozen=True, kw_only=True)
class Table:
    """What an experiment or analysis found."""

    id: str
    title: str
    paper: str
    axis: str
    preset: str
    tasks: tuple[str, ...]
    entries: tuple[Entry, ...] = ()  # of an experiment
    verdicts: tuple[Verdict, ...] = ()
    metrics: tuple[Metric, ...] = ()  # of an analysis
    pictures: tuple[Picture, ...] = ()
    sources: dict[str, Source]  # by task: they may be measured far apart

    def __post_init__(self) -> None:
        if {*self.sources} != {*self.tasks}:
            raise ValueError(f"sources must be of {', '.join(self.tasks)}, got {[*self.sources]}")

    @property
    def tasks_by_pairs(self) -> dict[int, list[str]]:
        """The tasks that were measured on each number of pairs."""
        found: dict[int, list[str]] = {}
        for task in self.tasks:
            found.setdefault(self.sources[task].pairs, []).append(task)
        return found

    @property
    def shown_pairs(self) -> str:
        """Such as `200 pairs (two-room), 100 pairs (push-t)`."""
        found = self.tasks_by_pairs
        if len(found) == 1:
            return f"{next(iter(found))} pairs"
        return ", ".join(f"{pairs} pairs ({', '.join(tasks)})" for pairs, tasks in found.items())

    @property
    def has_pairs(self) -> bool:
        """Whether its numbers are of start and goal pairs."""
        return bool(self.entries) or any(one.count is not None for one in self.metrics)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was found."""
        return not (self.entries or self.metrics or self.pictures)


def measured_table(
    runner: Runner,
    one: Experiment | Analysis,
    task: str,
    results: Mapping[RunSpec, RunResults],
    folder: Path,
) -> Table:
    """The table of one task, after its runs; the pictures of an analysis go into the folder."""
    here = [this_provenance()]
    if isinstance(one, Analysis):
        paths = one.draw(runner, task, folder) if one.draw else ()
        pictures = (path.relative_to(folder).as_posix() for path in paths)
        parts: dict[str, Any] = {
            "metrics": tuple(metrics_of(one, runner, task)),
            "pictures": tuple(Picture(task=task, path=path) for path in pictures),
        }
        origins = here
    else:
        latencies = _latencies(runner, one, task)
        rows = rows_by_place(one, task, runner, results)
        parts = {
            "entries": tuple(entries_of(one, task, rows, latencies)),
            "verdicts": tuple(verdicts_of(one, task, rows, latencies)),
        }
        origins = [origin for spec in one.uses(task) for origin in results[spec].provenance]
        origins += here if latencies else []
    unique = tuple(o for k, o in enumerate(origins) if o not in origins[:k])
    return Table(
        id=one.id,
        title=one.title,
        paper=one.paper,
        axis=one.axis,
        preset=runner.preset,
        tasks=(task,),
        sources={task: Source(pairs=runner.pairs, origins=unique)},
        **parts,
    )


def metrics_of(analysis: Analysis, runner: Runner, task: str) -> Iterator[Metric]:
    """The numbers of an analysis; success rates are in percent."""
    for row, columns in analysis.measure(runner, task) if analysis.measure else ():
        for column, value in columns.items():
            if isinstance(value, Rate):
                yield Metric(
                    task=task,
                    row=row,
                    column=column,
                    value=100 * value.mean,
                    low=100 * value.low,
                    high=100 * value.high,
                    count=value.count,
                )
            else:
                known = value if isinstance(value, Beside) else Beside(value, None)
                yield Metric(task=task, row=row, column=column, **known._asdict())


def rows_by_place(
    experiment: Experiment,
    task: str,
    runner: Runner,
    results: Mapping[RunSpec, RunResults],
) -> dict[Place, list[EpisodeResult]]:
    """Rows of all seeds by variant and point, without points that need more pairs."""
    rows: dict[Place, list[EpisodeResult]] = {}
    for point, variant, spec in experiment.runs(task):
        first = runner.pairs if point.first is None else point.first
        if first > runner.pairs:
            continue
        pairs = {*range(first)}
        if task in point.subset:
            pairs &= runner.subset(spec, point.subset[task])
        if pairs:
            kept = (row for row in results[spec].rows if row.pair in pairs)
            rows.setdefault((variant, point.label), []).extend(kept)
    return rows


def _latencies(runner: Runner, experiment: Experiment, task: str) -> dict[Variant, Latency]:
    if not experiment.timed:
        return {}
    first: dict[Variant, RunSpec] = {}
    for _, variant, spec in experiment.runs(task):
        first.setdefault(variant, spec)
    return dict(zip(first, runner.latencies(list(first.values())), strict=True))


def entries_of(
    experiment: Experiment, task: str, rows: Rows, latencies: Latencies
) -> Iterator[Entry]:
    """The entries of one task; each is compared with CEM where that is there."""
    for (variant, point), found in rows.items():
        reference = () if variant == CEM else rows.get((CEM, point), ())
        same_pairs = {row.pairs for row in found} == {row.pairs for row in reference}
        yield Entry(
            task=task,
            variant=variant.label,
            point=point,
            search_size=variant.search_size,
            summary=summarise_method(found, reference=reference if same_pairs else ()),
            latency=latencies.get(variant),
            paper=paper_success(experiment.id, task, variant.controller, point),
            outcomes=outcomes_of(found),
        )


def outcomes_of(rows: Sequence[EpisodeResult]) -> dict[str, str]:
    """By seed, 1 for each pair that was solved and 0 for the others, in the order of the pairs."""
    found: dict[str, str] = {}
    for row in sorted(rows, key=lambda row: (row.seed, row.pair)):
        found[str(row.seed)] = found.get(str(row.seed), "") + str(int(row.success))
    return found


def verdicts_of(
    experiment: Experiment, task: str, rows: Rows, latencies: Latencies
) -> Iterator[Verdict]:
    """Verdicts on the claims of the experiment."""
    verdicts = (decide(claim, task, rows, latencies) for claim in experiment.claims)
    return (verdict for verdict in verdicts if verdict is not None)


def merged(old: Table, new: Table) -> Table:
    """The new table with the tasks of the old one that it lacks."""
    sources = {**old.sources, **new.sources}
    tasks = tuple(sorted(sources, key=TASKS.index))
    parts = [(task, new if task in new.tasks else old) for task in tasks]
    rows: dict[str, Any] = {
        name: tuple(row for task, part in parts for row in getattr(part, name) if row.task == task)
        for name in ("entries", "verdicts", "metrics", "pictures")
    }
    return replace(new, tasks=tasks, sources={task: sources[task] for task in tasks}, **rows)


def read_table(path: Path) -> Table:
    """Read a table that `save_table` wrote."""
    try:
        return parse_config(Table, gzip.decompress(path.read_bytes()), path)
    except (OSError, EOFError, ValueError) as error:
        raise ValueError(
            f"{path}: not a table of this version of `goalward reproduce` ({error}): give another "
            "--out, or delete it"
        ) from error


def save_table(folder: Path, table: Table) -> Table:
    """Write a table with the tasks of a stored one that it lacks; returns all of it."""
    path = folder / f"{table.id}{SUFFIX}"
    with _locked(folder):
        whole = merged(read_table(path), table) if path.exists() else table
        text = json.dumps(to_json(whole), separators=(",", ":"), allow_nan=False)
        with atomic_write(path) as temporary:
            temporary.write_bytes(gzip.compress(text.encode(), mtime=0))
    return whole


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Other processes wait: a table must have what each of them adds."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def require_compatible(folder: Path, chosen: Sequence[Experiment | Analysis], pairs: int) -> None:
    """Refuse to mix new results with stored ones that they do not compare with.

    Args:
        folder: Of the stored tables.
        chosen: What will be measured, with the tasks to measure.
        pairs: On how many pairs.

    Raises:
        ValueError: a stored table has one of the tasks with more pairs, or another task that was
            measured when the catalog had other claims or entries.
    """
    for one in chosen:
        path = folder / f"{one.id}{SUFFIX}"
        if not path.exists():
            continue
        table = read_table(path)
        for task, source in table.sources.items():
            if task in one.tasks and source.pairs > pairs:
                raise ValueError(
                    f"{path} has {task} measured on {source.pairs} pairs, more than {pairs}; "
                    f"give --pairs {source.pairs}, or another --out"
                )
            if isinstance(one, Analysis) or task in one.tasks:
                continue
            if not is_current(table, task, one):
                raise ValueError(
                    f"{path} has {task} measured with other claims or entries; measure it as well "
                    f"(--tasks {' '.join((*one.tasks, task))}), or give another --out"
                )


def is_current(table: Table, task: str, experiment: Experiment) -> bool:
    """Whether the table has the entries and claims of a task that the catalog has today."""
    places = {(v.label, p.label) for p, v, _ in experiment.runs(task)}
    found = {(e.variant, e.point) for e in table.entries if e.task == task}
    known = {v.claim for v in table.verdicts if v.task == task}
    due = {
        claim.wording
        for claim in experiment.claims
        if task in claim.tasks and {(v.label, p) for v, p in (claim.better, claim.worse)} <= found
    }
    return found <= places and due == known
