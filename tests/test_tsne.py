"""t-SNE keeps neighbours together and strangers apart, the same way every time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from goalward.core.arrays import Array
from goalward.world.tsne import affinities, conditionals, kl_gradient, tsne


def distances(points: Array) -> Array:
    return np.linalg.norm(points[:, None] - points[None], axis=-1)


def arc(number: int, dim: int = 50) -> Array:
    """Points in order on three quarters of a circle, somewhere in `dim` dimensions."""
    turn = np.linspace(0, 1.5 * np.pi, number)
    plane = np.random.default_rng(0).normal(size=(2, dim))
    return np.stack([np.cos(turn), np.sin(turn)], axis=1) @ plane


def test_two_clusters_stay_apart() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(120, 20))
    points[60:, 0] += 12
    apart = distances(tsne(points))
    within = np.where(np.eye(60, dtype=bool), np.inf, apart[:60, :60]).min(axis=1)
    assert apart[:60, 60:].min() > 3 * np.median(within)
    nearest = np.where(np.eye(120, dtype=bool), np.inf, apart).argmin(axis=1)
    assert ((nearest < 60) == (np.arange(120) < 60)).all()


@pytest.mark.parametrize("number", [40, 200])
def test_neighbours_on_a_curve_stay_neighbours(number: int) -> None:
    apart = distances(tsne(arc(number)))
    np.fill_diagonal(apart, np.inf)
    steps = np.abs(apart.argmin(axis=1) - np.arange(number))
    assert steps.max() <= 3
    assert np.median(steps) == 1


@pytest.mark.parametrize("dim", [1, 3])
def test_points_on_a_line_keep_their_order(dim: int) -> None:
    line = np.linspace(0, 1, 60)[:, None] * np.ones(dim)
    order = np.argsort(tsne(line)[:, 0])
    order = order if order[0] < order[-1] else order[::-1]
    assert np.abs(order - np.arange(60)).max() <= 1


def test_two_calls_give_the_same_bytes_and_draw_nothing() -> None:
    points = np.random.default_rng(3).normal(size=(50, 6))
    before = torch.get_rng_state()
    first, second = tsne(points, steps=100), tsne(points, steps=100)
    assert first.tobytes() == second.tobytes()
    assert torch.equal(torch.get_rng_state(), before)


def test_the_scale_of_the_points_does_not_matter() -> None:
    points = np.random.default_rng(3).normal(size=(50, 6))
    scaled = tsne(1024 * points, steps=50)  # a power of two: no rounding
    np.testing.assert_array_equal(tsne(points, steps=50), scaled)


@pytest.mark.parametrize("perplexity", [2.0, 20.0, 60.0])
def test_every_row_has_the_perplexity_asked_for(perplexity: float) -> None:
    points = np.random.default_rng(0).normal(size=(100, 5))
    points[:20] *= 50  # sparse and dense regions
    p = conditionals(torch.as_tensor(points), perplexity)
    np.testing.assert_allclose(torch.special.entr(p).sum(dim=1).exp(), perplexity, rtol=1e-6)


def test_joint_probabilities_are_symmetric_and_sum_to_one() -> None:
    p = affinities(torch.as_tensor(np.random.default_rng(0).normal(size=(100, 5))), 20.0)
    assert torch.equal(p, p.T)
    assert float(p.sum()) == pytest.approx(1.0)
    assert not p.diagonal().any()


def test_equal_distances_share_the_probability_equally() -> None:
    p = affinities(torch.eye(10, dtype=torch.float64), 3.0)
    expected = (1 - np.eye(10)) / 90
    np.testing.assert_allclose(p.numpy(), expected, atol=1e-12)


def test_the_gradient_is_that_of_the_kl_divergence() -> None:
    rng = np.random.default_rng(0)
    number = 150  # more than one chunk of rows
    p = affinities(torch.as_tensor(rng.normal(size=(number, 5))), 10.0)
    y = torch.as_tensor(rng.normal(size=(number, 2))).requires_grad_()
    w = (1 / (1 + (y[:, None] - y[None]).square().sum(dim=-1))) * (1 - torch.eye(number))
    q = w / w.sum()
    divergence = -torch.xlogy(p, q + torch.eye(number)).sum()  # up to P's own entropy
    (expected,) = torch.autograd.grad(divergence, y)
    torch.testing.assert_close(kl_gradient(p, y.detach(), 1.0), expected)


@pytest.mark.parametrize("number", [4, 5, 10])
def test_few_points_lower_the_perplexity(number: int) -> None:
    places = tsne(np.random.default_rng(0).normal(size=(number, 3)))
    assert places.shape == (number, 2)
    assert np.isfinite(places).all()


def test_points_that_are_all_the_same_give_finite_places() -> None:
    assert np.isfinite(tsne(np.ones((20, 5)))).all()


@pytest.mark.parametrize("shape", [(3, 5), (0, 5), (8,)])
def test_too_few_points_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="at least 4 points"):
        tsne(np.zeros(shape))


def test_nan_is_refused() -> None:
    points = np.ones((10, 2))
    points[4, 0] = np.nan
    with pytest.raises(ValueError, match="NaN or infinity"):
        tsne(points)


@pytest.mark.parametrize(("perplexity", "steps"), [(0.5, 10), (5.0, 0)])
def test_parameters_below_one_are_refused(perplexity: float, steps: int) -> None:
    with pytest.raises(ValueError, match="perplexity and steps must be at least 1"):
        tsne(np.ones((10, 2)), perplexity, steps)
