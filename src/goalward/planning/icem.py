"""The improved cross-entropy method: noise that lasts over time, and elites that are kept.

Pinneri et al., "Sample-efficient cross-entropy method for real-time planning", CoRL 2020.
"""

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
    require_above_zero,
    require_sampling,
    require_start,
    take_best,
)


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
    def __call__(self, cost: CostFn, mean_BHA: Tensor, *, draws: Draws) -> Plan:
        """Search; see `Solver`."""
        require_start(mean_BHA)
        std_BHA = torch.full_like(mean_BHA, self.init_std)
        kept_BKHA, costs_BK = mean_BHA[:, None][:, :0], mean_BHA.new_empty(0)
        for _ in range(self.num_iters):
            noise_BSHA = coloured(noise(draws, self.num_samples, mean_BHA), self.noise_beta)
            plans_BSHA = self._candidates(mean_BHA, std_BHA, noise_BSHA, kept_BKHA)
            costs_BS = cost_of(cost, plans_BSHA)
            elites_BKHA, costs_BK = take_best(plans_BSHA, costs_BS, self.num_elites)
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
        plans_BSHA = around(mean_BHA, std_BHA, noise_BSHA)
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
