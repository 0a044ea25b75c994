"""Success rates and their differences, with 95% intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from goalward.core.arrays import Array

if TYPE_CHECKING:
    from goalward.evaluation.results import EpisodeResult

Rows = Sequence["EpisodeResult"]

NORMAL_95 = 1.959963984540054  # two-sided 95% quantile of the normal distribution


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """A success rate with its Wilson 95% interval; all are shares, not percent."""

    successes: float  # a mean over seeds, where there are several
    count: int
    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.mean:.1f}% [{100 * self.low:.1f}, {100 * self.high:.1f}]"


def success_rate(successes: float, count: int, *, design: float = 1.0) -> Rate:
    """Success rate with the Wilson score interval, which stays sensible at 0 and at 100%.

    Args:
        successes: How many, or a mean over seeds.
        count: Of how many.
        design: See `design_effect`: the interval is that of `count / design` independent cases.
    """
    assert 0 <= successes <= count > 0
    mean, z2, worth = successes / count, NORMAL_95**2, count / design
    centre = (mean + z2 / (2 * worth)) / (1 + z2 / worth)
    spread = math.sqrt(mean * (1 - mean) / worth + z2 / (4 * worth**2))
    half = NORMAL_95 * spread / (1 + z2 / worth)
    # Rounding may put the ends on the wrong side of 0, of 1, or of the mean.
    low, high = min(max(centre - half, 0.0), mean), max(min(centre + half, 1.0), mean)
    return Rate(successes=successes, count=count, mean=mean, low=low, high=high)


def design_effect(values: Sequence[float], groups: Sequence[int]) -> float:
    """By how much groups that are alike raise the variance of a mean (Kish); at least 1.

    It is the variance of the mean with whole groups as cases over that with single values. Values
    that are all the same, or of one group, give no estimate: then it is 1.
    """
    rest = np.asarray(values, dtype=np.float64) - np.mean(values)
    _, member = np.unique(np.asarray(groups), return_inverse=True)
    sums = np.bincount(member, weights=rest)
    single = (rest**2).sum() * len(rest) / max(1, len(rest) - 1)
    if len(sums) < 2 or single == 0:
        return 1.0
    return max(1.0, float((sums**2).sum() * len(sums) / (len(sums) - 1) / single))


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Success of a controller minus that of another, or the difference of another number."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.mean:+.1f} [{100 * self.low:+.1f}, {100 * self.high:+.1f}]"


def paired_difference(rows: Rows, others: Rows) -> Difference:
    """The mean difference of success over the pairs that both have (Agresti & Min, 2005).

    Its interval is the normal one after half a pair of each outcome is added: of both, of neither,
    of this controller alone and of the other alone. So few pairs, and pairs that all end alike,
    cannot make it narrow. Pairs of an episode that are alike widen it (`design_effect`).
    """
    differences, design = _differences(rows, others, "success")
    if not len(differences):
        raise ValueError("the controllers have no pair in common; evaluate them on the same pairs")
    number = len(differences) + 2
    centre = differences.sum() / number
    spread = ((differences**2).sum() + 1) / number - centre**2
    half = NORMAL_95 * float(np.sqrt(spread * design / number))
    return _bounded(float(differences.mean()), float(centre), half)


def unpaired_difference(rows: Rows, others: Rows) -> Difference:
    """The difference of success on different pairs (Agresti & Caffo, 2000).

    Its interval is the normal one after a success and a failure are added to either side.
    """
    shares, means, variance = [], [], 0.0
    for side in (rows, others):
        outcomes = by_pair(side)
        number, successes = len(outcomes) + 2, sum(outcomes.values())
        shares.append((successes + 1) / number)
        means.append(successes / len(outcomes))
        variance += pairs_design(side, outcomes) * shares[-1] * (1 - shares[-1]) / number
    half = NORMAL_95 * float(np.sqrt(variance))
    return _bounded(means[0] - means[1], shares[0] - shares[1], half)


def jerk_difference(rows: Rows, others: Rows) -> Difference | None:
    """The mean difference of action jerk over the pairs for which both have one.

    None where they are fewer than two: then there is no interval.
    """
    differences, design = _differences(rows, others, "jerk")
    if len(differences) < 2:
        return None
    mean = float(differences.mean())
    half = NORMAL_95 * float(differences.std(ddof=1) * np.sqrt(design / len(differences)))
    return Difference(mean=mean, low=mean - half, high=mean + half)


def by_pair(rows: Rows, column: str = "success") -> dict[int, float]:
    """Each pair's mean over the seeds of what a column holds; without pairs that have nothing."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if (value := getattr(row, column)) is not None:
            found.setdefault(row.pair, []).append(float(value))
    return {pair: float(np.mean(values)) for pair, values in found.items()}


def pairs_design(rows: Rows, by_pair: Mapping[int, float]) -> float:
    """The design effect of a value of each pair, where pairs of one episode may be alike."""
    episodes = {row.pair: row.episode for row in rows}
    return design_effect([*by_pair.values()], [episodes[pair] for pair in by_pair])


def _differences(rows: Rows, others: Rows, column: str) -> tuple[Array, float]:
    """The differences over the pairs that both have, and their design effect."""
    ours, theirs = by_pair(rows, column), by_pair(others, column)
    each = {pair: ours[pair] - theirs[pair] for pair in sorted(ours.keys() & theirs.keys())}
    return np.array([*each.values()]), pairs_design(rows, each) if each else 1.0


def _bounded(mean: float, centre: float, half: float) -> Difference:
    return Difference(mean=mean, low=max(-1.0, centre - half), high=min(1.0, centre + half))
