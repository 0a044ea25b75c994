"""Runs of experiments as jobs: each stage once, and what is independent side by side."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from statistics import mean
from typing import Any, Literal

from goalward.core.machine import usable_cpus, use_threads
from goalward.engines import Engine
from goalward.engines.local import LocalEngine
from goalward.evaluation.simulators import SimulatorPools
from goalward.experiments.experiment import RunSpec
from goalward.experiments.runner import Runner, RunResults
from goalward.pipeline import silent_bar

Stage = Literal["collect", "draw pairs", "train world", "train", "run"]
Kind = tuple[Stage, str]  # jobs of a kind take about the same time
OnState = Callable[["State", "Job"], None]

FOUND_SECONDS = 1.0  # a job that takes less was done before, and its time predicts nothing

_DATA = ("task", "demonstrator")
_TRAINING = (*_DATA, "world_changes", "controller_changes", "seed")
# What the result of a stage depends on: runs that agree in it share the job.
FIELDS: dict[Stage, tuple[str, ...]] = {
    "collect": _DATA,
    "draw pairs": (*_DATA, "protocol", "goal_offset", "split"),
    "train world": (*_DATA, "world_changes"),
    "train": ("kind", *_TRAINING),
    "run": ("controller", *_TRAINING, "protocol", "goal_offset", "budget", "split"),
}
WORDS = {
    "seed": "seed {}",
    "goal_offset": "goals {} steps away",
    "budget": "budget {}",
    "split": "{} episodes",
}
USUAL = {one.name: one.default for one in fields(RunSpec) if one.name != "seed"}  # not named


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One stage of a run, and of others that share it."""

    stage: Stage
    spec: RunSpec

    def __str__(self) -> str:
        words: list[str] = [self.stage]
        for name, value in zip(FIELDS[self.stage], self.key, strict=True):
            if value != USUAL.get(name):
                values = value if isinstance(value, tuple) else (value,)
                words += [WORDS.get(name, "{}").format(each) for each in values]
        return " ".join(words)

    @property
    def key(self) -> tuple[Any, ...]:
        """The same for all runs that share the job."""
        return tuple(getattr(self.spec, name) for name in FIELDS[self.stage])

    @property
    def kind(self) -> Kind:
        """Jobs that differ in settings only take about the same time."""
        controller = self.spec.controller.partition(":")[0] if self.stage == "run" else ""
        return self.stage, f"{self.spec.task} {controller}"

    def is_for(self, spec: RunSpec) -> bool:
        """Whether a run needs this job."""
        return replace(self, spec=spec).key == self.key

    def identity(self, runner: Runner) -> Hashable:
        """What the job makes; the stages before it must be done.

        Changes that change nothing, such as a preset's own value, have the same folder, which two
        processes must not write at once.
        """
        if self.stage == "train world":
            return runner.pipeline(self.spec).world_folder()
        if self.stage == "train":
            return runner.controller_folder(self.spec)
        return self

    def do(self, runner: Runner) -> RunResults | None:
        """Do it; the results, if it is a run."""
        match self.stage:
            case "collect":
                runner.pipeline(self.spec).episodes()
            case "draw pairs":
                runner.pairs_of(self.spec)
            case "train world":
                runner.pipeline(self.spec).latents()
            case "train":
                runner.trained(self.spec)
            case "run":
                return runner.evaluate(self.spec)
        return None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Results of the runs that succeeded, and why the other jobs failed."""

    results: Mapping[RunSpec, RunResults]
    failures: Mapping[Job, str]


@dataclass(kw_only=True)
class State:
    """How far the jobs are."""

    jobs: int  # at a time
    left: Counter[Kind]  # not done yet
    on_state: OnState | None = None
    done: int = 0
    running: int = 0
    spent: dict[Kind, list[float]] = field(default_factory=dict)  # seconds of jobs really done
    finished: bool = False  # whether the reported job is finished, not begun

    @property
    def waiting(self) -> int:
        """Jobs that are neither done nor running."""
        return self.left.total() - self.running

    @property
    def seconds_left(self) -> float | None:
        """An estimate from done jobs of every kind; None as long as a kind is unknown."""
        kinds = +self.left
        if any(kind not in self.spent for kind in kinds):
            return None
        return sum(number * mean(self.spent[kind]) for kind, number in kinds.items()) / self.jobs

    def finish(self, job: Job, seconds: float) -> None:
        """Count a job as done."""
        self.left[job.kind] -= 1
        self.done += 1
        if seconds >= FOUND_SECONDS:
            self.spent.setdefault(job.kind, []).append(seconds)

    def report(self, job: Job, *, running: int, finished: bool = False) -> None:
        """Show the state where a job begins or is finished."""
        self.running, self.finished = running, finished
        if self.on_state is not None:
            self.on_state(self, job)


def stages_of(
    runner: Runner, specs: Sequence[RunSpec], prepared: Sequence[RunSpec] = ()
) -> list[list[Job]]:
    """The unique jobs of every stage, in the order of need.

    Args:
        runner: Runs them.
        specs: Runs.
        prepared: Runs of which only the models and pairs are made.
    """
    stages: Iterable[Stage] = ("run",) if runner.preset == "bundled" else FIELDS
    return [
        _unique(
            [Job(stage=stage, spec=s) for s in (*specs, *(() if stage == "run" else prepared))],
            lambda job: job.key,
        )
        for stage in stages
    ]


def _unique(jobs: Iterable[Job], key: Callable[[Job], Hashable]) -> list[Job]:
    """The first job of each key."""
    found: dict[Hashable, Job] = {}
    for job in jobs:
        found.setdefault(key(job), job)
    return list(found.values())


def do_runs(
    runner: Runner,
    specs: Sequence[RunSpec],
    *,
    prepared: Sequence[RunSpec] = (),
    jobs: int = 1,
    threads: int | None = None,
    on_state: OnState | None = None,
) -> Outcome:
    """Do every job that is missing, except those that need a failed one.

    Args:
        runner: Runs them.
        specs: Runs.
        prepared: Runs of which only the models and pairs are made.
        jobs: Jobs at a time.
        threads: Of each of several jobs (default: an even share of the CPUs).
        on_state: Called before each job; with several at a time, at the start of a stage and after
            each job.
    """
    canonical = {spec: runner.canonical(spec) for spec in specs}
    stages = stages_of(runner, [*canonical.values()], [*map(runner.canonical, prepared)])
    left = Counter(job.kind for stage in stages for job in stage)
    state = State(jobs=jobs, left=left, on_state=on_state)
    results: dict[RunSpec, RunResults] = {}
    failures: dict[Job, str] = {}
    with LocalEngine(jobs) as engine:
        for stage in stages:
            needed = [j for j in stage if not any(failed.is_for(j.spec) for failed in failures)]
            todo = _unique(needed, lambda job: job.identity(runner))
            state.left -= Counter(job.kind for job in stage if job not in todo)
            if jobs == 1 or len(todo) < 2:  # alone, a job has every core
                done = _one_by_one(runner, todo, state)
            else:
                done = _side_by_side(engine, runner, todo, state, threads)
            for job, found, seconds in done:
                state.finish(job, seconds)
                if isinstance(found, str):
                    failures[job] = found
                elif found is not None:
                    results[job.spec] = found
    known = {spec: results[one] for spec, one in canonical.items() if one in results}
    return Outcome(results=known, failures=failures)


JobResult = tuple[Job, RunResults | str | None, float]  # results or the failure, and seconds


def _one_by_one(runner: Runner, jobs: Sequence[Job], state: State) -> Iterator[JobResult]:
    """Results of jobs in this process."""
    for job in jobs:
        state.report(job, running=1)
        yield _do(runner, job)


def _side_by_side(
    engine: Engine, runner: Runner, jobs: Sequence[Job], state: State, threads: int | None
) -> Iterator[JobResult]:
    """Results of jobs in other processes, in the order in which they finish."""
    running = min(state.jobs, len(jobs))
    each = max(1, usable_cpus() // running) if threads is None else threads
    alone = replace(runner, workers=1, bar=silent_bar, pools=None)
    state.report(jobs[0], running=running)
    results = engine.map(_do_in_process, [(alone, job, each) for job in jobs])
    for left, result in zip(reversed(range(len(jobs))), results, strict=True):
        yield result
        state.report(result[0], running=min(running, left), finished=True)


def _do(runner: Runner, job: Job) -> JobResult:
    """Do a job. Errors of the user are reported at the end, and other jobs go on."""
    started = time.monotonic()
    try:
        found: RunResults | str | None = job.do(runner)
    except ValueError as error:
        found = str(error)
    return job, found, time.monotonic() - started


def _do_in_process(task: tuple[Runner, Job, int]) -> JobResult:
    """Do a job in a worker process, whose simulators stay for the next run."""
    runner, job, threads = task
    use_threads(threads)
    return _do(replace(runner, pools=_process_pools()), job)


@cache
def _process_pools() -> SimulatorPools:
    return SimulatorPools(1)
