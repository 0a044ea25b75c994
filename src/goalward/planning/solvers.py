"""Solvers: searches for the plans of least cost, as frozen settings with a pure call.

All of them follow stable-worldmodel; their defaults are the settings of the paper's comparison of
solver families.

Shapes: B environments, S candidate plans of each, K of them elites, H model steps, A numbers of an
action block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from goalward.core.config import require_at_least, require_types

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


@dataclass(frozen=True, kw_only=True, slots=True)
class CEM:
    """The cross-entropy method, the paper's baseline; see `Solver`.

    As in stable-worldmodel, the mean is one of the candidates, the elites' standard deviation is
    the unbiased one, plans are not clipped, and the last mean is returned without being costed.
    """

    kind: Literal["cem"] = "cem"
    num_samples: int = 300
    num_iters: int = 30
    num_elites: int = 30
    init_std: float = 1.0  # of z-scored actions; stable-worldmodel calls it `var_scale`

    def __post_init__(self) -> None:
        require_sampling(self, least_elites=2)  # one has no standard deviation

    @torch.inference_mode()
    def __call__(self, cost: CostFn, mean_BHA: Tensor, *, noise: NoiseFn) -> Plan:
        """Search; see `Solver`."""
        std_BHA = torch.full_like(mean_BHA, self.init_std)
        for _ in range(self.num_iters):
            plans_BSHA = sample_plans(mean_BHA, std_BHA, noise(self.num_samples))
            elites_BKHA, costs_BK = best_plans(plans_BSHA, cost(plans_BSHA), self.num_elites)
            mean_BHA, std_BHA = elites_BKHA.mean(dim=1), elites_BKHA.std(dim=1)
        return Plan(actions=mean_BHA, cost=costs_BK.mean(dim=1))


@dataclass(frozen=True, kw_only=True, slots=True)
class ICEM:
    """CEM with coloured noise, kept elites and a momentum; see `Solver`.

    As in stable-worldmodel, which leaves out parts of the publication: the number of samples does
    not shrink, elites are kept within a search but not from one to the next, and the last mean is
    returned, not the best plan.

    stable-worldmodel clips candidates, which are z-scored, to the bounds of raw actions: to one
    standard deviation where the bounds are -1 and 1, as in all four tasks. `clip` does the same,
    so that results compare; None leaves candidates as they are.
    """

    kind: Literal["icem"] = "icem"
    num_samples: int = 300
    num_iters: int = 30
    num_elites: int = 30
    init_std: float = 1.0  # of z-scored actions; stable-worldmodel calls it `var_scale`
    noise_beta: float = 2.0  # the noise's power falls with frequency to this power; 0 is white
    momentum: float = 0.1  # share of the old mean and std; the publication's alpha
    num_kept: int = 5  # elites that are candidates again; stable-worldmodel's `n_elite_keep`
    clip: float | None = 1.0  # greatest size of a candidate's numbers

    def __post_init__(self) -> None:
        require_sampling(self, least_elites=2)
        require_at_least(self, 0, "noise_beta", "momentum", "num_kept")
        if self.momentum >= 1:
            raise ValueError(f"momentum must lie in [0, 1), got {self.momentum}")
        most = min(self.num_elites, self.num_samples - 1)  # the mean has a place as well
        if self.num_kept > most:
            raise ValueError(f"num_kept must lie in 0 .. {most}, got {self.num_kept}")
        if self.clip is not None and self.clip <= 0:
            raise ValueError(f"clip must be above 0, got {self.clip}")

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


@dataclass(frozen=True, kw_only=True, slots=True)
class MPPI:
    """Weights of exp(-cost / temperature) over the elites; see `Solver`.

    As in stable-worldmodel, only the elites are weighted, the mean is one of the candidates, the
    standard deviation never shrinks, plans are not clipped, and the last mean is returned without
    being costed. `num_elites = num_samples` weights every plan.
    """

    kind: Literal["mppi"] = "mppi"
    num_samples: int = 300
    num_iters: int = 30
    num_elites: int = 30
    init_std: float = 1.0  # of z-scored actions; stable-worldmodel calls it `var_scale`
    temperature: float = 0.5  # in units of the cost

    def __post_init__(self) -> None:
        require_sampling(self, least_elites=1)
        if self.temperature <= 0:
            raise ValueError(f"temperature must be above 0, got {self.temperature}")

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Gradient:
    """Gradient descent from the mean and from plans around it; see `Solver`.

    The cost must be differentiable with respect to plans.

    As in stable-worldmodel with SGD, plans are not clipped, and the result is the plan of least
    cost before the last step, after that step. stable-worldmodel's noise between steps is left
    out: it is 0 in the paper.
    """

    kind: Literal["gradient"] = "gradient"
    num_samples: int = 2
    num_iters: int = 30
    init_std: float = 1.0  # of the plans around the mean, which is the first plan itself
    lr: float = 1.0

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 1, "num_samples", "num_iters")
        if min(self.init_std, self.lr) <= 0:
            raise ValueError(f"init_std and lr must be above 0, got {self.init_std} and {self.lr}")

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


def require_sampling(config: CEM | ICEM | MPPI, *, least_elites: int) -> None:
    """Refuse settings that no solver by sampling can work with."""
    require_types(config)
    require_at_least(config, 1, "num_samples", "num_iters")
    if not least_elites <= config.num_elites <= config.num_samples:
        raise ValueError(
            f"num_elites must lie in {least_elites} .. num_samples = {config.num_samples}, "
            f"got {config.num_elites}"
        )
    if config.init_std <= 0:
        raise ValueError(f"init_std must be above 0, got {config.init_std}")


AnySolver = CEM | ICEM | MPPI | Gradient
SOLVERS: dict[str, type[AnySolver]] = {"cem": CEM, "icem": ICEM, "mppi": MPPI, "gradient": Gradient}
