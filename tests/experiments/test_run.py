"""Runs as jobs: each stage once, side by side, and a failure stops only what needs it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from evaluation_helpers import timeless
from goalward.experiments.experiment import RunSpec, preset_run
from goalward.experiments.run import Job, State, do_runs, stages_of
from goalward.experiments.runner import Runner

GC_IDM = preset_run("two-room")
SPECS = [replace(GC_IDM, budget=budget) for budget in (5, 10)]


@pytest.fixture(name="runner")
def runner_fixture(smoke_runs: Path) -> Runner:
    return Runner(preset="smoke", runs=smoke_runs, pairs=2, device="cpu")


def results_files(runs: Path) -> list[Path]:
    return sorted(runs.glob("smoke/two-room/pairs-*/results/*.jsonl"))


def test_runs_side_by_side_give_the_same_rows(runner: Runner) -> None:
    states: list[tuple[str, int, int, int, bool]] = []

    def note(state: State, job: Job) -> None:
        states.append((job.stage, state.done, state.running, state.waiting, state.finished))

    both = do_runs(runner, SPECS, jobs=2, on_state=note).results
    # Both runs share the episodes, the pairs, the world model and the controller.
    assert states == [
        ("collect", 0, 1, 5, False),
        ("draw pairs", 1, 1, 4, False),
        ("train world", 2, 1, 3, False),
        ("train", 3, 1, 2, False),
        ("run", 4, 2, 0, False),  # both begin
        ("run", 5, 1, 0, True),
        ("run", 6, 0, 0, True),
    ]
    for path in results_files(runner.runs):
        path.unlink()
    alone = do_runs(runner, SPECS).results
    assert {spec: timeless(found.rows) for spec, found in alone.items()} == {
        spec: timeless(found.rows) for spec, found in both.items()
    }
    assert [len(alone[spec].rows) for spec in SPECS] == [2, 2]


def test_runs_that_are_only_prepared_are_not_evaluated(runner: Runner) -> None:
    stages: list[str] = []
    outcome = do_runs(
        runner, [], prepared=[GC_IDM], jobs=2, on_state=lambda _, job: stages.append(job.stage)
    )
    assert not outcome.results and not outcome.failures and not results_files(runner.runs)
    assert stages == ["collect", "draw pairs", "train world", "train"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failed_job_stops_only_the_runs_that_need_it(runner: Runner, jobs: int) -> None:
    near, far = (RunSpec(task="two-room", controller="zero", goal_offset=n) for n in (5, 5_000))
    outcome = do_runs(runner, [far, near], jobs=jobs)
    assert outcome.results.keys() == {near}
    (job,) = outcome.failures
    assert job.stage == "draw pairs" and job.is_for(far) and not job.is_for(near)
    assert "goals 5000 steps away" in str(job)
    assert not do_runs(runner, [near], jobs=jobs).failures


def test_the_time_left_is_estimated_from_jobs_of_the_same_kind() -> None:
    slow, quick = (
        Job(stage="run", spec=RunSpec(task="cube", controller=name)) for name in ("cem:x=1", "zero")
    )
    assert slow.kind == ("run", "cube cem") != quick.kind
    state = State(jobs=2, left=Counter({slow.kind: 3, quick.kind: 2}))
    state.finish(quick, 0.01)  # found, not run
    assert state.seconds_left is None
    state.finish(slow, 60.0)
    assert state.seconds_left is None  # how long the quick one takes is not known
    state.left -= Counter([quick.kind])
    assert state.seconds_left == pytest.approx(2 * 60 / 2)
    assert (state.done, state.waiting) == (2, 2)
    state.finish(slow, 30.0)
    assert state.seconds_left == pytest.approx(45 / 2)


def test_runs_with_other_demonstrations_share_no_job() -> None:
    runner = Runner(preset="smoke", runs=Path("unused"), pairs=2)
    smooth, usual = (
        RunSpec(task="push-t", controller="cem", demonstrator=name) for name in ("pusher", None)
    )
    assert [len(stage) for stage in stages_of(runner, [smooth, usual])] == [2, 2, 2, 2, 2]
    strict = replace(usual, protocol="strict")
    assert [len(stage) for stage in stages_of(runner, [strict, usual])] == [1, 2, 1, 1, 2]
    bundled = replace(runner, preset="bundled")
    assert [len(stage) for stage in stages_of(bundled, [strict, usual])] == [2]


def test_changes_that_change_nothing_are_no_training_of_their_own(runner: Runner) -> None:
    specs = [
        replace(GC_IDM, controller_changes=changes)
        for changes in ((), ("data_fraction=1.0",), ("noise.sigma=0.0",), ("noise.sigma=0.1",))
    ]
    made = [Job(stage="train", spec=spec).identity(runner) for spec in specs]
    assert made[0] == made[1] == made[2] != made[3]
    assert made[0] == runner.runs / "smoke" / "two-room" / "controller-42"
    worlds = [replace(GC_IDM, world_changes=changes) for changes in ((), ("min_latent_std=0.01",))]
    first, second = (Job(stage="train world", spec=spec).identity(runner) for spec in worlds)
    assert first == second
