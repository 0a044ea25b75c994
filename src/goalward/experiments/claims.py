"""Claims judged by intervals, not by eye."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from goalward.evaluation.latency import Latency
from goalward.evaluation.results import EpisodeResult
from goalward.evaluation.statistics import (
    Difference,
    jerk_difference,
    paired_difference,
    unpaired_difference,
)
from goalward.experiments.experiment import Claim, Label, MethodName, Quantity

Rows = Mapping[tuple[MethodName, Label], Sequence[EpisodeResult]]
Times = Mapping[MethodName, Latency]
NO_TIMES: Times = MappingProxyType({})


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What the data say about a claim on one task."""

    task: str
    claim: str
    verdict: Literal["holds", "fails", "open"]
    ours: bool  # not the paper's
    about: Quantity
    difference: Difference | None  # in favour of the claim; None: nothing is there to compare with

    @property
    def shown(self) -> str:
        """The difference with its interval and unit."""
        if self.difference is None:
            return "no other is as quick"
        if self.about != "jerk":
            return f"{self.difference} points"
        mean, low, high = self.difference.mean, self.difference.low, self.difference.high
        return f"{mean:+.3f} [{low:+.3f}, {high:+.3f}] of {self.about}"


def judge_claim(claim: Claim, task: str, rows: Rows, times: Times = NO_TIMES) -> Verdict | None:
    """Compare pair by pair, or side by side if the claim says so; None where a side is missing.

    A claim of more success holds if the whole interval is above 0, one of as much success if it is
    above the margin; it fails if the whole interval is below that, and is open otherwise. One about
    rivals that are as quick holds if there are none.
    """
    better, worse = rows.get(claim.better), rows.get(claim.worse)
    if not better or not worse or task not in claim.tasks:
        return None
    if claim.as_quick:
        worse = _best_as_quick(claim, rows, times)
        if worse is None:
            return _verdict(claim, task, "holds", None)
    if not claim.apart and {row.pairs for row in better} != {row.pairs for row in worse}:
        raise ValueError(f"{claim.text}: its sides were measured on different pairs")
    difference = _difference(claim, better, worse)
    if difference is None:
        return None
    least = -claim.margin / 100
    if difference.low > least:
        return _verdict(claim, task, "holds", difference)
    return _verdict(claim, task, "fails" if difference.high < least else "open", difference)


def _verdict(
    claim: Claim, task: str, verdict: Literal["holds", "fails", "open"], found: Difference | None
) -> Verdict:
    return Verdict(
        task=task,
        claim=claim.wording,
        verdict=verdict,
        ours=claim.ours,
        about=claim.about,
        difference=found,
    )


def _best_as_quick(claim: Claim, rows: Rows, times: Times) -> Sequence[EpisodeResult] | None:
    """What succeeds most often of a family's settings that take no longer for a decision."""
    family, label = claim.worse
    quick = [
        found
        for (method, point), found in rows.items()
        if method.partition(":")[0] == family
        and point == label
        and times[method].mean <= times[claim.better[0]].mean
    ]
    return max(quick, key=lambda found: sum(row.success for row in found), default=None)


def _difference(
    claim: Claim, better: Sequence[EpisodeResult], worse: Sequence[EpisodeResult]
) -> Difference | None:
    """How much speaks for the claim."""
    if claim.about == "jerk":  # less is better
        return jerk_difference(worse, better)
    if claim.about == "monotonic":
        if any(row.monotonic is None for row in (*better, *worse)):
            return None
        better, worse = _by_monotony(better), _by_monotony(worse)
    return (unpaired_difference if claim.apart else paired_difference)(better, worse)


def _by_monotony(rows: Sequence[EpisodeResult]) -> list[EpisodeResult]:
    """Rows in which it counts as success that the latent distance fell at every step."""
    return [replace(row, success=bool(row.monotonic)) for row in rows]
