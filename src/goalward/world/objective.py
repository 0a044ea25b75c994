"""What LeWM is trained to minimise: the paper's Eq. (3), with exchangeable regularisers.

    L = mean |ẑ_{t+1} - z_{t+1}|² + λ · R(Z) + Σ_k u_k · mean |ẑ_k - z_k|²
        + w · mean |â_t - a_t|² + v · mean |x̂_t - x_t|²

Gradients flow through both sides of the prediction. R is SIGReg in the paper. The other terms are
not in the paper (weight 0 there). The open-loop term rolls the model out from the window's first
latent alone, as a plan does, and compares the k-th prediction. The last two are auxiliaries: small
networks read the action block from two successive latents (inverse dynamics), and a small picture
of the frame from one latent (reconstruction). A training of minutes on a CPU needs them: the first
makes latents keep what the actions move, the second what the frame shows.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor, nn

from goalward.core.config import NonNegativeFloat, config
from goalward.core.distributed import mean_over_replicas, num_replicas
from goalward.world.encoders import Pixels, Width
from goalward.world.lewm import LeWM

KNOTS = 17
LIMIT = 3.0  # the integral's upper end; N(3) = 0.011
EPS = 1e-4  # keeps the root's slope finite where a latent number is constant
VARIANCE_WEIGHT = 25.0  # relative to the covariance term, as in VICReg


def sample_directions(dim: int, number: int, rng: torch.Generator) -> Tensor:
    """Unit vectors, uniform on the sphere, drawn on the generator's device: (dim, number)."""
    directions_DP = torch.randn(dim, number, generator=rng, device=rng.device)
    return directions_DP / directions_DP.norm(dim=0)


def sigreg(z_TBD: Tensor, directions_DP: Tensor, *, knots: int = KNOTS) -> Tensor:
    """The statistic's mean over directions and time: a scalar, about 1.05 for Gaussian latents.

    In a distributed run the characteristic functions are averaged over the replicas. So N replicas
    of B/N windows give the value and, after the usual averaging, the gradient of one of B. All
    replicas must pass equal shapes and the same directions.
    """
    means_TPK2 = mean_over_replicas(_BatchMeans.apply((z_TBD @ directions_DP).float(), knots))
    t_K = torch.linspace(0.0, LIMIT, knots, device=z_TBD.device)
    normal_K = torch.exp(-t_K.square() / 2)
    weights_K = torch.full_like(t_K, 2 * LIMIT / (knots - 1))
    weights_K[[0, -1]] /= 2
    cos_TPK, sin_TPK = means_TPK2.unbind(-1)
    error_TPK = (cos_TPK - normal_K).square() + sin_TPK.square()
    batch = z_TBD.shape[1] * num_replicas()
    return (error_TPK @ (weights_K * normal_K)).mean() * batch


class _BatchMeans(torch.autograd.Function):
    """Means over the batch of cos(t x) and sin(t x) at the knots: (T, B, P) to (T, P, K, 2).

    Knots are equally spaced, so each pair follows from the last by a rotation. That takes two
    transcendental functions an element instead of 2 * knots, and stores nothing of size
    (T, B, P, K).
    """

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x_TBP: Tensor, knots: int) -> Tensor:
        step = x_TBP * (LIMIT / (knots - 1))
        cos_1, sin_1 = step.cos(), step.sin()
        ctx.save_for_backward(cos_1, sin_1)
        ctx.knots = knots  # type: ignore[attr-defined]
        cos, sin = torch.ones_like(cos_1), torch.zeros_like(sin_1)
        means = [(cos.mean(-2), sin.mean(-2))]
        for _ in range(knots - 1):
            cos, sin = _rotate(cos, sin, cos_1, sin_1)
            means.append((cos.mean(-2), sin.mean(-2)))
        return torch.stack([torch.stack(pair, -1) for pair in means], -2)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> tuple[Tensor, None]:
        cos_1, sin_1 = ctx.saved_tensors  # type: ignore[attr-defined]
        knots: int = ctx.knots  # type: ignore[attr-defined]
        scale = LIMIT / (knots - 1) / cos_1.shape[-2]
        grad_cos, grad_sin = (grads[0] * scale).unbind(-1)
        cos, sin = cos_1, sin_1
        total = torch.zeros_like(cos_1)
        for k in range(1, knots):
            total.addcmul_(sin, (-k * grad_cos[..., None, :, k]))
            total.addcmul_(cos, (k * grad_sin[..., None, :, k]))
            cos, sin = _rotate(cos, sin, cos_1, sin_1)
        return total, None


def _rotate(cos: Tensor, sin: Tensor, cos_1: Tensor, sin_1: Tensor) -> tuple[Tensor, Tensor]:
    """The cosine and sine of the sum of two angles."""
    return (
        torch.addcmul(cos * cos_1, sin, sin_1, value=-1),
        torch.addcmul(sin * cos_1, cos, sin_1),
    )


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


@config
class ObjectiveConfig:
    """The terms' kinds and weights; the defaults are the public configuration's."""

    regulariser: Literal["sigreg", "vicreg", "none"] = "sigreg"
    regulariser_weight: NonNegativeFloat = 0.09  # λ
    projections: Width = 1024  # random directions of SIGReg
    knots: Annotated[int, Field(ge=2, le=2**16)] = KNOTS  # points of SIGReg's integral
    open_loop_weights: tuple[NonNegativeFloat, ...] = ()  # u, of 1, 2, ... model steps ahead
    inverse_dynamics_weight: NonNegativeFloat = 0.0  # w
    reconstruction_weight: NonNegativeFloat = 0.0  # v
    reconstruction_size: Pixels = 16  # pixels a side
    auxiliary_dim: Width = 512  # hidden numbers of the auxiliary networks


class Objective(nn.Module):
    """LeWM together with what only its training needs."""

    def __init__(self, model: LeWM, config: ObjectiveConfig) -> None:
        super().__init__()
        self.model, self.config = model, config
        dim, hidden = model.config.latent_dim, config.auxiliary_dim
        self.inverse_dynamics = self.reconstruction = None
        if config.inverse_dynamics_weight:
            self.inverse_dynamics = _head(2 * dim, hidden, model.config.block_dim)
        if config.reconstruction_weight:
            self.reconstruction = ReconstructionHead(dim, hidden, config.reconstruction_size)

    def forward(
        self, pixels_BTCHW: Tensor, actions_BTA: Tensor, directions_DP: Tensor
    ) -> dict[str, Tensor]:
        """The loss of windows of T frames with the T - 1 action blocks between them.

        After it come its terms, unweighted but for the open-loop term, and the mean standard
        deviation of latent numbers.
        """
        config, (batch, frames) = self.config, pixels_BTCHW.shape[:2]
        pixels_NCHW = pixels_BTCHW.flatten(0, 1)
        z_ND = self.model.encode(pixels_NCHW).float()
        z_BTD = z_ND.view(batch, frames, -1)
        prediction = self._prediction(z_BTD, actions_BTA)
        open_loop = self._open_loop(z_BTD, actions_BTA)
        with torch.autocast(z_ND.device.type, enabled=False):  # statistics need their digits
            regulariser = self._regulariser(z_BTD.transpose(0, 1), directions_DP)
        inverse = reconstruction = z_ND.new_zeros(())
        if self.inverse_dynamics is not None:
            pairs_BT2D = torch.cat([z_BTD[:, :-1], z_BTD[:, 1:]], dim=-1)
            inverse = (self.inverse_dynamics(pairs_BT2D) - actions_BTA).square().mean()
        if self.reconstruction is not None:
            reconstruction = self.reconstruction(z_ND, pixels_NCHW)
        loss = (
            prediction
            + open_loop
            + config.regulariser_weight * regulariser
            + config.inverse_dynamics_weight * inverse
            + config.reconstruction_weight * reconstruction
        )
        return {
            "loss": loss,
            "prediction": prediction,
            "open_loop": open_loop,
            "regulariser": regulariser,
            "inverse_dynamics": inverse,
            "reconstruction": reconstruction,
            "latent_std": z_ND.detach().std(0).mean(),
        }

    def _prediction(self, z_BTD: Tensor, actions_BTA: Tensor) -> Tensor:
        """The error one step ahead, in as many latents as the predictor sees."""
        steps = min(self.model.config.history, actions_BTA.shape[1])
        found_BTD = self.model.predict(z_BTD[:, :steps], actions_BTA[:, :steps])
        return (found_BTD - z_BTD[:, 1 : steps + 1]).square().mean()

    def _open_loop(self, z_BTD: Tensor, actions_BTA: Tensor) -> Tensor:
        """The weighted errors of a rollout from the first latent."""
        weights = self.config.open_loop_weights
        if not any(weights):
            return z_BTD.new_zeros(())
        found_BKD = self.model.rollout(z_BTD[:, :1], actions_BTA[:, : len(weights)])
        error_K = (found_BKD - z_BTD[:, 1 : len(weights) + 1]).square().mean((0, 2))
        return error_K @ error_K.new_tensor(weights)

    def _regulariser(self, z_TBD: Tensor, directions_DP: Tensor) -> Tensor:
        if self.config.regulariser == "sigreg":
            return sigreg(z_TBD, directions_DP, knots=self.config.knots)
        if self.config.regulariser == "vicreg":
            return vicreg(z_TBD)
        return z_TBD.new_zeros(())


class ReconstructionHead(nn.Module):
    """Reads a small picture of the frame from its latent, and measures the error.

    Pictures are in standard deviations from the data's mean picture, so that the error's scale
    does not depend on the task.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, dim: int, hidden: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.read = _head(dim, hidden, 3 * size**2)
        self.register_buffer("mean", torch.zeros(3 * size**2))
        self.register_buffer("std", torch.ones(()))

    def fit(self, pixels_NCHW: Tensor) -> None:
        """Take mean picture and spread from a sample of normalised frames."""
        small_ND = self._small(pixels_NCHW)
        self.mean.copy_(small_ND.mean(0))
        self.std.copy_((small_ND - self.mean).std().clamp_min(1e-3))

    def forward(self, z_ND: Tensor, pixels_NCHW: Tensor) -> Tensor:
        """The mean squared error: a scalar."""
        with torch.no_grad():
            truth_ND = (self._small(pixels_NCHW) - self.mean) / self.std
        return (self.read(z_ND) - truth_ND).square().mean()

    def _small(self, pixels_NCHW: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(pixels_NCHW, self.size).flatten(1)


def _head(inputs: int, hidden: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, outputs))
