"""Exact t-SNE (van der Maaten & Hinton, JMLR 2008) for up to about 2,000 points.

It starts from the two principal components instead of noise, so that there is nothing to seed and
the picture keeps the large distances too (Kobak & Berens, 2019).

Shapes: N points of D numbers; P, Q and the distances are (N, N).
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from goalward.core.arrays import Array

MIN_POINTS = 4
EARLY, LATE = (12.0, 0.5), (1.0, 0.8)  # exaggeration of P, which lets clusters form; momentum
EXAGGERATED_STEPS = 250  # or a third of all, if that is less
MIN_GAIN = 0.01
START_SPREAD = 1e-4  # standard deviation of the first coordinate at the start
BEND = 0.01  # of the start, lest collinear points can never leave their line
BISECTIONS = 50
LOG2_PRECISION = 40.0  # precisions are searched in 2^-40 .. 2^40 of 1 / mean squared distance
CHUNK = 64  # rows of a matrix that are worked on at once
TINY = torch.finfo(torch.float64).tiny


def tsne(points_ND: Array, perplexity: float = 30.0, steps: int = 750) -> Array:
    """Embed points in the plane so that neighbours stay neighbours; no draw is random.

    Args:
        points_ND: (N, D) with N at least 4; time and memory grow with N².
        perplexity: Number of neighbours that count; lowered to (N - 1) / 3 for few points.
        steps: Steps of gradient descent.

    Returns:
        (N, 2) float64, centred.

    Raises:
        ValueError: Too few points, NaN among them, or parameters below 1.
    """
    _check(points_ND, perplexity, steps)
    points = torch.as_tensor(points_ND, dtype=torch.float64)
    points = points - points.mean(dim=0)
    p_NN = affinities(points, min(perplexity, (len(points) - 1) / 3))
    return _descend(p_NN, _start(points), steps).numpy()


def affinities(points_ND: Tensor, perplexity: float) -> Tensor:
    """Joint probabilities p_ij = (p_j|i + p_i|j) / 2N: (N, N), symmetric, of sum 1."""
    conditional_NN = conditionals(points_ND, perplexity)
    return (conditional_NN + conditional_NN.T) / (2 * len(points_ND))


def conditionals(points_ND: Tensor, perplexity: float) -> Tensor:
    """Probabilities p_j|i, eq. 1, whose rows have the given perplexity: (N, N).

    The precision β_i of each row is bisected until its entropy is log(perplexity); all rows at
    once.
    """
    square_NN = torch.cdist(points_ND, points_ND).square()
    square_NN /= square_NN.mean().clamp_min(TINY)
    low = torch.full((len(points_ND), 1), -LOG2_PRECISION, dtype=torch.float64)
    high = -low
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        too_even = _entropy(_softmax(square_NN, middle)) > math.log(perplexity)
        low, high = torch.where(too_even, middle, low), torch.where(too_even, high, middle)
    return _softmax(square_NN, (low + high) / 2)


def _check(points_ND: Array, perplexity: float, steps: int) -> None:
    if points_ND.ndim != 2 or len(points_ND) < MIN_POINTS:
        raise ValueError(
            f"t-SNE needs an array (N, D) of at least {MIN_POINTS} points, not {points_ND.shape}"
        )
    if not np.isfinite(points_ND).all():
        raise ValueError("t-SNE was given NaN or infinity; leave those points out")
    if perplexity < 1 or steps < 1:
        raise ValueError(
            f"t-SNE's perplexity and steps must be at least 1, got {perplexity} and {steps}"
        )


def _softmax(square_NN: Tensor, log2_precision_N1: Tensor) -> Tensor:
    """p_j|i = softmax over j ≠ i of -β_i d_ij²."""
    logits_NN = square_NN * -torch.exp2(log2_precision_N1)
    return logits_NN.fill_diagonal_(-torch.inf).softmax(dim=1)


def _entropy(p_NN: Tensor) -> Tensor:
    return torch.special.entr(p_NN).sum(dim=1, keepdim=True)


def _start(points_ND: Tensor) -> Tensor:
    """The first two principal components of centred points, scaled to a small spread: (N, 2)."""
    padded = F.pad(points_ND, (0, 1))  # a single column has no second component
    _, _, axes = torch.linalg.svd(padded, full_matrices=False)
    plane_N2 = padded @ axes[:2].T
    # The sign of an axis is arbitrary; let its farthest point lie on the positive side.
    farthest = plane_N2.gather(0, plane_N2.abs().argmax(dim=0, keepdim=True))
    plane_N2 = torch.where(farthest < 0, -plane_N2, plane_N2)
    plane_N2 /= plane_N2[:, 0].std().clamp_min(TINY)
    plane_N2[:, 1] += BEND * plane_N2[:, 0].square()
    return plane_N2 * START_SPREAD


def _descend(p_NN: Tensor, y_N2: Tensor, steps: int) -> Tensor:
    """Gradient descent with momentum and a gain for each coordinate, the paper's section 3.4.

    A row of P sums to 1 / N, so eq. 5 moves a point by about 4 * exaggeration / N of its distance;
    the inverse is the largest rate that does not overshoot (Belkina et al., 2019).
    """
    velocity, gains = torch.zeros_like(y_N2), torch.ones_like(y_N2)
    early = min(EXAGGERATED_STEPS, steps // 3)
    for step in range(steps):
        exaggeration, momentum = EARLY if step < early else LATE
        gradient = kl_gradient(p_NN, y_N2, exaggeration)
        same_way = (gradient > 0) == (velocity > 0)  # velocity points against the gradient
        gains = torch.where(same_way, gains * 0.8, gains + 0.2).clamp_min(MIN_GAIN)
        rate = len(y_N2) / (4 * exaggeration)
        velocity = momentum * velocity - rate * gains * gradient
        y_N2 = y_N2 + velocity
    return y_N2 - y_N2.mean(dim=0)


def kl_gradient(p_NN: Tensor, y_N2: Tensor, exaggeration: float) -> Tensor:
    """4 Σ_j (p_ij - q_ij) (y_i - y_j) / (1 + |y_i - y_j|²), eq. 5: (N, 2).

    q_ij is w_ij = 1 / (1 + |y_i - y_j|²) over its sum, which is only known at the end: so the pull
    of p and the push of q are summed apart, over rows that fit the cache. w_ii = 1 moves nothing.
    """
    one_N1, square_N1 = torch.ones_like(y_N2[:, :1]), y_N2.square().sum(dim=1, keepdim=True)
    rows_N4 = torch.cat([-2 * y_N2, square_N1 + 1, one_N1], dim=1)
    columns_4N = torch.cat([y_N2, one_N1, square_N1], dim=1).T
    y1_N3 = torch.cat([y_N2, one_N1], dim=1)
    pulls, pushes, total = [], [], -float(len(y_N2))
    for p_CN, rows_C4 in zip(p_NN.split(CHUNK), rows_N4.split(CHUNK), strict=True):
        w_CN = (rows_C4 @ columns_4N).reciprocal_()
        total += float(w_CN.sum())
        pulls.append((p_CN * w_CN) @ y1_N3)
        pushes.append(w_CN.square_() @ y1_N3)
    sums_N3 = exaggeration * torch.cat(pulls) - torch.cat(pushes) / total
    return 4 * (sums_N3[:, 2:] * y_N2 - sums_N3[:, :2])
