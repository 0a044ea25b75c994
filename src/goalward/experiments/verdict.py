"""Claims judged by intervals, not by eye."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from goalward.evaluate.rows import EpisodeRow
from goalward.evaluate.summary import Difference, paired_difference
from goalward.experiments.experiment import Claim, Label, MethodName

Rows = Mapping[tuple[MethodName, Label], Sequence[EpisodeRow]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What the data say about a claim on one task."""

    task: str
    claim: str
    verdict: Literal["holds", "fails", "open"]
    difference: Difference


def judge_claim(claim: Claim, task: str, rows: Rows) -> Verdict | None:
    """Compare pair by pair; None where a side was not measured.

    A claim of more success holds if the whole interval is above 0, one of as much success if it is
    above the margin; it fails if the whole interval is below that, and is open otherwise.
    """
    better, worse = rows.get(claim.better), rows.get(claim.worse)
    if not better or not worse or task not in claim.tasks:
        return None
    if {row.pairs for row in better} != {row.pairs for row in worse}:
        raise ValueError(f"{claim.text}: its sides were measured on different pairs")
    difference = paired_difference(better, worse)
    least = -claim.margin / 100
    verdict: Literal["holds", "fails", "open"] = "open"
    if difference.low > least:
        verdict = "holds"
    elif difference.high < least:
        verdict = "fails"
    return Verdict(task=task, claim=claim.wording, verdict=verdict, difference=difference)
