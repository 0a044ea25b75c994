"""Solvers: searches for the plans of least cost, as frozen settings with a pure call.

All of them follow stable-worldmodel; their defaults are the settings of the paper's comparison of
solver families.

Shapes: B environments, S candidate plans of each, K of them elites, H model steps, A numbers of an
action block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass
from inspect import isfunction
from typing import Literal, Protocol

import torch
from torch import Tensor

from goalward.core.config import (
    AtLeastTwo,
    Fraction,
    NonNegative,
    NonNegativeFloat,
    Positive,
    PositiveFloat,
    config,
)
from goalward.core.registry import Registry

CostFn = Callable[[Tensor], Tensor]  # plans (B, S, H, A) to costs (B, S)
NoiseFn = Callable[[int], Tensor]  # S to standard normal numbers (B, S, H, A)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What a solver found."""

    actions: Tensor  # (B, H, A)
    cost: Tensor  # (B,): mean of the last elites, or of the chosen plan before its last step


class Solver(Protocol):
    """A search for plans of low cost."""

    def __call__(self, cost: CostFn, mean_BHA: Tensor, *, noise: NoiseFn) -> Plan:
        """Search around a plan for each environment.

        Args:
            cost: What to minimise. A plan's cost must not depend on the other environments.
            mean_BHA: Where to start, such as the rest of the previous plan; not changed.
            noise: The only source of random numbers.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class SeededNoise:
    """Noise from one generator an environment, so that no environment changes another's numbers.

    The generators are on the CPU: a plan on a GPU starts from the same numbers.
    """

    generators: Sequence[torch.Generator]  # B of them
    like: Tensor  # (B, H, A): shape and device of the plans

    def __call__(self, num_samples: int) -> Tensor:
        """The next numbers (B, num_samples, H, A)."""
        shape = (num_samples, *self.like.shape[1:])
        numbers = [torch.randn(shape, generator=generator) for generator in self.generators]
        return torch.stack(numbers).to(self.like.device)


def sample_plans(mean_BHA: Tensor, std_BHA: Tensor, noise_BSHA: Tensor) -> Tensor:
    """Candidates (B, S, H, A) from standard normal numbers; the first one is the mean itself."""
    plans_BSHA = noise_BSHA * std_BHA[:, None] + mean_BHA[:, None]
    plans_BSHA[:, 0] = mean_BHA
    return plans_BSHA


def best_plans(plans_BSHA: Tensor, costs_BS: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """The candidates (B, K, H, A) of least cost, best first, and their costs (B, K)."""
    costs_BK, chosen_BK = costs_BS.topk(number, dim=1, largest=False)
    rows_B1 = torch.arange(len(plans_BSHA), device=plans_BSHA.device)[:, None]
    return plans_BSHA[rows_B1, chosen_BK], costs_BK


@config
class Sampling:
    """What the solvers share that sample plans and keep the best of them."""

    kind: str
    num_samples: Positive = 300
    num_iters: Positive = 30
    num_elites: AtLeastTwo = 30  # one has no standard deviation
    init_std: PositiveFloat = 1.0  # of z-scored actions; stable-worldmodel calls it `var_scale`

    def __post_init__(self) -> None:
        if self.num_elites > self.num_samples:
            raise ValueError(
                f"num_elites must be at most num_samples = {self.num_samples}, got "
                f"{self.num_elites}"
            )


@config
class CEM(Sampling):
    """The cross-entropy method, the paper's baseline; see `Solver`.

    As in stable-worldmodel, the mean is one of the candidates, the elites' standard deviation is
    the unbiased one, plans are not clipped, and the last mean is returned without being costed.
    """

    kind: Literal["cem"] = "cem"

    @torch.inference_mode()
    def __call__(self, cost: CostFn, mean_BHA: Tensor, *, noise: NoiseFn) -> Plan:
        """Search; see `Solver`."""
        std_BHA = torch.full_like(mean_BHA, self.init_std)
        for _ in range(self.num_iters):
            plans_BSHA = sample_plans(mean_BHA, std_BHA, noise(self.num_samples))
            elites_BKHA, costs_BK = best_plans(plans_BSHA, cost(plans_BSHA), self.num_elites)
            mean_BHA, std_BHA = elites_BKHA.mean(dim=1), elites_BKHA.std(dim=1)
        return Plan(actions=mean_BHA, cost=costs_BK.mean(dim=1))


@config
class ICEM(Sampling):
    """CEM with coloured noise, kept elites and a momentum; see `Solver`.

    As in stable-worldmodel, which leaves out parts of the publication: the number of samples does
    not shrink, elites are kept within a search but not from one to the next, and the last mean is
    returned, not the best plan.

    stable-worldmodel clips candidates, which are z-scored, to the bounds of raw actions: to one
    standard deviation where the bounds are -1 and 1, as in all four tasks. `clip` does the same
    for comparable results; None leaves candidates as they are.
    """

    kind: Literal["icem"] = "icem"
    noise_beta: NonNegativeFloat = 2.0  # power falls with frequency to this power; 0 is white
    momentum: Fraction = 0.1  # share of the old mean and std; the publication's alpha
    num_kept: NonNegative = 5  # elites that are candidates again; theirs is `n_elite_keep`
    clip: PositiveFloat | None = 1.0  # largest absolute value of a candidate's numbers

    def __post_init__(self) -> None:
        Sampling.__post_init__(self)
        most = min(self.num_elites, self.num_samples - 1)  # the mean has a place as well
        if self.num_kept > most:
            raise ValueError(f"num_kept must be at most {most}, got {self.num_kept}")

    @torch.inference_mode()
    def __call__(self, cost: CostFn, mean_BHA: Tensor, *, noise: NoiseFn) -> Plan:
        """Search; see `Solver`."""
        std_BHA = torch.full_like(mean_BHA, self.init_std)
        kept_BKHA = mean_BHA[:, None][:, :0]
        for _ in range(self.num_iters):
            noise_BSHA = coloured(noise(self.num_samples), self.noise_beta)
            plans_BSHA = sample_plans(mean_BHA, std_BHA, noise_BSHA)
            plans_BSHA[:, 1 : 1 + kept_BKHA.shape[1]] = kept_BKHA
            if self.clip is not None:
                plans_BSHA = plans_BSHA.clamp(-self.clip, self.clip)
            elites_BKHA, costs_BK = best_plans(plans_BSHA, cost(plans_BSHA), self.num_elites)
            kept_BKHA = elites_BKHA[:, : self.num_kept]
            # lerp(old, new, weight) is (1 - weight) old + weight new.
            mean_BHA = mean_BHA.lerp(elites_BKHA.mean(dim=1), 1 - self.momentum)
            std_BHA = std_BHA.lerp(elites_BKHA.std(dim=1), 1 - self.momentum)
        return Plan(actions=mean_BHA, cost=costs_BK.mean(dim=1))


def coloured(white_BSHA: Tensor, beta: float) -> Tensor:
    """Noise with power proportional to 1 / frequency^beta, from white noise.

    Each sequence is scaled to a standard deviation of 1 over its own H steps, as in
    stable-worldmodel. A single step has no frequencies and stays as it is.
    """
    steps = white_BSHA.shape[-2]
    if steps == 1:
        return white_BSHA
    frequencies_F = torch.fft.rfftfreq(steps, device=white_BSHA.device)
    frequencies_F[0] = frequencies_F[1]  # the constant part counts as the lowest frequency
    scale_F1 = frequencies_F.pow(-beta / 2)[:, None]
    spectrum_BSFA = torch.fft.rfft(white_BSHA, dim=-2) * scale_F1
    noise_BSHA = torch.fft.irfft(spectrum_BSFA, n=steps, dim=-2)
    return noise_BSHA / noise_BSHA.std(dim=-2, keepdim=True).clamp(min=1e-8)


@config
class MPPI(Sampling):
    """Weights of exp(-cost / temperature) over the elites; see `Solver`.

    As in stable-worldmodel, only the elites are weighted, the mean is one of the candidates, the
    standard deviation never shrinks, plans are not clipped, and the last mean is returned without
    being costed. `num_elites = num_samples` weights every plan.
    """

    kind: Literal["mppi"] = "mppi"
    num_elites: Positive = 30
    temperature: PositiveFloat = 0.5  # in units of the cost

    @torch.inference_mode()
    def __call__(self, cost: CostFn, mean_BHA: Tensor, *, noise: NoiseFn) -> Plan:
        """Search; see `Solver`."""
        std_BHA = torch.full_like(mean_BHA, self.init_std)
        for _ in range(self.num_iters):
            plans_BSHA = sample_plans(mean_BHA, std_BHA, noise(self.num_samples))
            elites_BKHA, costs_BK = best_plans(plans_BSHA, cost(plans_BSHA), self.num_elites)
            weights_BK = torch.softmax(-costs_BK / self.temperature, dim=1)
            mean_BHA = (weights_BK[..., None, None] * elites_BKHA).sum(dim=1)
        return Plan(actions=mean_BHA, cost=costs_BK.mean(dim=1))


@config
class Gradient:
    """Gradient descent from the mean and from plans around it; see `Solver`.

    The cost must be differentiable with respect to plans.

    As in stable-worldmodel with SGD, plans are not clipped, and the result is the plan of least
    cost before the last step, after that step. stable-worldmodel's noise between steps is left
    out: it is 0 in the paper.
    """

    kind: Literal["gradient"] = "gradient"
    num_samples: Positive = 2
    num_iters: Positive = 30
    init_std: PositiveFloat = 1.0  # of the plans around the mean, which is the first plan itself
    lr: PositiveFloat = 1.0

    def __call__(self, cost: CostFn, mean_BHA: Tensor, *, noise: NoiseFn) -> Plan:
        """Search; see `Solver`."""
        # The caller may compute without gradients.
        with torch.inference_mode(False), torch.enable_grad():
            others_BSHA = mean_BHA[:, None] + self.init_std * noise(self.num_samples - 1)
            plans_BSHA = torch.cat([mean_BHA[:, None], others_BSHA], dim=1)
            for _ in range(self.num_iters):
                plans_BSHA = plans_BSHA.detach().requires_grad_()
                costs_BS = cost(plans_BSHA)
                # Each cost depends on its own plan alone, so that the sum's gradient has them all.
                (slopes_BSHA,) = torch.autograd.grad(costs_BS.sum(), plans_BSHA)
                plans_BSHA = plans_BSHA - self.lr * slopes_BSHA
            # A plan that has diverged has a cost of NaN, which counts as the greatest.
            best_B1HA, least_B1 = best_plans(plans_BSHA.detach(), costs_BS.detach(), 1)
        return Plan(actions=best_B1HA[:, 0], cost=least_B1[:, 0])


def is_solver(thing: object) -> bool:
    """Whether something is a class of settings whose instances can be called."""
    return isinstance(thing, type) and is_dataclass(thing) and isfunction(thing.__call__)


SOLVERS: Registry[type[Solver]] = Registry(
    "solver",
    {
        "cem": "goalward.planning.solvers:CEM",
        "icem": "goalward.planning.solvers:ICEM",
        "mppi": "goalward.planning.solvers:MPPI",
        "gradient": "goalward.planning.solvers:Gradient",
    },
    is_solver,
)


def register_solver(name: str, solver_type: type[Solver]) -> None:
    """Lets a name stand for your solver, and for the controller that plans with it.

    It is a frozen dataclass of settings that is a `Solver`.
    """
    SOLVERS.register(name, solver_type)
