"""Tables: from rows to entries, merged with stored ones, refused where they do not compare."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from evaluation_helpers import row
from goalward.evaluation.results import EpisodeResult
from goalward.experiments import tables
from goalward.experiments.catalog import find_experiments
from goalward.experiments.experiment import CEM, GC_IDM, RANDOM, Experiment, Place
from goalward.experiments.tables import (
    Table,
    entries_of,
    is_current,
    outcomes_of,
    read_table,
    require_compatible,
    save_table,
    verdicts_of,
)
from table_helpers import TASKS, a_picture, a_source, a_table, latency, of_task


def part(task: str, revision: str, **changes: object) -> Table:
    return of_task(a_table("main"), task, **{"sources": {task: a_source(revision)}, **changes})


def rows(controller: str, wins: int, **changes: object) -> list[EpisodeResult]:
    return [row(method=controller, pair=k, success=k < wins, **changes) for k in range(20)]


def catalog_row(name: str) -> Experiment:
    (found,) = find_experiments([name])
    assert isinstance(found, Experiment)
    return found


def complete(experiment: Experiment, tasks: Sequence[str]) -> Table:
    """The table of an experiment with rows that were made up."""
    parts = []
    for task in tasks:
        places: dict[Place, list[EpisodeResult]] = {
            (variant, point.label): rows(variant.controller, 10)
            for point, variant, _ in experiment.runs(task)
        }
        parts.append(
            replace(
                of_task(a_table(experiment.id), TASKS[0]),
                tasks=(task,),
                sources={task: a_source()},
                entries=tuple(entries_of(experiment, task, places, {})),
                verdicts=tuple(verdicts_of(experiment, task, places, {})),
            )
        )
    whole = parts[0]
    for one in parts[1:]:
        whole = tables.merged(whole, one)
    return whole


def test_an_entry_has_its_rate_its_paper_figure_and_its_difference_to_cem() -> None:
    experiment = catalog_row("main")
    places = {
        (GC_IDM, "all pairs"): rows("gc-idm:mode=budget", 15),
        (RANDOM, "all pairs"): rows("random", 5, pairs="others"),
        (CEM, "all pairs"): rows("cem", 10),
    }
    found = {e.variant: e for e in entries_of(experiment, "push-t", places, {CEM: latency(7.0)})}
    ours, other, cem = (found[one.label] for one in (GC_IDM, RANDOM, CEM))
    assert ours.summary.rate.mean == 0.75 and ours.summary.difference is not None
    assert ours.summary.difference.mean == pytest.approx(0.25) and ours.paper == 84.2
    assert other.summary.difference is None  # measured on other pairs
    assert cem.summary.difference is None and cem.latency is not None and cem.latency.mean == 7.0
    assert cem.search_size == (300, 30) and ours.search_size is None
    assert ours.outcomes == {"0": "1" * 15 + "0" * 5}


def test_outcomes_are_by_seed_in_the_order_of_the_pairs() -> None:
    found = [row(pair=2, seed=7), row(pair=0, seed=7, success=False), row(pair=1, seed=7)]
    assert outcomes_of([row(pair=0, seed=9), *found]) == {"7": "011", "9": "1"}


def test_tasks_that_were_measured_apart_make_one_table(tmp_path: Path) -> None:
    both = a_table("main")
    save_table(tmp_path, part("push-t", "a", pictures=(a_picture("b.png", "push-t"),)))
    whole = save_table(tmp_path, part("two-room", "b", pictures=(a_picture("a.png"),)))
    assert read_table(tmp_path / "main.json.gz") == whole
    assert whole.tasks == ("two-room", "push-t") and whole.entries == both.entries
    assert len(whole.verdicts) == 2 and {p.path for p in whole.pictures} == {"a.png", "b.png"}
    assert [*whole.sources.items()] == [("two-room", a_source("b")), ("push-t", a_source("a"))]
    again = save_table(tmp_path, part("push-t", "c", entries=()))
    assert again.sources == {"two-room": a_source("b"), "push-t": a_source("c")}
    assert {entry.task for entry in again.entries} == {"two-room"}  # measured again: replaced
    assert {picture.task for picture in again.pictures} == {"two-room"}


def test_equal_tables_are_equal_files(tmp_path: Path) -> None:
    contents = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        save_table(tmp_path / name, a_table("main"))
        contents.append((tmp_path / name / "main.json.gz").read_bytes())
    assert contents[0] == contents[1]
    assert json.loads(gzip.decompress(contents[0]))["title"] == "The title of main"


def test_another_process_waits_while_a_table_is_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged, locked = tables.merged, []

    def probe(old: Table, new: Table) -> Table:
        other = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(other)
        locked.append(new.tasks)
        return merged(old, new)

    monkeypatch.setattr(tables, "merged", probe)
    for task in TASKS:
        save_table(tmp_path, part(task, "a"))
    assert locked == [("push-t",)]


def test_fewer_pairs_than_stored_ones_are_refused(tmp_path: Path) -> None:
    save_table(tmp_path, a_table("main", entries=(), verdicts=()))
    (main,) = find_experiments(["main"])
    require_compatible(tmp_path, [main], 4)
    for tasks in (TASKS, ("push-t", "two-room", "cube")):
        with pytest.raises(ValueError, match="two-room measured on 4 pairs, more than 3; give --p"):
            require_compatible(tmp_path, [replace(main, tasks=tasks)], 3)
    analysis = replace(find_experiments(["oracle-noise"])[0], id="main", tasks=("cube",))
    require_compatible(tmp_path, [analysis], 3)  # whose task is not stored


def test_tasks_with_other_claims_or_entries_do_not_stand_beside_new_ones(tmp_path: Path) -> None:
    budget = catalog_row("budget")
    stored = complete(budget, ("two-room", "push-t"))
    assert is_current(stored, "push-t", budget) and len(stored.verdicts) >= 3
    save_table(tmp_path, stored)
    require_compatible(tmp_path, [replace(budget, tasks=("cube",))], 1)  # with fewer pairs
    for other in (
        replace(stored, verdicts=stored.verdicts[:-1]),  # a claim was added
        replace(stored, verdicts=tuple(replace(v, claim="other") for v in stored.verdicts)),
        replace(stored, entries=tuple(replace(e, point="6") for e in stored.entries)),
    ):
        save_table(tmp_path, other)
        with pytest.raises(ValueError, match=r"push-t measured with other .*--tasks two-room pu"):
            require_compatible(tmp_path, [replace(budget, tasks=("two-room",))], 10_000)
        require_compatible(tmp_path, [budget], 10_000)  # all are measured again


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"not gzip", id="not gzip"),
        pytest.param(gzip.compress(b'{"machine": "x86_64"}'), id="other keys"),
    ],
)
def test_a_table_of_another_version_is_refused_with_what_to_do(
    content: bytes, tmp_path: Path
) -> None:
    (tmp_path / "main.json.gz").write_bytes(content)
    with pytest.raises(ValueError, match=r"main\.json\.gz: not a table .*: give another --out"):
        save_table(tmp_path, a_table("main"))
