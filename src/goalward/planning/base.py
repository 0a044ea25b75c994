"""What a solver is: a pure function of a cost, the plan to start from, and random numbers.

Shapes: B environments, S candidate plans of each, H model steps, A numbers of an action block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from goalward.checks import described, shown, whole_number
from goalward.world.tensors import require_tensor

# More can only be a mistake: a search that never ends, or more memory than there is.
MOST_SAMPLES = 2**20
MOST_ITERS = 10**6
MOST_HORIZON = 10**4  # steps ahead

CostFn = Callable[[Tensor], Tensor]  # plans (B, S, H, A) to costs (B, S)


class Draws(Protocol):
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

    def __call__(self, cost: CostFn, mean_BHA: Tensor, *, draws: Draws) -> Plan:
        """Search around a plan for each environment.

        Args:
            cost: What to minimise. Environments must not influence each other in it.
            mean_BHA: Where to start, such as the rest of the plan before; not changed.
            draws: The only source of chance.
        """


def around(mean_BHA: Tensor, std_BHA: Tensor, noise_BSHA: Tensor) -> Tensor:
    """Candidates (B, S, H, A) from standard normal numbers; the first one is the mean itself."""
    plans_BSHA = noise_BSHA * std_BHA[:, None] + mean_BHA[:, None]
    plans_BSHA[:, 0] = mean_BHA
    return plans_BSHA


def require_start(mean_BHA: Tensor) -> None:
    """Refuse to search around what is no plan."""
    require_tensor(mean_BHA, "the mean", "B", "H", "A")
    if not mean_BHA.numel() or not mean_BHA.isfinite().all():
        raise ValueError(f"the mean must be finite and not empty, got {described(mean_BHA)}")


def noise(draws: Draws, num_samples: int, mean_BHA: Tensor) -> Tensor:
    """The next standard normal numbers (B, S, H, A).

    Raises:
        ValueError: they have another shape, such as one environment's for all.
    """
    if not callable(draws):
        raise ValueError(f"draws must be a function, got {shown(draws)}")
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
        raise ValueError(f"the cost must be a function, got {shown(cost)}")
    costs_BS = cost(plans_BSHA)
    floats = isinstance(costs_BS, Tensor) and costs_BS.is_floating_point()
    if not floats or costs_BS.shape != plans_BSHA.shape[:2]:
        raise ValueError(
            f"the cost of plans {tuple(plans_BSHA.shape)} must be floats of shape "
            f"{tuple(plans_BSHA.shape[:2])}, got {described(costs_BS)}"
        )
    if costs_BS.isnan().all(dim=1).any():
        raise ValueError(
            "all plans of an environment cost NaN: the search diverged, or its start or goal is NaN"
        )
    return costs_BS


def take_best(plans_BSHA: Tensor, costs_BS: Tensor, number: int) -> tuple[Tensor, Tensor]:
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
