"""Tables of experiments with known content."""

from __future__ import annotations

from dataclasses import replace

from evaluation_helpers import row
from goalward.core.machine import Provenance
from goalward.evaluation.latency import Latency
from goalward.evaluation.results import summarise_method
from goalward.evaluation.statistics import Difference
from goalward.experiments.claims import Verdict
from goalward.experiments.comparisons import FRONTIER
from goalward.experiments.experiment import CEM, GC_IDM, TIME_TO_GO
from goalward.experiments.tables import Entry, Picture, Source, Table

TASKS = ("two-room", "push-t")


def latency(ms: float = 1.0) -> Latency:
    return Latency(environments=1, decisions=5, mean=ms, p50=ms, p99=ms, plan=ms, memory_mb=None)


def a_table(name: str, **changes: object) -> Table:
    """A table with a little of everything."""
    entries = [
        Entry(
            task=task,
            variant=variant.label,
            point=point,
            search_size=variant.search_size,
            summary=summarise_method([row(method=variant.controller, pair=k) for k in range(4)]),
            latency=latency(),
            paper=97.5,
            outcomes={"0": "1111"},
        )
        for task in TASKS
        for variant in (GC_IDM, TIME_TO_GO, CEM, FRONTIER[0])
        for point in ("first 50", "all pairs")
    ]
    fields: dict[str, object] = {
        "id": name,
        "title": f"The title of {name}",
        "paper": "Table 1: what the paper finds",
        "axis": "pairs",
        "preset": "smoke",
        "tasks": TASKS,
        "entries": tuple(entries),
        "verdicts": tuple(map(a_verdict, TASKS)),
        "metrics": (),
        "pictures": (),
        "sources": dict.fromkeys(TASKS, a_source()),
    }
    return Table(**{**fields, **changes})  # type: ignore[arg-type]


def of_task(table: Table, task: str, **changes: object) -> Table:
    """The part of a task, with other fields where they are given."""
    rows: dict[str, object] = {
        name: tuple(row for row in getattr(table, name) if row.task == task)
        for name in ("entries", "verdicts", "metrics", "pictures")
    }
    own = {**rows, "tasks": (task,), "sources": {task: table.sources[task]}, **changes}
    return replace(table, **own)  # type: ignore[arg-type]


def a_verdict(task: str) -> Verdict:
    return Verdict(
        task=task,
        claim="GC-IDM succeeds as often as CEM or more often",
        verdict="supported",
        ours=False,
        about="success",
        difference=Difference(mean=0.1, low=0.0, high=0.2),
    )


def a_source(revision: str | None = None, pairs: int = 4) -> Source:
    return Source(pairs=pairs, origins=(an_origin(revision),))


def an_origin(revision: str | None) -> Provenance:
    return Provenance(
        machine="x86_64, 2 CPUs, no GPU",
        git_revision=revision,
        versions={"python": "3", "torch": "2"},
    )


def a_picture(path: str, task: str = "two-room") -> Picture:
    return Picture(task=task, path=path)
