"""The cost of plans: how far from the goal the world model says that they end.

Shapes: B environments, S candidate plans of each, T known latents, H model steps, D latent numbers,
A numbers of an action block.
"""

from __future__ import annotations

import torch
from torch import Tensor

from goalward.checks import described, whole_number
from goalward.planning.rollout import last_latent
from goalward.world.lewm import LeWM
from goalward.world.tensors import require_tensor

MAX_ROLLOUTS = 512  # at once: the quickest on two cores, whose cache it fits; a GPU likes more


class LatentCost:
    """A `CostFn`: the squared distance of the last predicted latent to the goal's.

    Summed over the D numbers, as in stable-worldmodel. It can be differentiated.

    Plans are rolled out at most `max_rollouts` at a time, in pieces of whole environments where
    they fit. With more than half as many plans each, as by default, an environment has pieces of
    its own: its costs are then the same to the last bit, whatever others are planned for.

    Args:
        model: In evaluation mode.
        z_BTD: Latents that are known, the last one being now.
        z_goal_BD: The goals' latents.
        actions_BTA: The T - 1 action blocks (z-scored) between the known latents, if T > 1.
        max_rollouts: Bounds the memory.

    Attributes:
        predictor_calls: Made so far: H a plan.

    Raises:
        ValueError: shapes do not fit each other, or the model is in training mode.
    """

    def __init__(
        self,
        model: LeWM,
        z_BTD: Tensor,
        z_goal_BD: Tensor,
        *,
        actions_BTA: Tensor | None = None,
        max_rollouts: int = MAX_ROLLOUTS,
    ) -> None:
        dim, size = model.config.latent_dim, model.config.block_dim
        require_tensor(z_BTD, "latents", "B", "T", dim)
        batch, given = z_BTD.shape[:2]
        if actions_BTA is None:
            actions_BTA = z_BTD.new_empty(batch, 0, size)
        require_tensor(actions_BTA, "actions", batch, max(given - 1, 0), size)
        require_tensor(z_goal_BD, "goals", batch, dim)
        for name, values in (("latents", z_BTD), ("goals", z_goal_BD), ("actions", actions_BTA)):
            if not values.isfinite().all():
                raise ValueError(f"{name} hold NaN or infinity")
        if not batch or not given:
            raise ValueError(f"there must be latents to start from, got {described(z_BTD)}")
        whole_number(max_rollouts, "max_rollouts")
        if model.training:
            raise ValueError("the world model is in training mode; call its eval() first")
        self.predictor_calls = 0
        self._model, self._max_rollouts = model, max_rollouts
        self._z_BTD, self._z_goal_BD, self._actions_BTA = z_BTD, z_goal_BD, actions_BTA

    def __call__(self, plans_BSHA: Tensor) -> Tensor:
        """Costs (B, S) of z-scored plans (B, S, H, A).

        Raises:
            ValueError: the plans have another type or shape.
        """
        batch, size = len(self._z_BTD), self._model.config.block_dim
        require_tensor(plans_BSHA, "plans", batch, "S", "H", size)
        samples, horizon = plans_BSHA.shape[1:3]
        if not samples or not horizon:
            raise ValueError(f"plans must have at least one step, got {described(plans_BSHA)}")
        environments = max(1, self._max_rollouts // samples)
        rows = []
        for first in range(0, batch, environments):
            where = slice(first, first + environments)
            pieces = plans_BSHA[where].split(self._max_rollouts, dim=1)
            rows.append(torch.cat([self._piece(where, piece_BSHA) for piece_BSHA in pieces], dim=1))
        self.predictor_calls += batch * samples * horizon
        return torch.cat(rows)

    def _piece(self, where: slice, plans_BSHA: Tensor) -> Tensor:
        """Costs (B, S) of some environments' plans, rolled out at once."""
        batch, samples = plans_BSHA.shape[:2]
        given_BSTA = self._actions_BTA[where, None].expand(-1, samples, -1, -1)
        actions_BSKA = torch.cat([given_BSTA, plans_BSHA], dim=2)
        z_BSTD = self._z_BTD[where, None].expand(-1, samples, -1, -1)
        actions_KNA, z_TND = (x.flatten(0, 1).transpose(0, 1) for x in (actions_BSKA, z_BSTD))
        z_BSD = last_latent(self._model, z_TND, actions_KNA).view(batch, samples, -1)
        return (z_BSD - self._z_goal_BD[where, None]).square().sum(dim=-1)
