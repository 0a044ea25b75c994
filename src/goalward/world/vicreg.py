"""The variance and covariance terms of VICReg (arXiv 2105.04906), an alternative to SIGReg."""

from __future__ import annotations

import torch
from torch import Tensor

from goalward.world.replicas import mean_over_replicas

EPS = 1e-4  # keeps the root's slope finite where a latent number is constant
VARIANCE_WEIGHT = 25.0  # relative to the covariance term, as in VICReg


def vicreg(z_TBD: Tensor) -> Tensor:
    """25 · mean_d max(0, 1 - std_d) + Σ_{i≠j} cov_ij² / D, averaged over time: a scalar.

    Moments are averaged over replicas, so that N replicas of B/N windows equal one of B.
    """
    dim = z_TBD.shape[-1]
    mean_T1D = mean_over_replicas(z_TBD.mean(1, keepdim=True))
    centred_TBD = z_TBD - mean_T1D
    moments_TDD = centred_TBD.transpose(1, 2) @ centred_TBD / z_TBD.shape[1]
    cov_TDD = mean_over_replicas(moments_TDD)
    variance_TD = cov_TDD.diagonal(dim1=1, dim2=2)
    spread = torch.relu(1 - (variance_TD + EPS).sqrt()).mean()
    off_diagonal = (cov_TDD.square().sum() - variance_TD.square().sum()) / (dim * len(z_TBD))
    return VARIANCE_WEIGHT * spread + off_diagonal
