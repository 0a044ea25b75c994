"""Rows that survive kills and show damage, and summaries with known answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evaluation_helpers import row
from goalward.bundle import bundled_pairs
from goalward.core.machine import Provenance
from goalward.evaluation.latency import Latency, SpeedUp
from goalward.evaluation.results import (
    EpisodeResult,
    Results,
    ResultsFile,
    summarise_method,
)


def test_rows_survive_a_kill_in_the_middle_of_a_line(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "results" / "x.jsonl")
    assert file.read() == []
    file.append([row(pair=0), row(pair=1)])
    with file.path.open("a") as stream:
        stream.write('{"checksum": "xxh3-00')
    assert [r.pair for r in file.read()] == [0, 1]
    file.append([row(pair=2, jerk=None)])
    assert file.read() == [row(pair=0), row(pair=1), row(pair=2, jerk=None)]
    assert file.path.read_text().count("\n") == 3


def test_a_changed_byte_is_refused_by_file_and_line(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "x.jsonl")
    file.append([row(pair=k) for k in range(3)])
    content = file.path.read_bytes()
    second = content.index(b"\n") + 1
    for at in range(second, content.index(b"\n", second)):
        file.path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(ValueError, match=r"x\.jsonl, line 2: .*damaged.*; delete the file"):
            file.read()
    file.path.write_bytes(b"hello\n")
    with pytest.raises(ValueError, match=r"x\.jsonl, line 1: has no checksum"):
        file.read()


def test_rows_keep_what_they_were_measured_with(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "results" / "x.jsonl")
    assert file.provenance() == ()
    first, second = (
        Provenance(machine="m", git_revision=revision, versions={"torch": "2"}) for revision in "ab"
    )
    for one in (first, second, first):
        file.add_provenance(one)
        file.append([row(pair=0)])
    assert file.provenance() == (first, second) and file.read() == [row(pair=0)]


def test_a_pair_that_two_processes_ran_counts_once(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "x.jsonl")
    file.append([row(pair=0, steps=3)])
    file.append([row(pair=0, steps=4), row(pair=1)])
    assert file.read() == [row(pair=0, steps=3), row(pair=1)]


def test_more_steps_than_the_budget_are_refused() -> None:
    with pytest.raises(ValueError, match="steps must be at most budget = 50, got 51"):
        row(steps=51)


def test_the_summary_has_known_answers() -> None:
    rows = [
        row(pair=0, steps=10, jerk=0.2),
        row(pair=1, success=False, steps=30, jerk=None, monotonic=False, batched_latency_ms=2.0),
        row(pair=0, seed=1, steps=20, jerk=0.4),
        row(pair=1, seed=1, steps=20, jerk=0.6, monotonic=None),
    ]
    found = summarise_method(rows)
    # Pair 0 succeeded with both seeds, pair 1 with one of two: 1.5 of 2 pairs.
    assert (found.rate.successes, found.rate.count, found.seeds) == (1.5, 2, 2)
    assert found.rate.mean == 0.75
    assert found.seed_std == pytest.approx(np.std([0.5, 1.0], ddof=1))
    assert found.steps == 20 and found.success_steps == pytest.approx(50 / 3)
    assert found.jerk == pytest.approx(0.4) and found.monotonic == pytest.approx(2 / 3)
    assert found.batched_latency_ms == pytest.approx((10 + 60 + 20 + 20) / 80)
    assert found.difference is None
    assert summarise_method([row(batched_latency_ms=None)]).batched_latency_ms is None


def results(rows: list[EpisodeResult], **latency: Latency) -> Results:
    pairs = bundled_pairs("two-room", 4)
    return Results(pairs=pairs, rows=tuple(rows), provenance={}, latency=latency)


def test_controllers_are_compared_on_the_same_pairs() -> None:
    ours = [row(method="gc-idm", pair=k) for k in range(4)]
    found = results([*ours, *(row(method="cem", pair=k, success=k < 2) for k in range(4))])
    assert found.controllers == ("gc-idm", "cem")
    assert found.compare("gc-idm", "cem").mean == 0.5
    first, second = found.summary()
    assert first.difference == found.compare("gc-idm", "cem") and second.difference is None
    with pytest.raises(ValueError, match="no results of 'mppi', only of: gc-idm, cem"):
        found.compare("gc-idm", "mppi")


def test_speed_ups_are_relative_to_cem() -> None:
    def latency(mean: float, plan: float) -> Latency:
        return Latency(
            environments=1, decisions=1, mean=mean, p50=0.0, p99=0.0, plan=plan, memory_mb=None
        )

    times = {"gc_idm": latency(2.0, 2.0), "cem": latency(200.0, 5_000.0)}
    found = results([row()], **times).speed_ups()
    assert found["gc_idm"] == SpeedUp(decision=100.0, plan=2_500.0)
    assert found["cem"] == SpeedUp(decision=1.0, plan=1.0)
    assert results([row()], zero=times["cem"]).speed_ups() == {}
