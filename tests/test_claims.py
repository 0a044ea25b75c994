"""Claims: they name what is measured, and are judged by intervals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from goalward.evaluation.latency import Latency
from goalward.evaluation.results import EpisodeResult
from goalward.evaluation.statistics import unpaired_difference
from goalward.experiments.catalog import EXPERIMENTS
from goalward.experiments.claims import judge_claim
from goalward.experiments.experiment import Claim
from test_evaluation import row


def test_claims_name_methods_and_points_that_are_measured() -> None:
    claims = [(experiment, claim) for experiment in EXPERIMENTS for claim in experiment.claims]
    assert len(claims) >= 6
    for experiment, claim in claims:
        labels = {point.label for point in experiment.points}
        for method, label in (claim.better, claim.worse):
            assert method in experiment.methods and label in labels


@pytest.mark.parametrize(
    ("ours", "theirs", "margin", "verdict"),
    [
        (range(40), range(10), 0.0, "holds"),
        (range(10), range(40), 0.0, "fails"),
        (range(20), range(20), 0.0, "open"),
        (range(20), range(20), 3.0, "open"),  # fifty pairs do not tell 3 points
        (range(20), range(20), 5.0, "holds"),
        (range(20), range(1, 22), 5.0, "open"),
        (range(10), range(40), 3.0, "fails"),
    ],
)
def test_a_claim_is_judged_by_its_interval(
    ours: range, theirs: range, margin: float, verdict: str
) -> None:
    def rows(method: str, wins: range) -> list[EpisodeResult]:
        return [row(method=method, pair=pair, success=pair in wins) for pair in range(50)]

    claim = Claim(text="x", better=("a", "1"), worse=("b", "1"), margin=margin)
    found = judge_claim(
        claim, "push-t", {("a", "1"): rows("a", ours), ("b", "1"): rows("b", theirs)}
    )
    assert found is not None and found.verdict == verdict
    assert judge_claim(claim, "push-t", {("a", "1"): rows("a", ours)}) is None


def test_a_claim_about_different_pairs_is_judged_side_by_side() -> None:
    claim = Claim(text="x", better=("a", "1"), worse=("a", "2"), apart=True)
    ours = [row(pair=k, pairs="here", success=k < 40) for k in range(50)]
    theirs = [row(pair=k, pairs="there", success=k < 10) for k in range(50)]
    found = judge_claim(claim, "push-t", {("a", "1"): ours, ("a", "2"): theirs})
    assert found is not None and found.verdict == "holds"
    assert found.difference == unpaired_difference(ours, theirs)
    assert found.shown == f"{found.difference} points"
    with pytest.raises(ValueError, match="different pairs"):  # unless the claim says so
        judge_claim(replace(claim, apart=False), "push-t", {("a", "1"): ours, ("a", "2"): theirs})


def test_claims_are_about_different_pairs_where_their_points_vary_the_pairs() -> None:
    for experiment in EXPERIMENTS:
        points = {point.label: point.changes for point in experiment.points}
        for claim in experiment.claims:
            sides = [
                tuple(points[label].get(name) for name in ("offset", "episodes", "demonstrator"))
                for _, label in (claim.better, claim.worse)
            ]
            assert claim.apart == (sides[0] != sides[1]), claim.text


def test_a_claim_about_jerk_is_that_there_is_less_of_it() -> None:
    claim = Claim(text="x", better=("a", "1"), worse=("b", "1"), about="jerk")
    ours = [row(pair=k, jerk=0.101 + 0.001 * k) for k in range(50)]
    theirs = [row(pair=k, jerk=0.501) for k in range(50)]
    found = judge_claim(claim, "push-t", {("a", "1"): ours, ("b", "1"): theirs})
    assert found is not None and found.verdict == "holds"
    assert found.shown == "+0.375 [+0.371, +0.380] of jerk"
    swapped = judge_claim(claim, "push-t", {("a", "1"): theirs, ("b", "1"): ours})
    assert swapped is not None and swapped.verdict == "fails"
    assert judge_claim(claim, "push-t", {("a", "1"): ours[:1], ("b", "1"): theirs[:1]}) is None


def test_a_claim_about_monotony_counts_the_episodes_that_near_their_goals_at_every_step() -> None:
    claim = Claim(text="x", better=("a", "1"), worse=("b", "1"), about="monotonic")
    ours = [row(pair=k, success=False, monotonic=k < 40) for k in range(50)]
    theirs = [row(pair=k, success=True, monotonic=k < 10) for k in range(50)]
    found = judge_claim(claim, "push-t", {("a", "1"): ours, ("b", "1"): theirs})
    assert found is not None and found.verdict == "holds" and found.shown.endswith("points")
    unknown = [replace(each, monotonic=None) for each in theirs]
    assert judge_claim(claim, "push-t", {("a", "1"): ours, ("b", "1"): unknown}) is None


def test_every_finding_of_the_paper_that_success_can_show_is_judged() -> None:
    unjudged = {e.id for e in EXPERIMENTS if not any(not claim.ours for claim in e.claims)}
    assert unjudged == {"commit", "demonstrations", "geometry"}  # which the paper does not have


@pytest.mark.parametrize(
    ("quickest", "wins", "verdict", "shown"),
    [
        (2.0, 50, "holds", "no other is as quick"),
        (1.0, 20, "holds", "points"),
        (1.0, 35, "open", "points"),
        (0.5, 50, "fails", "points"),
    ],
)
def test_a_claim_about_quick_rivals_meets_the_best_of_them(
    quickest: float, wins: int, verdict: str, shown: str
) -> None:
    claim = Claim(text="x", better=("a", "1"), worse=("cem", "1"), margin=3.0, as_quick=True)
    success = {"a": 35, "cem": 50, "cem:n=1": 0, "cem:n=2": wins}
    rows = {
        (name, "1"): [row(method=name, pair=k, success=k < number) for k in range(50)]
        for name, number in success.items()
    }
    means = {"a": 1.0, "cem": 9.0, "cem:n=1": quickest, "cem:n=2": quickest}
    times = {
        name: Latency(environments=1, decisions=1, mean=ms, p50=ms, p99=ms, plan=ms, memory_mb=None)
        for name, ms in means.items()
    }
    found = judge_claim(claim, "push-t", rows, times)
    assert found is not None and found.verdict == verdict and found.shown.endswith(shown)
