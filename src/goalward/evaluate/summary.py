"""Rows of an evaluation to one line a method, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from goalward.evaluate.differences import Difference, by_pair, episodes_of, paired_difference
from goalward.evaluate.metrics import Rate, design_effect, success_rate
from goalward.evaluate.pairs import Attempt
from goalward.evaluate.rows import EpisodeRow
from goalward.tasks.spec import Task, every_pair
from goalward.types import Array

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
    monotone: float | None  # share of the episodes whose latent distance falls at every step
    closing: float | None  # share of the steps at which it falls, mean over episodes
    plans: float | None  # an episode, of a method that plans ahead
    predictor_calls: float  # an episode
    decision_ms: float  # mean of all decisions, as they were made: in batches
    versus: Difference | None  # the reference method


def summarise_method(
    rows: Sequence[EpisodeRow], *, subset: str = ALL, reference: Sequence[EpisodeRow] = ()
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
        monotone=_mean([row.monotone for row in rows]),
        closing=_mean([row.closing for row in rows]),
        plans=_mean([row.plans for row in rows]),
        predictor_calls=float(np.mean([row.predictor_calls for row in rows])),
        decision_ms=sum(r.decision_ms * r.steps for r in rows) / sum(r.steps for r in rows),
        versus=paired_difference(rows, reference) if reference else None,
    )


def summarise(
    rows: Mapping[str, Sequence[EpisodeRow]], subsets: Mapping[str, set[int]], reference: str
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


def pair_subsets(task: Task, attempts: Sequence[Attempt]) -> dict[str, set[int]]:
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
