"""Floors: what success is worth nothing, because policies that know nothing have it too.

Beside them stand the recorded actions, replayed from the restored start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, repeat
from pathlib import Path

import numpy as np

from goalward import defaults
from goalward.core.arrays import Array
from goalward.core.config import require_at_least, require_types
from goalward.core.random import generator
from goalward.data.episodes import Episodes, open_episodes
from goalward.data.splits import SplitConfig, split_episodes
from goalward.engines.local import process_pool
from goalward.evaluation.pairs import Pairs, candidate_pairs, draw_pair_index, state_rows
from goalward.evaluation.simulators import begin, run_episode
from goalward.evaluation.statistics import Rate, success_rate
from goalward.tasks import get_task
from goalward.tasks.task import (
    Policy,
    RenderConfig,
    Simulator,
    State,
    Task,
    every_pair,
)

REPLAY = "replay"
OnProgress = Callable[[int, int], None]  # (episodes done, the same again as the unit of a rate)


@dataclass(frozen=True, kw_only=True, slots=True)
class FloorsConfig:
    """Which floors to measure, on which pairs."""

    pairs: int = defaults.PAIRS
    budget: int = defaults.BUDGET
    offset: int = defaults.GOAL_OFFSET
    seed: int = defaults.SEED
    held_out: bool = True  # False: pairs from all episodes
    split: SplitConfig = field(default_factory=SplitConfig)

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 1, "pairs", "budget", "offset")
        require_at_least(self, 0, "seed")


@dataclass(frozen=True, kw_only=True)
class Floor:
    """The success of one policy under one protocol, on all pairs or on a subset of them."""

    protocol: str
    policy: str
    subset: str  # "all", or one of the task's own
    rate: Rate


@dataclass(frozen=True, kw_only=True)
class Job:
    """One episode to run in a worker process."""

    task: str
    protocol: str
    policy: str
    pair: int  # number of the pair under this protocol
    config: FloorsConfig
    start: State
    goal: State
    recorded: Array  # the actions between start and goal: (offset, action_dim)


def floor_policies(task: Task) -> list[str]:
    """Names of a task's floor policies, and of the replay of recorded actions."""
    return [*task.baselines, REPLAY]


def num_episodes(task: Task, config: FloorsConfig) -> int:
    """How many episodes `measure_floors` runs."""
    return len(task.protocols) * len(floor_policies(task)) * config.pairs


def make_policy(job: Job, simulator: Simulator) -> Policy:
    """The policy that `job` asks for."""
    task = get_task(job.task)
    still = np.zeros(task.action_dim, dtype=np.float32)
    if job.policy == "zero":
        return lambda: still
    if job.policy == "random":
        rng = generator("random policy", job.config.seed, job.pair)
        return lambda: rng.uniform(-1.0, 1.0, size=task.action_dim).astype(np.float32)
    if job.policy == REPLAY:
        actions = chain(job.recorded, repeat(still))
        return lambda: next(actions)
    return task.scripted_baselines[job.policy](simulator, job.goal)


@lru_cache(maxsize=2)
def _simulator(task: str, physics: str) -> Simulator:
    """A worker's simulator; floors need no frames, so the smallest ones will do."""
    return get_task(task).simulator(RenderConfig(image_size=16, physics=physics))


def run_job(job: Job) -> tuple[Job, bool]:
    """Run one episode; called in a worker process."""
    protocol = get_task(job.task).protocols[job.protocol]
    simulator = _simulator(job.task, protocol.physics)
    begin(simulator, protocol, job.start, job.goal)
    policy = make_policy(job, simulator)
    steps = run_episode(simulator, protocol, job.goal, policy, job.config.budget)
    return job, steps is not None


def solved_share(
    episodes: Episodes,
    task: Task,
    *,
    offset: int = defaults.GOAL_OFFSET,
    among: Array | None = None,
) -> dict[str, float]:
    """For each protocol, the share of all pairs whose start already meets the goal."""
    pairs = candidate_pairs(episodes, offset=offset, among=among)
    if len(pairs) == 0:
        return {}
    start = state_rows(episodes, task, pairs.start_rows)
    goal = state_rows(episodes, task, pairs.goal_rows)
    return {
        name: float(np.mean(protocol.solved(start, goal)))
        for name, protocol in task.protocols.items()
    }


def measure_floors(
    task: Task,
    data: Path,
    config: FloorsConfig,
    *,
    workers: int,
    on_progress: OnProgress | None = None,
) -> list[Floor]:
    """Success of every floor policy under every protocol, on pairs of the episodes in `data`."""
    with open_episodes(data) as episodes:
        jobs = list(make_jobs(task, episodes, config))
    results: dict[tuple[str, str], dict[int, bool]] = {}
    with process_pool(min(workers, len(jobs))) as pool:
        for done, (job, success) in enumerate(pool.map_unordered(run_job, jobs), start=1):
            results.setdefault((job.protocol, job.policy), {})[job.pair] = success
            if on_progress is not None:
                on_progress(done, done)
    return list(_floors(task, jobs, results))


def solved_pairs(
    pairs: Pairs, policy: str, *, budget: int = defaults.BUDGET, workers: int
) -> set[int]:
    """The numbers of the frozen pairs that a floor policy, or the replay, solves."""
    wanted = pairs.metadata.config
    config = FloorsConfig(pairs=wanted.count, budget=budget, offset=wanted.offset, seed=wanted.seed)
    jobs = [
        Job(
            task=wanted.task,
            protocol=wanted.protocol,
            policy=policy,
            pair=attempt.pair,
            config=config,
            start=attempt.start,
            goal=attempt.goal,
            recorded=attempt.recorded,
        )
        for attempt in pairs.attempts
    ]
    with process_pool(min(workers, len(jobs))) as pool:
        return {job.pair for job, success in pool.map_unordered(run_job, jobs) if success}


def make_jobs(task: Task, episodes: Episodes, config: FloorsConfig) -> Iterator[Job]:
    """Every episode that `measure_floors` runs."""
    among = (
        split_episodes(episodes.num_episodes, config.split).held_out if config.held_out else None
    )
    for name, protocol in task.protocols.items():
        pairs = draw_pair_index(
            episodes,
            task,
            protocol,
            config.pairs,
            seed=config.seed,
            offset=config.offset,
            among=among,
        )
        starts = state_rows(episodes, task, pairs.start_rows)
        goals = state_rows(episodes, task, pairs.goal_rows)
        actions = episodes.windows(pairs.start_rows, config.offset, columns=["action"])["action"]
        for policy in floor_policies(task):
            for i in range(len(pairs)):
                yield Job(
                    task=task.name,
                    protocol=name,
                    policy=policy,
                    pair=i,
                    config=config,
                    start={column: values[i] for column, values in starts.items()},
                    goal={column: values[i] for column, values in goals.items()},
                    recorded=actions[i],
                )


def _floors(
    task: Task, jobs: list[Job], results: dict[tuple[str, str], dict[int, bool]]
) -> Iterator[Floor]:
    """Rates on all pairs and on the task's subsets, in the order of the jobs."""
    subsets: dict[str, Callable[[State, State], Array]] = {"all": every_pair, **task.pair_subsets}
    groups: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        groups.setdefault((job.protocol, job.policy), []).append(job)
    for (protocol, policy), members in groups.items():
        success = results[protocol, policy]
        for subset, belongs in subsets.items():
            hits = [success[job.pair] for job in members if bool(belongs(job.start, job.goal))]
            if hits:
                yield Floor(
                    protocol=protocol,
                    policy=policy,
                    subset=subset,
                    rate=success_rate(sum(hits), len(hits)),
                )
