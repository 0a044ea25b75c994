"""Claims judged by intervals, not by eye."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from goalward.evaluate.differences import (
    Difference,
    jerk_difference,
    paired_difference,
    unpaired_difference,
)
from goalward.evaluate.rows import EpisodeRow
from goalward.evaluate.timing import Latency
from goalward.experiments.experiment import Claim, Label, MethodName, Quantity

Rows = Mapping[tuple[MethodName, Label], Sequence[EpisodeRow]]
Times = Mapping[MethodName, Latency]
NO_TIMES: Times = MappingProxyType({})


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What the data say about a claim on one task."""

    task: str
    claim: str
    verdict: Literal["holds", "fails", "open"]
    about: Quantity
    difference: Difference | None  # in favour of the claim; None: nothing is there to compare with

    @property
    def shown(self) -> str:
        """The difference with its interval and unit."""
        if self.difference is None:
            return "no other is as quick"
        if self.about == "success":
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
            return Verdict(
                task=task, claim=claim.wording, verdict="holds", about=claim.about, difference=None
            )
    if not claim.apart and {row.pairs for row in better} != {row.pairs for row in worse}:
        raise ValueError(f"{claim.text}: its sides were measured on different pairs")
    difference = _difference(claim, better, worse)
    if difference is None:
        return None
    least = -claim.margin / 100
    verdict: Literal["holds", "fails", "open"] = "open"
    if difference.low > least:
        verdict = "holds"
    elif difference.high < least:
        verdict = "fails"
    return Verdict(
        task=task, claim=claim.wording, verdict=verdict, about=claim.about, difference=difference
    )


def _best_as_quick(claim: Claim, rows: Rows, times: Times) -> Sequence[EpisodeRow] | None:
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
    claim: Claim, better: Sequence[EpisodeRow], worse: Sequence[EpisodeRow]
) -> Difference | None:
    """How much speaks for the claim."""
    if claim.about == "jerk":  # less is better
        return jerk_difference(worse, better)
    return (unpaired_difference if claim.apart else paired_difference)(better, worse)
