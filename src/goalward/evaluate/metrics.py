"""Statistics of success."""

from __future__ import annotations

import math
from dataclasses import dataclass

from goalward.checks import finite_number, whole_number

NORMAL_95 = 1.959963984540054  # two-sided 95% quantile of the normal distribution


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """A success rate with its Wilson 95% interval; all three are shares, not percent."""

    successes: float  # not whole where it is a mean over seeds
    count: int
    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.mean:.1f}% [{100 * self.low:.1f}, {100 * self.high:.1f}]"


def success_rate(successes: float, count: int) -> Rate:
    """Success rate with the Wilson score interval, which stays sensible at 0 and at 100%."""
    finite_number(successes, "successes")
    whole_number(count, "count", least=0)
    if not 0 <= successes <= count or count == 0:
        raise ValueError(f"need 0 <= successes <= count and count > 0, got {successes}, {count}")
    mean, z2 = successes / count, NORMAL_95**2
    centre = (mean + z2 / (2 * count)) / (1 + z2 / count)
    spread = math.sqrt(mean * (1 - mean) / count + z2 / (4 * count**2))
    half = NORMAL_95 * spread / (1 + z2 / count)
    low, high = max(centre - half, 0.0), min(centre + half, 1.0)
    return Rate(successes=successes, count=count, mean=mean, low=low, high=high)
