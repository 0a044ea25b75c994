"""How much better one method is than another, with a 95% interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from goalward.core.arrays import Array
from goalward.core.checks import finite_number, whole_number

if TYPE_CHECKING:
    from goalward.evaluation.results import EpisodeResult


NORMAL_95 = 1.959963984540054  # two-sided 95% quantile of the normal distribution


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """A success rate with its Wilson 95% interval; all are shares, not percent."""

    successes: float  # not whole where it is a mean over seeds
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
    finite_number(successes, "successes")
    whole_number(count, "count", least=0)
    if not 0 <= successes <= count or count == 0:
        raise ValueError(f"need 0 <= successes <= count and count > 0, got {successes}, {count}")
    if finite_number(design, "design") < 1:
        raise ValueError(f"design must be at least 1, got {design}")
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
    that are all the same, or of one group, do not tell: then it is 1.
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
    """Success of a method less that of another, or another number of theirs."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.mean:+.1f} [{100 * self.low:+.1f}, {100 * self.high:+.1f}]"


def paired_difference(rows: Sequence[EpisodeResult], others: Sequence[EpisodeResult]) -> Difference:
    """The mean difference of success over the pairs that both have (Agresti & Min, 2005).

    Its interval is the normal one after half a pair of each outcome is added: of both, of neither,
    of this method alone and of the other alone. So few pairs, and pairs that all end alike, cannot
    make it narrow. Pairs of an episode that are alike widen it (`design_effect`).
    """
    differences, design = _differences(rows, others, _success)
    number = len(differences) + 2
    centre = differences.sum() / number
    spread = ((differences**2).sum() + 1) / number - centre**2
    half = NORMAL_95 * float(np.sqrt(spread * design / number))
    return _bounded(float(differences.mean()), float(centre), half)


def unpaired_difference(
    rows: Sequence[EpisodeResult], others: Sequence[EpisodeResult]
) -> Difference:
    """The difference of success on different pairs (Agresti & Caffo, 2000).

    Its interval is the normal one after a success and a failure are added to either side.
    """
    shares, means, variance = [], [], 0.0
    for side in (rows, others):
        each = by_pair(side)
        outcomes = list(each.values())
        design = design_effect(outcomes, _of(episodes_of(side), each))
        number = len(outcomes) + 2
        shares.append((sum(outcomes) + 1) / number)
        means.append(sum(outcomes) / len(outcomes))
        variance += design * shares[-1] * (1 - shares[-1]) / number
    half = NORMAL_95 * float(np.sqrt(variance))
    return _bounded(means[0] - means[1], shares[0] - shares[1], half)


def jerk_difference(
    rows: Sequence[EpisodeResult], others: Sequence[EpisodeResult]
) -> Difference | None:
    """The mean difference of action jerk over the pairs for which both have one.

    None where they are fewer than two, and nothing tells how sure it is.
    """
    ours, theirs = _with_jerk(rows), _with_jerk(others)
    if len(episodes_of(ours).keys() & episodes_of(theirs).keys()) < 2:
        return None
    differences, design = _differences(ours, theirs, _jerk)
    mean = float(differences.mean())
    half = NORMAL_95 * float(differences.std(ddof=1) * np.sqrt(design / len(differences)))
    return Difference(mean=mean, low=mean - half, high=mean + half)


def _differences(
    rows: Sequence[EpisodeResult],
    others: Sequence[EpisodeResult],
    value: Callable[[EpisodeResult], float],
) -> tuple[Array, float]:
    """The differences over the pairs that both have, means over the seeds; their design effect."""
    ours, theirs = by_pair(rows, value), by_pair(others, value)
    pairs = sorted(ours.keys() & theirs.keys())
    if not pairs:
        raise ValueError("the methods have no pair in common; evaluate them on the same pairs")
    differences = np.array([ours[pair] - theirs[pair] for pair in pairs])
    return differences, design_effect(list(differences), _of(episodes_of(rows), pairs))


def _bounded(mean: float, centre: float, half: float) -> Difference:
    return Difference(mean=mean, low=max(-1.0, centre - half), high=min(1.0, centre + half))


def _success(row: EpisodeResult) -> float:
    return float(row.success)


def _jerk(row: EpisodeResult) -> float:
    assert row.jerk is not None
    return row.jerk


def _with_jerk(rows: Sequence[EpisodeResult]) -> list[EpisodeResult]:
    """Those that are long enough to have one."""
    return [row for row in rows if row.jerk is not None]


def by_pair(
    rows: Sequence[EpisodeResult], value: Callable[[EpisodeResult], float] = _success
) -> dict[int, float]:
    """Each pair's mean over the seeds."""
    found: dict[int, list[float]] = {}
    for row in rows:
        found.setdefault(row.pair, []).append(value(row))
    return {pair: float(np.mean(values)) for pair, values in found.items()}


def episodes_of(rows: Sequence[EpisodeResult]) -> dict[int, int]:
    """Which episode each pair was drawn from."""
    return {row.pair: row.episode for row in rows}


def _of(episodes: Mapping[int, int], pairs: Sequence[int] | Mapping[int, float]) -> list[int]:
    return [episodes[pair] for pair in pairs]
