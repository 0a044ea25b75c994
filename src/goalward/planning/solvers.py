"""The solvers by name, with the settings of the paper's solver-family comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import torch
from torch import Tensor

from goalward.core.checks import describe, format_value, whole_number
from goalward.core.config import require_at_least, require_at_most, require_types
from goalward.core.tensors import require_tensor

# More can only be a mistake: a search that never ends, or more memory than there is.
MOST_SAMPLES = 2**20
MOST_ITERS = 10**6
MOST_HORIZON = 10**4  # steps ahead

CostFn = Callable[[Tensor], Tensor]  # plans (B, S, H, A) to costs (B, S)


class NoiseFn(Protocol):
    """A source of random numbers."""

    def __call__(self, num_samples: int, horizon: int, action_dim: int) -> Tensor:
        """The next standard normal numbers (B, num_samples, horizon, action_dim)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SeededDraws:
    """Draws from one generator an environment.

    What an environment draws does not depend on which others are planned for beside it. The
    generators are the CPU's, so that a plan on a GPU starts from the same numbers.
    """

    generators: Sequence[torch.Generator]  # B of them
    device: torch.device | str = "cpu"  # where they are wanted

    def __call__(self, num_samples: int, horizon: int, action_dim: int) -> Tensor:
        """See `Draws`; the generators move on."""
        shape = (num_samples, horizon, action_dim)
        draws = [torch.randn(shape, generator=generator) for generator in self.generators]
        return torch.stack(draws).to(self.device)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What a solver found."""

    actions: Tensor  # (B, H, A)
    cost: Tensor  # (B,) as of the last costing: of the elites on average, or of the plan chosen
    evaluations: int  # plans costed for each environment


class Solver(Protocol):
    """A search for plans of low cost."""

    def __call__(self, cost: CostFn, mean_BHA: Tensor, *, draws: NoiseFn) -> Plan:
        """Search around a plan for each environment.

        Args:
            cost: What to minimise. Environments must not influence each other in it.
            mean_BHA: Where to start, such as the rest of the plan before; not changed.
            draws: The only source of chance.
        """


def sample_plans(mean_BHA: Tensor, std_BHA: Tensor, noise_BSHA: Tensor) -> Tensor:
    """Candidates (B, S, H, A) from standard normal numbers; the first one is the mean itself."""
    plans_BSHA = noise_BSHA * std_BHA[:, None] + mean_BHA[:, None]
    plans_BSHA[:, 0] = mean_BHA
    return plans_BSHA


def require_start(mean_BHA: Tensor) -> None:
    """Refuse to search around what is no plan."""
    require_tensor(mean_BHA, "the mean", "B", "H", "A")
    if not mean_BHA.numel() or not mean_BHA.isfinite().all():
        raise ValueError(f"the mean must be finite and not empty, got {describe(mean_BHA)}")


def noise(draws: NoiseFn, num_samples: int, mean_BHA: Tensor) -> Tensor:
    """The next standard normal numbers (B, S, H, A).

    Raises:
        ValueError: they have another shape, such as one environment's for all.
    """
    if not callable(draws):
        raise ValueError(f"draws must be a function, got {format_value(draws)}")
    batch, *plan = mean_BHA.shape
    noise_BSHA = draws(num_samples, *plan)
    require_tensor(noise_BSHA, "draws", batch, num_samples, *plan)
    return noise_BSHA


def cost_of(cost: CostFn, plans_BSHA: Tensor) -> Tensor:
    """The candidates' costs (B, S).

    Raises:
        ValueError: the cost function gives another shape, no floats, or nothing but NaN.
    """
    if not callable(cost):
        raise ValueError(f"the cost must be a function, got {format_value(cost)}")
    costs_BS = cost(plans_BSHA)
    floats = isinstance(costs_BS, Tensor) and costs_BS.is_floating_point()
    if not floats or costs_BS.shape != plans_BSHA.shape[:2]:
        raise ValueError(
            f"the cost of plans {tuple(plans_BSHA.shape)} must be floats of shape "
            f"{tuple(plans_BSHA.shape[:2])}, got {describe(costs_BS)}"
        )
    if costs_BS.isnan().all(dim=1).any():
        raise ValueError(
            "all plans of an environment cost NaN: the search diverged, or its start or goal is NaN"
        )
    return costs_BS


def best_plans(plans_BSHA: Tensor, costs_BS: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """The candidates (B, K, H, A) of least cost, best first, and their costs (B, K)."""
    costs_BK, chosen_BK = costs_BS.topk(number, dim=1, largest=False)
    rows_B1 = torch.arange(len(plans_BSHA), device=plans_BSHA.device)[:, None]
    return plans_BSHA[rows_B1, chosen_BK], costs_BK


def require_sampling(
    *, num_samples: int, num_iters: int, num_elites: int, least_elites: int, init_std: float
) -> None:
    """Refuse settings that no solver by sampling can work with."""
    whole_number(num_iters, "num_iters", most=MOST_ITERS)
    whole_number(num_samples, "num_samples", most=MOST_SAMPLES)
    if not least_elites <= num_elites <= num_samples:
        raise ValueError(
            f"num_elites must lie in {least_elites} .. num_samples = {num_samples}, "
            f"got {num_elites}"
        )
    require_above_zero("init_std", init_std)


def require_above_zero(name: str, value: float) -> None:
    """Refuse a number that is not above 0, or not finite."""
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} must be finite and above 0, got {value}")


@dataclass(frozen=True, kw_only=True, slots=True)
class CEM:
    """The paper's baseline; see `Solver`.

    As in stable-worldmodel, the mean is a candidate of its own, the elites' standard deviation is
    the unbiased one, plans are not clipped, and the last mean is returned without being costed.
    """

    kind: Literal["cem"] = "cem"
    num_samples: int = 300
    num_iters: int = 30
    num_elites: int = 30
    init_std: float = 1.0  # of z-scored actions; stable-worldmodel calls it `var_scale`

    def __post_init__(self) -> None:
        require_types(self)
        require_sampling(
            num_samples=self.num_samples,
            num_iters=self.num_iters,
            num_elites=self.num_elites,
            least_elites=2,  # one has no standard deviation
            init_std=self.init_std,
        )

    @torch.inference_mode()
    def __call__(self, cost: CostFn, mean_BHA: Tensor, *, draws: NoiseFn) -> Plan:
        """Search; see `Solver`."""
        require_start(mean_BHA)
        std_BHA = torch.full_like(mean_BHA, self.init_std)
        costs_BK = mean_BHA.new_empty(0)
        for _ in range(self.num_iters):
            noise_BSHA = noise(draws, self.num_samples, mean_BHA)
            plans_BSHA = sample_plans(mean_BHA, std_BHA, noise_BSHA)
            costs_BS = cost_of(cost, plans_BSHA)
            elites_BKHA, costs_BK = best_plans(plans_BSHA, costs_BS, self.num_elites)
            mean_BHA, std_BHA = elites_BKHA.mean(dim=1), elites_BKHA.std(dim=1)
        evaluations = self.num_iters * self.num_samples
        return Plan(actions=mean_BHA, cost=costs_BK.mean(dim=1), evaluations=evaluations)


@dataclass(frozen=True, kw_only=True, slots=True)
class ICEM:
    """CEM with coloured noise, kept elites and a momentum; see `Solver`.

    As in stable-worldmodel, which leaves out parts of the publication: the number of samples does
    not shrink, elites are kept within a search but not from one to the next, and the last mean is
    returned, not the best plan.

    stable-worldmodel clips candidates, which are z-scored, to the bounds of raw actions: to one
    standard deviation where they are -1 and 1, as in all four tasks. `clip` does the same, so that
    results compare; None leaves candidates as they are.
    """

    kind: Literal["icem"] = "icem"
    num_samples: int = 300
    num_iters: int = 30
    num_elites: int = 30
    init_std: float = 1.0  # of z-scored actions; stable-worldmodel calls it `var_scale`
    noise_beta: float = 2.0  # the noise's power falls with frequency to this power; 0 is white
    momentum: float = 0.1  # share of the old mean and std; the paper's alpha
    num_kept: int = 5  # elites that are candidates again; stable-worldmodel's `n_elite_keep`
    clip: float | None = 1.0  # greatest size of a candidate's numbers

    def __post_init__(self) -> None:
        require_types(self)
        require_sampling(
            num_samples=self.num_samples,
            num_iters=self.num_iters,
            num_elites=self.num_elites,
            least_elites=2,  # one has no standard deviation
            init_std=self.init_std,
        )
        if not 0 <= self.noise_beta < float("inf"):
            raise ValueError(f"noise_beta must be finite and at least 0, got {self.noise_beta}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must lie in [0, 1), got {self.momentum}")
        most = min(self.num_elites, self.num_samples - 1)  # the mean has a place as well
        if not 0 <= self.num_kept <= most:
            raise ValueError(f"num_kept must lie in 0 .. {most}, got {self.num_kept}")
        if self.clip is not None:
            require_above_zero("clip", self.clip)

    @torch.inference_mode()
    def __call__(self, cost: CostFn, mean_BHA: Tensor, *, draws: NoiseFn) -> Plan:
        """Search; see `Solver`."""
        require_start(mean_BHA)
        std_BHA = torch.full_like(mean_BHA, self.init_std)
        kept_BKHA, costs_BK = mean_BHA[:, None][:, :0], mean_BHA.new_empty(0)
        for _ in range(self.num_iters):
            noise_BSHA = coloured(noise(draws, self.num_samples, mean_BHA), self.noise_beta)
            plans_BSHA = self._candidates(mean_BHA, std_BHA, noise_BSHA, kept_BKHA)
            costs_BS = cost_of(cost, plans_BSHA)
            elites_BKHA, costs_BK = best_plans(plans_BSHA, costs_BS, self.num_elites)
            kept_BKHA = elites_BKHA[:, : self.num_kept]
            # lerp(old, new, weight) is (1 - weight) old + weight new.
            mean_BHA = mean_BHA.lerp(elites_BKHA.mean(dim=1), 1 - self.momentum)
            std_BHA = std_BHA.lerp(elites_BKHA.std(dim=1), 1 - self.momentum)
        evaluations = self.num_iters * self.num_samples
        return Plan(actions=mean_BHA, cost=costs_BK.mean(dim=1), evaluations=evaluations)

    def _candidates(
        self, mean_BHA: Tensor, std_BHA: Tensor, noise_BSHA: Tensor, kept_BKHA: Tensor
    ) -> Tensor:
        """The mean, the kept elites, and then new ones."""
        plans_BSHA = sample_plans(mean_BHA, std_BHA, noise_BSHA)
        plans_BSHA[:, 1 : 1 + kept_BKHA.shape[1]] = kept_BKHA
        return plans_BSHA if self.clip is None else plans_BSHA.clamp(-self.clip, self.clip)


def coloured(white_BSHA: Tensor, beta: float) -> Tensor:
    """White noise made to last over time: power proportional to 1 / frequency^beta.

    Each sequence is scaled to a standard deviation of 1 over its own H steps, as stable-worldmodel
    does. A single step has no frequencies and stays as it is.
    """
    steps = white_BSHA.shape[-2]
    if steps == 1:
        return white_BSHA
    frequencies_F = torch.fft.rfftfreq(steps, device=white_BSHA.device)
    frequencies_F[0] = frequencies_F[1]  # what is constant counts as the lowest frequency
    scale_F1 = frequencies_F.pow(-beta / 2)[:, None]
    spectrum_BSFA = torch.fft.rfft(white_BSHA, dim=-2) * scale_F1
    noise_BSHA = torch.fft.irfft(spectrum_BSFA, n=steps, dim=-2)
    return noise_BSHA / noise_BSHA.std(dim=-2, keepdim=True).clamp(min=1e-8)


@dataclass(frozen=True, kw_only=True, slots=True)
class MPPI:
    """Weights of exp(-cost / temperature) over the elites; see `Solver`.

    As in stable-worldmodel, only the elites are weighted, the mean is a candidate of its own, the
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
        require_types(self)
        require_sampling(
            num_samples=self.num_samples,
            num_iters=self.num_iters,
            num_elites=self.num_elites,
            least_elites=1,
            init_std=self.init_std,
        )
        require_above_zero("temperature", self.temperature)

    @torch.inference_mode()
    def __call__(self, cost: CostFn, mean_BHA: Tensor, *, draws: NoiseFn) -> Plan:
        """Search; see `Solver`."""
        require_start(mean_BHA)
        std_BHA = torch.full_like(mean_BHA, self.init_std)
        costs_BK = mean_BHA.new_empty(0)
        for _ in range(self.num_iters):
            noise_BSHA = noise(draws, self.num_samples, mean_BHA)
            plans_BSHA = sample_plans(mean_BHA, std_BHA, noise_BSHA)
            costs_BS = cost_of(cost, plans_BSHA)
            elites_BKHA, costs_BK = best_plans(plans_BSHA, costs_BS, self.num_elites)
            weights_BK = torch.softmax(-costs_BK / self.temperature, dim=1)
            mean_BHA = (weights_BK[..., None, None] * elites_BKHA).sum(dim=1)
        evaluations = self.num_iters * self.num_samples
        return Plan(actions=mean_BHA, cost=costs_BK.mean(dim=1), evaluations=evaluations)


@dataclass(frozen=True, kw_only=True, slots=True)
class Gradient:
    """Plain descent from the mean and from plans around it; see `Solver`.

    The cost must be differentiable with respect to plans.

    As in stable-worldmodel with SGD, plans are not clipped, and the one returned is that of least
    cost before the last step, after that step. Its noise between steps is left out: it is 0 in the
    paper.
    """

    kind: Literal["gradient"] = "gradient"
    num_samples: int = 2
    num_iters: int = 30
    init_std: float = 1.0  # of the plans around the mean, which is the first plan itself
    lr: float = 1.0

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 1, "num_samples", "num_iters")
        require_at_most(self, MOST_SAMPLES, "num_samples")
        require_at_most(self, MOST_ITERS, "num_iters")
        require_above_zero("init_std", self.init_std)
        require_above_zero("lr", self.lr)

    def __call__(self, cost: CostFn, mean_BHA: Tensor, *, draws: NoiseFn) -> Plan:
        """Search; see `Solver`.

        Raises:
            ValueError: the cost is not differentiable.
        """
        require_start(mean_BHA)
        # The caller may compute without gradients.
        with torch.inference_mode(False), torch.enable_grad():
            noise_BSHA = noise(draws, self.num_samples - 1, mean_BHA)
            others_BSHA = mean_BHA[:, None] + self.init_std * noise_BSHA
            plans_BSHA = torch.cat([mean_BHA[:, None], others_BSHA], dim=1).detach()
            costs_BS = plans_BSHA.new_empty(0)
            for _ in range(self.num_iters):
                costs_BS, slopes_BSHA = _slopes(cost, plans_BSHA)
                plans_BSHA = plans_BSHA - self.lr * slopes_BSHA
            # A plan that has diverged has a cost of NaN, which counts as the greatest.
            best_B1HA, least_B1 = best_plans(plans_BSHA, costs_BS, 1)
        evaluations = self.num_iters * self.num_samples
        return Plan(actions=best_B1HA[:, 0], cost=least_B1[:, 0], evaluations=evaluations)


def _slopes(cost: CostFn, plans_BSHA: Tensor) -> tuple[Tensor, Tensor]:
    """Costs (B, S), and each cost's gradient with respect to its own plan (B, S, H, A)."""
    leaf_BSHA = plans_BSHA.detach().requires_grad_()
    costs_BS = cost_of(cost, leaf_BSHA)
    if not costs_BS.requires_grad:
        raise ValueError("the cost has no gradient; plan with a solver by sampling, such as cem")
    (slopes_BSHA,) = torch.autograd.grad(costs_BS.sum(), leaf_BSHA)
    return costs_BS.detach(), slopes_BSHA


AnySolver = CEM | ICEM | MPPI | Gradient
SolverName = Literal["cem", "icem", "mppi", "gradient"]
SOLVERS: tuple[SolverName, ...] = get_args(SolverName)

_TYPES: dict[str, type[AnySolver]] = {
    "cem": CEM,
    "icem": ICEM,
    "mppi": MPPI,
    "gradient": Gradient,
}


def make_solver(name: SolverName) -> AnySolver:
    """A solver with the paper's settings, which are stable-worldmodel's defaults.

    Raises:
        ValueError: there is no such solver.
    """
    if not isinstance(name, str) or name not in _TYPES:
        raise ValueError(f"solver {format_value(name)} is not one of {', '.join(SOLVERS)}")
    return _TYPES[name]()
