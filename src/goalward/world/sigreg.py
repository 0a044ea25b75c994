"""SIGReg, the sketched isotropic-Gaussian regulariser of LeJEPA (arXiv 2511.08544).

For a unit direction u, the Epps-Pulley statistic compares the characteristic function of the
batch's projections x_b = <z_b, u> with that of a standard normal variable, N(t) = exp(-t²/2):

    EP(u) = B ∫ |1/B Σ_b exp(i t x_b) - N(t)|² N(t) dt
          = 2B ∫₀^∞ [(1/B Σ_b cos(t x_b) - N(t))² + (1/B Σ_b sin(t x_b))²] N(t) dt,

since the integrand is even. The integral is taken by the trapezoidal rule on `knots` points of
[0, 3]. SIGReg is the mean of EP over random directions (and over the time steps of a window):
if all projections are standard normal, the latents are isotropic Gaussian (Cramér-Wold).
"""

from __future__ import annotations

import torch
from torch import Tensor

from goalward.world.replicas import mean_over_replicas, num_replicas

KNOTS = 17
LIMIT = 3.0  # the integral's upper end; N(3) = 0.011


def sample_directions(dim: int, number: int, rng: torch.Generator) -> Tensor:
    """Unit vectors, uniform on the sphere, drawn on the generator's device: (dim, number)."""
    directions_DP = torch.randn(dim, number, generator=rng, device=rng.device)
    return directions_DP / directions_DP.norm(dim=0)


def sigreg(z_TBD: Tensor, directions_DP: Tensor, *, knots: int = KNOTS) -> Tensor:
    """The statistic's mean over directions and time: a scalar, about 1.05 for Gaussian ones.

    In a distributed run B counts the batch of all replicas: the characteristic functions are
    averaged over them, so that N replicas of B/N windows give what one of B gives, in value and,
    after the usual averaging of gradients, in gradient. All replicas must pass equal shapes and
    the same directions.
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

    Knots are equally spaced, so each pair follows from the last by a rotation.

    That takes two transcendental functions an element instead of 2 * knots, and nothing of size
    (T, B, P, K) is ever stored.
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
