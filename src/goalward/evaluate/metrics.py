"""Statistics of success."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from goalward.checks import finite_number, whole_number

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
