"""Rates and differences: known answers, and intervals that cover as often as they state."""

from dataclasses import replace

import numpy as np
import pytest

from evaluation_helpers import row
from goalward.evaluation.results import summarise_method
from goalward.evaluation.statistics import (
    design_effect,
    jerk_difference,
    paired_difference,
    success_rate,
    unpaired_difference,
)


@pytest.mark.parametrize(
    ("successes", "count", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (50, 100, 0.4038, 0.5962), (1, 1, 0.2065, 1.0)],
)
def test_the_wilson_interval_has_its_known_values(
    successes: int, count: int, low: float, high: float
) -> None:
    rate = success_rate(successes, count)
    assert rate.mean == successes / count
    assert rate.low == pytest.approx(low, abs=1e-4)
    assert rate.high == pytest.approx(high, abs=1e-4)


def test_a_mean_never_lies_outside_its_interval() -> None:
    for count in range(1, 400):
        for successes in (0, count / 3, count):
            rate = success_rate(successes, count, design=1 + count / 7)
            assert 0 <= rate.low <= rate.mean <= rate.high <= 1


def test_differences_are_paired() -> None:
    ours = [row(pair=k, success=True) for k in range(100)]
    theirs = [row(pair=k, success=k % 2 == 0) for k in range(100)]
    found = paired_difference(ours, theirs)
    assert found.mean == 0.5
    assert 0.38 < found.low < 0.45 < 0.55 < found.high < 0.62
    with pytest.raises(ValueError, match="no pair in common"):
        paired_difference(ours, [row(pair=1000)])


def test_few_pairs_leave_a_difference_wide() -> None:
    alike = [row(pair=pair) for pair in range(200)]
    few, many = paired_difference(alike[:2], alike[:2]), paired_difference(alike, alike)
    assert (few.mean, few.low, few.high) == pytest.approx((0.0, -0.49, 0.49), abs=1e-3)
    assert (many.low, many.high) == pytest.approx((-0.0097, 0.0097), abs=1e-4)


def test_intervals_cover_the_truth_as_often_as_they_state() -> None:
    rng = np.random.default_rng(0)
    hits = []
    for _ in range(400):  # 40 pairs: 80% against 70%, not independent of each other
        hard = rng.random(40)
        ours = [row(pair=k, success=bool(hard[k] < 0.8)) for k in range(40)]
        theirs = [row(pair=k, success=bool(rng.random() < 0.7)) for k in range(40)]
        found = paired_difference(ours, theirs)
        hits.append(found.low <= 0.1 <= found.high)
    assert 0.92 <= np.mean(hits) <= 0.99


def test_pairs_of_one_episode_that_are_alike_widen_the_intervals() -> None:
    rng = np.random.default_rng(0)
    rates, differences = [], []
    none = [row(pair=k, episode=k // 10, success=False) for k in range(200)]
    for _ in range(300):  # 20 episodes of 10 pairs, in most of which all pairs end alike
        wins = rng.random(20) < 0.7
        some = [
            row(pair=k, episode=k // 10, success=bool(wins[k // 10] ^ (rng.random() < 0.1)))
            for k in range(200)
        ]
        rate, found = summarise_method(some).rate, paired_difference(some, none)
        rates.append(rate.low <= 0.66 <= rate.high)
        differences.append(found.low <= 0.66 <= found.high)
    assert 0.89 <= np.mean(rates) <= 0.99 and 0.89 <= np.mean(differences) <= 0.99
    each = [replace(found, episode=found.pair) for found in some]  # as if they were independent
    narrow = summarise_method(each).rate
    assert rate.mean == narrow.mean and rate.high - rate.low > 1.8 * (narrow.high - narrow.low)


def test_the_design_effect_of_known_groups() -> None:
    values = [0.0, 1.0, 1.0, 0.0, 1.0]
    assert design_effect(values, range(5)) == pytest.approx(1.0)  # a group each
    thrice = design_effect(np.repeat(values, 3).tolist(), np.repeat(range(5), 3).tolist())
    assert thrice == pytest.approx(3 * (5 / 4) / (15 / 14))  # copies add nothing
    assert design_effect([0.0, 1.0], [0, 0]) == 1.0  # one group gives no estimate
    assert design_effect([1.0, 1.0], [0, 1]) == 1.0  # nor does what never differs
    assert design_effect([0.0, 1.0, 0.0, 1.0], [0, 0, 1, 1]) == 1.0  # unlike within: no less than 1


def test_on_different_pairs_a_difference_is_wider() -> None:
    ours = [row(pair=k, success=True) for k in range(100)]
    theirs = [row(pair=k, success=k % 2 == 0) for k in range(100)]
    apart, paired = unpaired_difference(ours, theirs), paired_difference(ours, theirs)
    assert apart.mean == 0.5 and 0.38 < apart.low < 0.42 < 0.55 < apart.high < 0.61
    # Success rises and falls together: only pairs tell that the difference is 0.1 all the same.
    hard = [row(pair=k, success=k < 50) for k in range(100)]
    harder = [row(pair=k, success=k < 40) for k in range(100)]
    apart, paired = unpaired_difference(hard, harder), paired_difference(hard, harder)
    assert paired.low > 0 > apart.low
    assert apart.mean == pytest.approx(0.1) and paired.mean == pytest.approx(0.1)


def test_unpaired_intervals_cover_the_truth_as_often_as_they_state() -> None:
    rng = np.random.default_rng(0)
    hits = []
    for _ in range(400):
        ours = [row(pair=k, success=bool(rng.random() < 0.9)) for k in range(40)]
        theirs = [row(pair=k, success=bool(rng.random() < 0.7)) for k in range(60)]
        found = unpaired_difference(ours, theirs)
        hits.append(found.low <= 0.2 <= found.high)
    assert 0.92 <= np.mean(hits) <= 0.99


def test_jerk_is_compared_where_both_have_it() -> None:
    ours = [row(pair=k, jerk=0.1 + 0.01 * k) for k in range(10)]
    theirs = [row(pair=k, jerk=0.5 + 0.02 * k) for k in range(9)] + [row(pair=9, jerk=None)]
    found = jerk_difference(theirs, ours)
    each = 0.4 + 0.01 * np.arange(9)
    half = 1.959964 * each.std(ddof=1) / 3
    assert found is not None and found.mean == pytest.approx(each.mean())
    assert (found.low, found.high) == pytest.approx((each.mean() - half, each.mean() + half))
    assert jerk_difference(theirs[:1], ours[:1]) is None  # one pair does not tell how sure it is
    assert jerk_difference(theirs[9:], ours) is None
