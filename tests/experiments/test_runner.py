"""What a run needs: its folders, its pairs, its controller."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from goalward.data.episodes import open_episodes
from goalward.experiments.experiment import RunSpec, preset_run
from goalward.experiments.run import do_runs
from goalward.experiments.runner import Runner

GC_IDM = preset_run("two-room")


def test_other_demonstrations_have_folders_of_their_own(tmp_path: Path) -> None:
    runner = Runner(preset="smoke", runs=tmp_path, pairs=2, device="cpu")
    mixed, expert, usual = (
        RunSpec(task="two-room", controller="zero", demonstrator=name)
        for name in ("mixture", "expert", None)
    )
    assert runner.pipeline(mixed).folder == tmp_path / "smoke" / "two-room-mixture"
    assert runner.pipeline(expert) == runner.pipeline(usual)
    assert runner.pipeline(usual).folder == tmp_path / "smoke" / "two-room"
    assert [runner.canonical(s) for s in (mixed, expert, usual)] == [mixed, usual, usual]
    recorded = []
    for spec in (mixed, expert):
        with open_episodes(runner.pipeline(spec).episodes()) as episodes:
            recorded.append((episodes.attributes["demonstrator"], "kind" in episodes.columns))
    assert recorded == [("mixture", True), ("expert", False)]
    # Named or not, the usual ones are the same job.
    jobs: list[str] = []
    found = do_runs(runner, [expert, usual], on_state=lambda _, job: jobs.append(job.stage)).results
    assert jobs.count("run") == 1 and found[expert].rows == found[usual].rows != []
    smooth, noisy, usual = (
        RunSpec(task="push-t", controller="zero", demonstrator=name)
        for name in ("pusher", "noisy-pusher", None)
    )
    assert [runner.canonical(s) for s in (smooth, noisy, usual)] == [smooth, usual, usual]
    # The long preset's usual ones are the smooth ones that its bundled weights were trained on.
    long = replace(runner, preset="cpu-long")
    assert [long.canonical(s) for s in (smooth, noisy, usual)] == [usual, noisy, usual]


def test_bundled_runs_train_nothing_and_are_of_the_bundled_pairs(tmp_path: Path) -> None:
    runner = Runner(preset="bundled", runs=tmp_path, pairs=2, device="cpu")
    spec = replace(GC_IDM, protocol="moderate", budget=3)
    found = runner.evaluate(spec)
    assert [row.pair for row in found.rows] == [0, 1] and len(found.provenance) == 1
    assert {row.protocol for row in found.rows} == {"moderate"}
    assert runner.folder(spec) == tmp_path / "bundled" / "two-room" / "moderate-2"
    assert {path.name for path in tmp_path.iterdir()} == {"bundled"}
    assert not (tmp_path / "bundled" / "two-room" / "controller").exists()
    with pytest.raises(AssertionError, match="nothing is trained"):
        runner.pipeline(spec)


def test_a_subset_is_a_tasks_own_or_the_pairs_that_a_baseline_fails(tmp_path: Path) -> None:
    runner = Runner(preset="bundled", runs=tmp_path, pairs=4, device="cpu")
    cube, push_t = (RunSpec(task=task, controller="zero", budget=5) for task in ("cube", "push-t"))
    moved = runner.subset(cube, "moved")
    still = {
        pair.number
        for pair in runner.pairs_of(cube).pairs
        if np.linalg.norm(
            pair.start["privileged_block_0_pos"] - pair.goal["privileged_block_0_pos"]
        )
        <= 0.04
    }
    assert moved | still == {0, 1, 2, 3} and not moved & still
    zero = runner.evaluate(push_t).rows
    assert runner.subset(push_t, "zero fails") == {row.pair for row in zero if not row.success}
    assert runner.subset(push_t, "all") == {0, 1, 2, 3}
    assert runner.subset(push_t, "moved") == set()
