"""Put what `benchmarks.compare` measured into the experiments' tables that have the same cells.

`goalward reproduce` would measure the same rows anew, in hours; tasks that it has measured stay.
Only rows of the preset as it is now may be taken: these are measured anew when a preset changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro

from benchmarks.compare import rows_path
from benchmarks.setting import RESULTS
from goalward.core.config import from_json, read_json
from goalward.core.console import show_line
from goalward.core.machine import Provenance
from goalward.defaults import PresetName
from goalward.evaluation.latency import Latency
from goalward.evaluation.results import EpisodeResult, ResultsFile
from goalward.experiments.catalog import find_experiments
from goalward.experiments.experiment import Cell, Experiment
from goalward.experiments.stored import merged, save_table, stored_table
from goalward.experiments.tables import Source, Table, entries_of, rows_by_place, verdicts_on

EXPERIMENTS = ("main", "trajectories")  # whose cells are the comparison's


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Which results to take."""

    preset: PresetName = "cpu"
    """The preset that was compared with."""
    tasks: tuple[str, ...] = ("reacher", "cube")
    """Tasks that `goalward reproduce` has not measured."""


def with_compared(table: Table, experiment: Experiment, tasks: Sequence[str], rows: Path) -> Table:
    """The table, and what was compared of the tasks that `goalward reproduce` has not measured."""
    for task in tasks:
        if task not in table.tasks or _was_compared(table.sources[task]):
            table = merged(table, _compared(table, experiment, task, rows / task / "paper"))
    return table


def _was_compared(source: Source) -> bool:
    """Whether a task is of such rows: they know one library's version alone."""
    return any(set(origin.versions) == {"torch"} for origin in source.origins)


def _compared(table: Table, experiment: Experiment, task: str, folder: Path) -> Table:
    """A table of one task, from the rows in a folder of `benchmarks.compare`."""
    about: dict[str, Any] = read_json(folder / "about.json")
    pairs: int = about["config"]["count"]

    def rows_of(cell: Cell) -> list[EpisodeResult]:
        found = ResultsFile(rows_path(folder, cell.method, cell.seed)).read()
        if len(found) != pairs:
            raise ValueError(f"{folder} has no whole rows of {cell.method}, seed {cell.seed}")
        return found

    places = rows_by_place(experiment, task, pairs, rows_of)
    latency = about["latency"] if experiment.timed else {}
    times = {name: from_json(Latency, value) for name, value in latency.items()}
    origin = Provenance(
        machine=about["machine"],
        git_revision=about["git_revision"],
        versions={"torch": about["torch"]},
    )
    return replace(
        table,
        tasks=(task,),
        entries=tuple(entries_of(experiment, task, places, times)),
        verdicts=tuple(verdicts_on(experiment, task, places, times)),
        facts=(),
        pictures=(),
        sources={task: Source(pairs=pairs, origins=(origin,))},
    )


if __name__ == "__main__":
    given = tyro.cli(Arguments)
    tables, compared = (RESULTS / kind / given.preset for kind in ("experiments", "compare"))
    for one in find_experiments(EXPERIMENTS):
        assert isinstance(one, Experiment)
        stored = stored_table(tables, one.id)
        if stored is None:
            raise SystemExit(
                f"{tables}: no table {one.id}; run `goalward reproduce {one.id}` first"
            )
        whole = with_compared(stored, one, given.tasks, compared)
        save_table(tables, whole, one.chart)
        show_line(f"wrote {tables / one.id}.json")
