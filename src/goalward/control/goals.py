"""Training examples (z_t, z_{t+h}, h, a_t), drawn by the thousand without a loop.

Shapes: N rows of the dataset, E episodes, B examples, D latent numbers, A numbers of an action, K
actions of a block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from goalward.control.controller import Index


@dataclass(frozen=True, kw_only=True)
class Examples:
    """A batch of examples."""

    z: Tensor  # (B, D)
    z_goal: Tensor  # (B, D)
    steps: Tensor  # (B,) int64, from z to z_goal
    actions: Tensor  # (B, A) at z, or (B, K * A): the first from there on, one after the other

    def noisy(self, scale_D: Tensor, rng: torch.Generator) -> Examples:
        """A copy with Gaussian noise of this standard deviation on both latents (Eq. 19)."""
        here_BD, goal_BD = (
            torch.randn(part.shape, generator=rng, device=part.device)
            for part in (self.z, self.z_goal)
        )
        return replace(self, z=self.z + scale_D * here_BD, z_goal=self.z_goal + scale_D * goal_BD)


class GoalSampler:
    """Draws starts t and horizons h within the chosen episodes, on the device of the latents.

    h is uniform over [min_horizon, max_horizon], and t uniform over the rows that still have h
    steps before them. (Drawing t first and cutting h off at the episode's end would make short
    horizons more frequent than long ones.) Horizons that no chosen episode is long enough for are
    left out.

    Args:
        z_ND: Latents of all rows.
        actions_NA: Actions of all rows.
        lengths_E: Rows of each episode; episodes lie one after the other.
        chosen: Episodes to draw from.
        min_horizon: The smallest h.
        max_horizon: The largest h.
        block: K, actions of an example.

    Raises:
        ValueError: no chosen episode is long enough.
    """

    def __init__(
        self,
        z_ND: Tensor,
        actions_NA: Tensor,
        lengths_E: Index,
        chosen: Index,
        *,
        min_horizon: int,
        max_horizon: int,
        block: int = 1,
    ) -> None:
        self._z_ND, self._actions_NA = z_ND, actions_NA
        self._block, self._min_horizon = block, min_horizon
        rows, left = _rows_and_steps_left(lengths_E, chosen)
        # Rows by the steps left in their episode, most first: those with at least h come first.
        order = np.argsort(-left, kind="stable")
        longest = max(min_horizon, min(max_horizon, len(z_ND)))
        horizons = np.arange(min_horizon, longest + 1)
        counts = np.searchsorted(-left[order], -np.maximum(horizons, block), side="right")
        if not counts[0]:
            raise ValueError(
                f"none of the {len(chosen)} episodes has {max(min_horizon, block)} steps: "
                "collect more or longer episodes"
            )
        self._rows = torch.from_numpy(rows[order]).to(z_ND.device)
        self._counts = torch.from_numpy(counts[counts > 0]).to(z_ND.device)

    @property
    def num_rows(self) -> int:
        """Rows that examples start from."""
        return int(self._counts[0])

    def draw(self, number: int, rng: torch.Generator) -> Examples:
        """A number of independent examples."""
        device = self._rows.device
        which = torch.randint(len(self._counts), (number,), generator=rng, device=device)
        # Whole numbers, because floats cannot number the rows of a large dataset (and some devices
        # have no doubles); the remainder favours no row by more than 1e-9.
        large = torch.randint(2**62, (number,), generator=rng, device=device)
        place_B = large % self._counts[which]
        rows_B, steps_B = self._rows[place_B], which + self._min_horizon
        ahead_K = torch.arange(self._block, device=device)
        # index_select gathers whole rows twice as fast as indexing does.
        actions = self._actions_NA.index_select(0, (rows_B[:, None] + ahead_K).flatten())
        return Examples(
            z=self._z_ND.index_select(0, rows_B),
            z_goal=self._z_ND.index_select(0, rows_B + steps_B),
            steps=steps_B,
            actions=actions.view(number, -1),
        )


def _rows_and_steps_left(lengths_E: Index, chosen: Index) -> tuple[Index, Index]:
    """Rows of the chosen episodes that have an action, and the steps left from there."""
    first_E = np.cumsum(lengths_E) - lengths_E
    steps = lengths_E[chosen] - 1
    shift = np.cumsum(steps) - steps
    within = np.arange(steps.sum()) - np.repeat(shift, steps)
    return np.repeat(first_E[chosen], steps) + within, np.repeat(steps, steps) - within
