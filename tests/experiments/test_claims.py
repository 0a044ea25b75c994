"""Claims are decided by intervals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evaluation_helpers import row
from goalward.evaluation.results import EpisodeResult
from goalward.evaluation.statistics import paired_difference, unpaired_difference
from goalward.experiments.claims import Verdict, decide
from goalward.experiments.experiment import Claim, Variant
from table_helpers import latency

A, B = Variant("a", "a"), Variant("b", "b")
CLAIM = Claim(text="x", better=(A, "1"), worse=(B, "1"), tasks=("push-t",))


def decided(claim: Claim, ours: list[EpisodeResult], theirs: list[EpisodeResult]) -> Verdict | None:
    return decide(claim, "push-t", {claim.better: ours, claim.worse: theirs}, {})


@pytest.mark.parametrize(
    ("ours", "theirs", "margin", "verdict"),
    [
        (range(40), range(10), 0.0, "supported"),
        (range(10), range(40), 0.0, "refuted"),
        (range(20), range(20), 0.0, "inconclusive"),
        (range(20), range(20), 3.0, "inconclusive"),  # fifty pairs do not show 3 points
        (range(20), range(20), 5.0, "supported"),
        (range(20), range(1, 22), 5.0, "inconclusive"),
        (range(10), range(40), 3.0, "refuted"),
    ],
)
def test_a_claim_is_decided_by_its_interval(
    ours: range, theirs: range, margin: float, verdict: str
) -> None:
    sides = [
        [row(method=name, pair=pair, success=pair in wins) for pair in range(50)]
        for name, wins in (("a", ours), ("b", theirs))
    ]
    claim = replace(CLAIM, margin=margin)
    found = decided(claim, *sides)
    assert found is not None and found.verdict == verdict
    assert decide(claim, "push-t", {claim.better: sides[0]}, {}) is None
    places = {claim.better: sides[0], claim.worse: sides[1]}
    assert decide(claim, "cube", places, {}) is None  # which the claim is not about


def test_a_claim_about_different_pairs_is_decided_without_pairing() -> None:
    claim = Claim(text="x", better=(A, "1"), worse=(A, "2"), tasks=("push-t",))
    ours = [row(pair=k, pairs="here", success=k < 40) for k in range(50)]
    theirs = [row(pair=k, pairs="there", success=k < 10) for k in range(50)]
    found = decided(claim, ours, theirs)
    assert found is not None and found.verdict == "supported"
    assert found.difference == unpaired_difference(ours, theirs)
    assert str(found) == f"{found.difference} points"
    same = [replace(each, pairs="here") for each in theirs]
    paired = decided(claim, ours, same)
    assert paired is not None and paired.difference == paired_difference(ours, same)
    with pytest.raises(AssertionError, match="different pairs"):
        decided(replace(claim, about="jerk"), ours, theirs)


def test_a_claim_about_jerk_is_that_there_is_less_of_it() -> None:
    claim = replace(CLAIM, about="jerk")
    ours = [row(pair=k, jerk=0.101 + 0.001 * k) for k in range(50)]
    theirs = [row(pair=k, jerk=0.501) for k in range(50)]
    found, swapped = decided(claim, ours, theirs), decided(claim, theirs, ours)
    assert found is not None and found.verdict == "supported"
    assert str(found) == "+0.375 [+0.371, +0.380] of jerk"
    assert swapped is not None and swapped.verdict == "refuted"
    assert decided(claim, ours[:1], theirs[:1]) is None  # one pair has no interval


def test_a_claim_about_monotony_counts_the_episodes_that_near_their_goals_at_every_step() -> None:
    claim = replace(CLAIM, about="monotonic")
    ours = [row(pair=k, success=False, monotonic=k < 40) for k in range(50)]
    theirs = [row(pair=k, success=True, monotonic=k < 10) for k in range(50)]
    found = decided(claim, ours, theirs)
    assert found is not None and found.verdict == "supported" and str(found).endswith("points")
    assert decided(claim, ours, [replace(each, monotonic=None) for each in theirs]) is None


@pytest.mark.parametrize(
    ("quickest", "wins", "verdict", "shown"),
    [
        (2.0, 50, "supported", "no other is as quick"),
        (1.0, 20, "supported", "points"),
        (1.0, 35, "inconclusive", "points"),
        (0.5, 50, "refuted", "points"),
    ],
)
def test_a_claim_about_quick_rivals_meets_the_best_of_them(
    quickest: float, wins: int, verdict: str, shown: str
) -> None:
    full, few, good = (Variant(f"CEM {n}", f"cem:{n}", (n, 1)) for n in (9, 1, 2))
    claim = replace(CLAIM, worse=(full, "1"), margin=3.0, as_quick=True)
    success = {A: 35, full: 50, few: 0, good: wins, B: 50}  # B is quick, and no search
    rows = {
        (variant, "1"): [row(pair=k, success=k < number) for k in range(50)]
        for variant, number in success.items()
    }
    times = {A: 1.0, full: 9.0, few: quickest, good: quickest, B: 0.1}
    found = decide(claim, "push-t", rows, {one: latency(ms) for one, ms in times.items()})
    assert found is not None and found.verdict == verdict and str(found).endswith(shown)
