"""The cross-entropy method: sample plans, keep the best, sample around those."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from goalward.config import require_types
from goalward.planning.base import (
    CostFn,
    Draws,
    Plan,
    around,
    cost_of,
    noise,
    require_sampling,
    require_start,
    take_best,
)


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
    def __call__(self, cost: CostFn, mean_BHA: Tensor, *, draws: Draws) -> Plan:
        """Search; see `Solver`."""
        require_start(mean_BHA)
        std_BHA = torch.full_like(mean_BHA, self.init_std)
        costs_BK = mean_BHA.new_empty(0)
        for _ in range(self.num_iters):
            noise_BSHA = noise(draws, self.num_samples, mean_BHA)
            plans_BSHA = around(mean_BHA, std_BHA, noise_BSHA)
            costs_BS = cost_of(cost, plans_BSHA)
            elites_BKHA, costs_BK = take_best(plans_BSHA, costs_BS, self.num_elites)
            mean_BHA, std_BHA = elites_BKHA.mean(dim=1), elites_BKHA.std(dim=1)
        evaluations = self.num_iters * self.num_samples
        return Plan(actions=mean_BHA, cost=costs_BK.mean(dim=1), evaluations=evaluations)
