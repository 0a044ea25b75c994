"""Results: a row an episode in sealed JSON lines, and their summary with intervals."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from goalward.core.arrays import Array
from goalward.core.config import (
    NonNegative,
    Positive,
    config,
    from_json,
    parse_config,
    read_json,
    to_json,
    write_json,
)
from goalward.core.files import CHECKSUM, EMPTY_SEAL, require_sealed, sealed
from goalward.core.machine import Provenance
from goalward.evaluation import statistics
from goalward.evaluation.latency import Latency, SpeedUp
from goalward.evaluation.pairs import Pair, Pairs
from goalward.evaluation.statistics import Difference, Rate
from goalward.tasks.task import Task, every_pair

RESULTS = "results"  # the folder of the rows
REFERENCE = "cem"  # what the other controllers are compared with
ALL = "all"  # the subset that has every pair
REMEDY = "delete the file, and run the same command again to measure it again"


@config
class EpisodeResult:
    """One episode of one controller."""

    task: str
    protocol: str
    method: str  # the controller's name with its settings
    run_id: str  # hash of controller, seed, model, budget and pairs
    pairs: str  # id of the pairs
    seed: NonNegative
    pair: NonNegative
    episode: NonNegative  # that the pair was drawn from
    budget: Positive
    success: bool
    steps: Positive
    jerk: float | None  # None for fewer than three actions
    monotonic: bool | None  # None without a world model to measure latents with
    approach_rate: float | None  # share of the steps that bring the latent closer to the goal's
    latent_distance: float | None  # of the last frame
    errors: dict[str, float]  # of the last state, in each probe target's unit
    plans: int | None  # planning calls; None for a controller that plans nothing ahead
    predictor_calls: NonNegative
    batched_latency_ms: float | None  # mean of its decisions; None for a scripted baseline

    def __post_init__(self) -> None:
        if self.steps > self.budget:
            raise ValueError(f"steps must be at most budget = {self.budget}, got {self.steps}")


class ResultsFile:
    """The rows of one controller with one seed on the disk; each line has its own checksum."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._provenance_path = path.with_suffix(".provenance.json")

    def read(self) -> list[EpisodeResult]:
        """All complete rows, one a pair; a line that a killed process left unfinished is dropped.

        Any other line that is not as it was written is refused.
        """
        *lines, _ = self.path.read_bytes().split(b"\n") if self.path.exists() else [b""]
        rows = [self._parse(line, f"{self.path}, line {k}") for k, line in enumerate(lines, 1)]
        return list({row.pair: row for row in reversed(rows)}.values())[::-1]  # the first of each

    def append(self, rows: Sequence[EpisodeResult]) -> None:
        """Add rows after the complete ones, and flush them to the disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        plain = ({CHECKSUM: EMPTY_SEAL, **asdict(row)} for row in rows)
        lines = [sealed(json.dumps(row, allow_nan=False).encode()) + b"\n" for row in plain]
        with self.path.open("ab+") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)  # another process may run the same controller
            stream.seek(0)
            stream.truncate(stream.read().rfind(b"\n") + 1)
            stream.writelines(lines)
            stream.flush()
            os.fsync(stream.fileno())

    def provenance(self) -> tuple[Provenance, ...]:
        """What the rows were measured with; empty if that was not noted."""
        if not self._provenance_path.exists():
            return ()
        known = read_json(self._provenance_path, seal=True)["measured_with"]
        return tuple(from_json(Provenance, one) for one in known)

    def add_provenance(self, provenance: Provenance) -> None:
        """Note what the rows that follow are measured with."""
        known = self.provenance()
        if provenance not in known:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            every = [to_json(one) for one in (*known, provenance)]
            write_json(self._provenance_path, {"measured_with": every}, seal=True)

    def _parse(self, line: bytes, where: str) -> EpisodeResult:
        require_sealed(line, where, REMEDY)
        values = json.loads(line)
        del values[CHECKSUM]
        return parse_config(EpisodeResult, json.dumps(values).encode(), where)


@config
class MethodSummary:
    """One controller on all pairs, or on a subset of them."""

    method: str
    subset: str
    seeds: int
    rate: Rate  # mean over seeds: more seeds are not more pairs
    seed_std: float | None  # of the success over seeds; None for a single one
    steps: float  # mean, over all episodes
    success_steps: float | None  # mean, over the successes
    jerk: float | None
    monotonic: float | None  # share of the episodes whose latent distance falls at every step
    approach_rate: float | None  # share of the steps at which it falls, mean over episodes
    plans: float | None  # an episode, of a controller that plans ahead
    predictor_calls: float  # an episode
    batched_latency_ms: float | None  # mean of all decisions, as they were made: in batches
    difference: Difference | None  # to the reference controller


@dataclass(frozen=True, kw_only=True)
class Results:
    """What an evaluation measured."""

    pairs: Pairs
    rows: tuple[EpisodeResult, ...]
    provenance: Mapping[str, Sequence[Provenance]]  # of the rows, by controller
    latency: Mapping[str, Latency]  # of one environment alone, by controller
    folder: Path | None = None  # where they are kept

    @property
    def controllers(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(dict.fromkeys(row.method for row in self.rows))

    def of(self, controller: str) -> list[EpisodeResult]:
        """The rows of all seeds of a controller."""
        if controller not in self.controllers:
            known = ", ".join(self.controllers)
            raise ValueError(f"there are no results of {controller!r}, only of: {known}")
        return [row for row in self.rows if row.method == controller]

    def summary(self) -> list[MethodSummary]:
        """One line a subset of the pairs and controller, compared with CEM if it is there."""
        found = []
        for subset, pairs in pair_subsets(self.pairs.task, self.pairs.pairs).items():
            chosen = [row for row in self.rows if row.pair in pairs]
            reference = [row for row in chosen if row.method == REFERENCE]
            for name in self.controllers:
                rows = [row for row in chosen if row.method == name]
                others = () if name == REFERENCE else reference
                found.append(summarise_method(rows, subset=subset, reference=others))
        return found

    def compare(self, controller: str, other: str) -> Difference:
        """The success of a controller minus that of another, on the same pairs."""
        return statistics.paired_difference(self.of(controller), self.of(other))

    def speed_ups(self) -> dict[str, SpeedUp]:
        """How many times faster than CEM each controller is; empty without CEM."""
        reference = self.latency.get(REFERENCE)
        if reference is None:
            return {}
        return {name: SpeedUp.of(found, reference) for name, found in self.latency.items()}


def pair_subsets(task: Task, pairs: Sequence[Pair]) -> dict[str, set[int]]:
    """The numbers of all pairs, and of the task's own subsets that have any."""
    tests: Mapping[str, Callable[..., Array]] = {ALL: every_pair, **task.pair_subsets}
    found = {
        name: {pair.number for pair in pairs if bool(belongs(pair.start, pair.goal))}
        for name, belongs in tests.items()
    }
    return {name: numbers for name, numbers in found.items() if numbers}


def summarise_method(
    rows: Sequence[EpisodeResult], *, subset: str = ALL, reference: Sequence[EpisodeResult] = ()
) -> MethodSummary:
    """One line of the table, from the rows of all seeds of a controller; at least one."""
    seeds = sorted({row.seed for row in rows})
    by_seed = [np.mean([r.success for r in rows if r.seed == seed]) for seed in seeds]
    each = statistics.by_pair(rows)
    spent = [r.batched_latency_ms * r.steps for r in rows if r.batched_latency_ms is not None]
    timed_steps = sum(r.steps for r in rows if r.batched_latency_ms is not None)
    return MethodSummary(
        method=rows[0].method,
        subset=subset,
        seeds=len(seeds),
        rate=statistics.success_rate(
            sum(each.values()), len(each), design=statistics.pairs_design(rows, each)
        ),
        seed_std=float(np.std(by_seed, ddof=1)) if len(seeds) > 1 else None,
        steps=float(np.mean([row.steps for row in rows])),
        success_steps=_mean([row.steps for row in rows if row.success]),
        jerk=_mean([row.jerk for row in rows]),
        monotonic=_mean([row.monotonic for row in rows]),
        approach_rate=_mean([row.approach_rate for row in rows]),
        plans=_mean([row.plans for row in rows]),
        predictor_calls=float(np.mean([row.predictor_calls for row in rows])),
        batched_latency_ms=sum(spent) / timed_steps if spent else None,
        difference=statistics.paired_difference(rows, reference) if reference else None,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
