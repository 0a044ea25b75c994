"""Measures of a latent space's geometry, on spaces whose geometry is known."""

from __future__ import annotations

import numpy as np
import pytest

from goalward.experiments.analyses import conditioning, effective_rank, isotropy, spectrum


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
