"""Gradient descent on plans, through the cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from goalward.config import require_at_least, require_at_most, require_types
from goalward.planning.base import (
    MOST_ITERS,
    MOST_SAMPLES,
    CostFn,
    Draws,
    Plan,
    cost_of,
    noise,
    require_above_zero,
    require_start,
    take_best,
)


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

    def __call__(self, cost: CostFn, mean_BHA: Tensor, *, draws: Draws) -> Plan:
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
            best_B1HA, least_B1 = take_best(plans_BSHA, costs_BS, 1)
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
