"""How much better one method is than another, with a 95% interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from goalward.evaluate.metrics import NORMAL_95, design_effect
from goalward.evaluate.rows import EpisodeRow
from goalward.types import Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Success of a method less that of another, or another number of theirs."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.mean:+.1f} [{100 * self.low:+.1f}, {100 * self.high:+.1f}]"


def paired_difference(rows: Sequence[EpisodeRow], others: Sequence[EpisodeRow]) -> Difference:
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


def unpaired_difference(rows: Sequence[EpisodeRow], others: Sequence[EpisodeRow]) -> Difference:
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


def jerk_difference(rows: Sequence[EpisodeRow], others: Sequence[EpisodeRow]) -> Difference | None:
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
    rows: Sequence[EpisodeRow],
    others: Sequence[EpisodeRow],
    value: Callable[[EpisodeRow], float],
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


def _success(row: EpisodeRow) -> float:
    return float(row.success)


def _jerk(row: EpisodeRow) -> float:
    assert row.jerk is not None
    return row.jerk


def _with_jerk(rows: Sequence[EpisodeRow]) -> list[EpisodeRow]:
    """Those that are long enough to have one."""
    return [row for row in rows if row.jerk is not None]


def by_pair(
    rows: Sequence[EpisodeRow], value: Callable[[EpisodeRow], float] = _success
) -> dict[int, float]:
    """Each pair's mean over the seeds."""
    found: dict[int, list[float]] = {}
    for row in rows:
        found.setdefault(row.pair, []).append(value(row))
    return {pair: float(np.mean(values)) for pair, values in found.items()}


def episodes_of(rows: Sequence[EpisodeRow]) -> dict[int, int]:
    """Which episode each pair was drawn from."""
    return {row.pair: row.episode for row in rows}


def _of(episodes: Mapping[int, int], pairs: Sequence[int] | Mapping[int, float]) -> list[int]:
    return [episodes[pair] for pair in pairs]
