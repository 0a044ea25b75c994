"""Claims decided by confidence intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from goalward.evaluation.latency import Latency
from goalward.evaluation.results import EpisodeResult
from goalward.evaluation.statistics import (
    Difference,
    jerk_difference,
    paired_difference,
    unpaired_difference,
)
from goalward.experiments.experiment import Claim, Place, Quantity, Variant

Rows = Mapping[Place, Sequence[EpisodeResult]]
Latencies = Mapping[Variant, Latency]
Decision = Literal["supported", "refuted", "inconclusive"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What the data say about a claim on one task."""

    task: str
    claim: str
    verdict: Decision
    ours: bool  # not the paper's
    about: Quantity
    difference: Difference | None  # in favour of the claim; None: there is no rival

    def __str__(self) -> str:
        if self.difference is None:
            return "no other is as quick"
        if self.about != "jerk":
            return f"{self.difference} points"
        mean, low, high = self.difference.mean, self.difference.low, self.difference.high
        return f"{mean:+.3f} [{low:+.3f}, {high:+.3f}] of {self.about}"


def decide(claim: Claim, task: str, rows: Rows, latencies: Latencies) -> Verdict | None:
    """Compare the two places of a claim; None where one is missing or was not measured.

    A claim is supported if the whole interval of the difference is above minus the margin, refuted
    if it is below, and inconclusive otherwise. A claim about rivals that are as quick is supported
    if there are none.
    """
    better, worse = rows.get(claim.better), rows.get(claim.worse)
    if not better or not worse or task not in claim.tasks:
        return None
    rival = _best_as_quick(claim, rows, latencies) if claim.as_quick else worse
    difference = None if rival is None else _difference(claim, better, rival)
    if rival is not None and difference is None:
        return None
    least = -claim.margin / 100
    verdict: Decision = "inconclusive"
    if difference is None or difference.low > least:
        verdict = "supported"
    elif difference.high < least:
        verdict = "refuted"
    return Verdict(
        task=task,
        claim=claim.wording,
        verdict=verdict,
        ours=claim.ours,
        about=claim.about,
        difference=difference,
    )


def _best_as_quick(
    claim: Claim, rows: Rows, latencies: Latencies
) -> Sequence[EpisodeResult] | None:
    """The search that succeeds most often of those that take no longer for a decision."""
    limit = latencies[claim.better[0]].mean
    quick = [
        found
        for (variant, point), found in rows.items()
        if variant.search_size and point == claim.worse[1] and latencies[variant].mean <= limit
    ]
    return max(quick, key=lambda found: sum(row.success for row in found), default=None)


def _difference(
    claim: Claim, better: Sequence[EpisodeResult], worse: Sequence[EpisodeResult]
) -> Difference | None:
    """The difference in favour of the claim; None where it was not measured."""
    same_pairs = {row.pairs for row in better} == {row.pairs for row in worse}
    if claim.about == "jerk":  # less is better
        assert same_pairs, "there is no interval of jerk for different pairs"
        return jerk_difference(worse, better)
    if claim.about == "monotonic":
        if any(row.monotonic is None for row in (*better, *worse)):
            return None
        better, worse = (
            [replace(row, success=bool(row.monotonic)) for row in side] for side in (better, worse)
        )
    return (paired_difference if same_pairs else unpaired_difference)(better, worse)
