"""Analyses of latents and decisions, on cases whose answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from goalward.experiments.analyses import (
    conditioning,
    effective_rank,
    isotropy,
    latency_columns,
    spectrum,
)
from table_helpers import latency


def test_the_spectrum_is_that_of_the_covariance() -> None:
    rng = np.random.default_rng(0)
    turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    latents = 5 + (rng.normal(size=(200_000, 3)) * [3.0, 2.0, 1.0]) @ turn
    assert spectrum(latents) == pytest.approx([9, 4, 1], rel=0.02)


@pytest.mark.parametrize(
    ("variances", "even", "rank"),
    [
        ([1.0, 1.0, 1.0, 1.0], 1.0, 4.0),
        ([7.0, 0.0, 0.0, 0.0], 0.25, 1.0),
        ([2.0, 2.0, 0.0, 0.0], 0.5, 2.0),
    ],
)
def test_isotropy_and_effective_rank(variances: list[float], even: float, rank: float) -> None:
    assert isotropy(np.array(variances)) == pytest.approx(even)
    assert effective_rank(np.array(variances)) == pytest.approx(rank)


def test_conditioning_is_the_median_and_may_have_no_bound() -> None:
    good, bad = np.diag([2.0, 1.0]), np.diag([9.0, 1.0])
    blind = np.diag([1.0, 0.0])
    assert conditioning([good, good, bad]) == pytest.approx(2)
    assert conditioning([good, good, blind]) == pytest.approx(2)
    assert conditioning([good, blind, blind]) is None


def test_a_latency_is_beside_that_of_cem_and_the_papers_ratio() -> None:
    ours, cem = latency(2.0), latency(500.0)
    alone = latency_columns(ours, cem, 116.0)
    assert alone["ms a decision alone"] == alone["ms a plan alone"] == 2.0
    assert alone["CEM's time / its time alone"] == (250.0, 116.0)
    assert "MB alone" not in alone  # it was not measured
    many = latency_columns(replace(ours, environments=50, memory_mb=9.0), cem, None)
    assert many["MB in batches of 50"] == 9.0 and many["ms a decision in batches of 50"] == 2
