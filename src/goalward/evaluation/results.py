"""Rows of an evaluation to one line a method, with intervals."""

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
    from_json,
    parse_config,
    read_json,
    require_at_least,
    require_types,
    to_json,
    write_json,
)
from goalward.core.machine import Provenance
from goalward.evaluation.pairs import Pair
from goalward.evaluation.statistics import (
    Difference,
    Rate,
    by_pair,
    design_effect,
    episodes_of,
    paired_difference,
    success_rate,
)
from goalward.tasks.task import Task, every_pair


@dataclass(frozen=True, kw_only=True)
class EpisodeResult:
    """One episode of one method."""

    task: str
    protocol: str
    method: str
    run_id: str  # id of method, seed, model, budget and pairs together
    pairs: str  # id of the frozen pairs
    seed: int
    pair: int
    episode: int  # that the pair was drawn from
    budget: int
    success: bool
    steps: int
    jerk: float | None  # None for fewer than three actions
    monotonic: bool | None  # None without a world model to measure latents with
    approach_rate: float | None  # share of the steps that bring the latent closer to the goal's
    latent_distance: float | None  # of the last frame
    errors: dict[str, float]  # of the last state, in each measure's unit
    plans: int | None  # planning calls; None for a method that plans nothing ahead
    predictor_calls: int
    batched_latency_ms: float  # mean of its decisions; a batch's time is shared evenly

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 0, "seed", "pair", "episode", "predictor_calls")
        require_at_least(self, 1, "budget", "steps")
        if self.steps > self.budget:
            raise ValueError(f"steps must be at most budget = {self.budget}, got {self.steps}")


class ResultsFile:
    """The rows of one cell on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[EpisodeResult]:
        """All whole rows, one a pair; what a killed process left of a line is dropped.

        Raises:
            ValueError: a line is something else.
        """
        if not self.path.exists():
            return []
        content = self.path.read_bytes()
        lines = content[: content.rfind(b"\n") + 1].splitlines()
        rows = [self._parse(line, k) for k, line in enumerate(lines, start=1)]
        return list({row.pair: row for row in reversed(rows)}.values())[::-1]  # the first of each

    def append(self, rows: Sequence[EpisodeResult]) -> None:
        """Add rows after those that are whole, and see them to the disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(asdict(row), allow_nan=False) + "\n" for row in rows)
        with self.path.open("ab+") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)  # another process may run the same cell
            stream.seek(0)
            stream.truncate(stream.read().rfind(b"\n") + 1)
            stream.write(text.encode())
            stream.flush()
            os.fsync(stream.fileno())

    @property
    def _origins_path(self) -> Path:
        return self.path.with_suffix(".provenance.json")

    def origins(self) -> tuple[Provenance, ...]:
        """What the rows were measured with; nothing if that was not noted."""
        path = self._origins_path
        return tuple(from_json(Provenance, o) for o in read_json(path)) if path.exists() else ()

    def note(self, origin: Provenance) -> None:
        """Note what rows that are to come are measured with."""
        known = self.origins()
        if origin not in known:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._origins_path, [to_json(one) for one in (*known, origin)])

    def _parse(self, line: bytes, number: int) -> EpisodeResult:
        try:
            return parse_config(EpisodeResult, line, self.path)
        except ValueError as error:
            raise ValueError(
                f"{error} (line {number} is no row of an evaluation; move the file away)"
            ) from error


ALL = "all"


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodSummary:
    """One method on all pairs, or on a subset of them."""

    method: str
    subset: str
    seeds: int
    rate: Rate  # mean over seeds, which are no new cases; nor are, quite, pairs of an episode
    seed_std: float | None  # of the success over seeds; None for a single one
    steps: float  # mean, over all episodes
    success_steps: float | None  # mean, over the successes
    jerk: float | None
    monotonic: float | None  # share of the episodes whose latent distance falls at every step
    approach_rate: float | None  # share of the steps at which it falls, mean over episodes
    plans: float | None  # an episode, of a method that plans ahead
    predictor_calls: float  # an episode
    batched_latency_ms: float  # mean of all decisions, as they were made: in batches
    difference: Difference | None  # the reference method


def summarise_method(
    rows: Sequence[EpisodeResult], *, subset: str = ALL, reference: Sequence[EpisodeResult] = ()
) -> MethodSummary:
    """One line of the table, from the rows of all seeds of a method."""
    if not rows:
        raise ValueError("there are no rows to summarise; evaluate something first")
    seeds = sorted({row.seed for row in rows})
    by_seed = [np.mean([r.success for r in rows if r.seed == seed]) for seed in seeds]
    wins = [row for row in rows if row.success]
    each, episodes = by_pair(rows), episodes_of(rows)
    design = design_effect(list(each.values()), [episodes[pair] for pair in each])
    return MethodSummary(
        method=rows[0].method,
        subset=subset,
        seeds=len(seeds),
        rate=success_rate(sum(each.values()), len(each), design=design),
        seed_std=float(np.std(by_seed, ddof=1)) if len(seeds) > 1 else None,
        steps=float(np.mean([row.steps for row in rows])),
        success_steps=_mean([row.steps for row in wins]),
        jerk=_mean([row.jerk for row in rows]),
        monotonic=_mean([row.monotonic for row in rows]),
        approach_rate=_mean([row.approach_rate for row in rows]),
        plans=_mean([row.plans for row in rows]),
        predictor_calls=float(np.mean([row.predictor_calls for row in rows])),
        batched_latency_ms=sum(r.batched_latency_ms * r.steps for r in rows)
        / sum(r.steps for r in rows),
        difference=paired_difference(rows, reference) if reference else None,
    )


def summarise(
    rows: Mapping[str, Sequence[EpisodeResult]], subsets: Mapping[str, set[int]], reference: str
) -> list[MethodSummary]:
    """One line a subset of pairs and method, each beside the reference if that is there.

    Args:
        rows: Of all seeds, by method.
        subsets: Numbers of pairs, by name.
        reference: The method that the others are compared with.
    """
    found = []
    for subset, pairs in subsets.items():
        chosen = {name: [r for r in some if r.pair in pairs] for name, some in rows.items()}
        known = chosen.get(reference, [])
        found += [
            summarise_method(some, subset=subset, reference=[] if name == reference else known)
            for name, some in chosen.items()
        ]
    return found


def pair_subsets(task: Task, attempts: Sequence[Pair]) -> dict[str, set[int]]:
    """The numbers of all pairs, and of the task's own subsets that have any."""
    tests: Mapping[str, Callable[..., Array]] = {ALL: every_pair, **task.pair_subsets}
    found = {
        name: {a.pair for a in attempts if bool(belongs(a.start, a.goal))}
        for name, belongs in tests.items()
    }
    return {name: pairs for name, pairs in found.items() if pairs}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
