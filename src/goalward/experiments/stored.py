"""Tables on the disk: tasks of different runs make one table, if they were asked the same."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from goalward.core.config import read_config, to_json, write_json
from goalward.experiments.experiment import TASKS, Chart, Experiment, Study
from goalward.experiments.figures import save_table_figure
from goalward.experiments.tables import Table


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


def require_room(
    folder: Path, experiments: Sequence[Experiment | Study], pairs: int, tasks: Sequence[str]
) -> None:
    """Refuse what would spoil earlier tables, before hours are spent.

    Args:
        folder: Where the tables are.
        experiments: To be measured.
        pairs: To measure them on.
        tasks: Those to measure, or none for all.

    Raises:
        ValueError: a table there has one of the tasks with more pairs, or has other tasks, which
            were measured when the catalog claimed or compared something else.
    """
    for one in experiments:
        old = stored_table(folder, one.id)
        for task, source in ({} if old is None else old.sources).items():
            assert old is not None
            what = f"{folder / one.id}.json has {task} measured"
            if task in (tasks or one.tasks):
                if source.pairs > pairs:
                    raise ValueError(
                        f"{what} on {source.pairs} pairs, more than {pairs}; give --pairs "
                        f"{source.pairs}, or another --out"
                    )
            elif isinstance(one, Experiment) and not is_current(old, task, one):
                raise ValueError(
                    f"{what} when other things were claimed or compared; measure it as well "
                    f"(--tasks {' '.join((*tasks, task))}), or give another --out"
                )


def is_current(table: Table, task: str, experiment: Experiment) -> bool:
    """Whether the table has of a task what the catalog asks today."""
    places = {(method, point.label) for point, method, _ in experiment.cells(task)}
    found = {(entry.method, entry.point) for entry in table.entries if entry.task == task}
    judged = {verdict.claim for verdict in table.verdicts if verdict.task == task}
    claims = [claim for claim in experiment.claims if task in claim.tasks]
    due = {claim.wording for claim in claims if {claim.better, claim.worse} <= found}
    return found <= places and due == judged


def save_table(folder: Path, table: Table, chart: Chart = "none") -> Table:
    """Write a table with the tasks of the one before that it lacks, and its picture.

    Args:
        folder: Where to.
        table: What was measured.
        chart: How to draw it.

    Returns:
        All of it.
    """
    with _only_one(folder):
        old = stored_table(folder, table.id)
        whole = table if old is None else merged(old, table)
        write_json(folder / f"{table.id}.json", to_json(whole))
        if chart != "none":
            save_table_figure(folder / f"{table.id}.svg", whole, chart)
    return whole


def merged(old: Table, new: Table) -> Table:
    """The new table, and of the old one the tasks that the new one lacks."""
    tasks = [task for task in TASKS if task in (*old.tasks, *new.tasks)]
    parts = [(new if task in new.tasks else old, task) for task in tasks]
    return replace(
        new,
        tasks=tuple(tasks),
        entries=tuple(e for part, task in parts for e in part.entries if e.task == task),
        verdicts=tuple(v for part, task in parts for v in part.verdicts if v.task == task),
        facts=tuple(f for part, task in parts for f in part.facts if f.task == task),
        pictures=tuple(p for part, task in parts for p in part.pictures if p.task == task),
        sources={task: part.sources[task] for part, task in parts},
    )


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Other processes wait meanwhile: a table and its picture must have what each of them adds."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
