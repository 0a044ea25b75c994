"""The cost of plans: how far from the goal the world model says that they end.

Shapes: B environments, S candidate plans of each, T known latents, H model steps, D latent numbers,
A numbers of an action block.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from goalward.control.networks import TimeToGo
from goalward.world.lewm import Attention, ConditionalBlock, LeWM

# Where the ones of "1 + scale" stand among a block's shift, scale and gate, twice.
_ONES = (0.0, 1.0, 0.0, 0.0, 1.0, 0.0)


def last_latent(model: LeWM, z_TND: Tensor, actions_KNA: Tensor) -> Tensor:
    """The latents (N, D) after the last action; it can be differentiated.

    Args:
        model: In evaluation mode.
        z_TND: Latents that are known, at most K.
        actions_KNA: Action blocks: the T - 1 between the latents, then those of the plan.
    """
    given, steps = len(z_TND), len(actions_KNA)
    assert 1 <= given <= steps and not model.training
    predictor = model.predictor
    conditions_KND = F.silu(model.action_encoder(actions_KNA))
    blocks = [_Block(block, conditions_KND) for block in predictor.transformer.layers]
    latents = list(z_TND.unbind(0))
    for t in range(given, steps + 1):
        first = max(0, t - model.config.history)
        known = t - 1 if first == 0 and t > given else 0  # places in the window
        x_QND = torch.stack(latents[first + known : t])
        x_QND = x_QND + predictor.pos_embedding[0, known : t - first, None]
        for block in blocks:
            x_QND = block.advance(x_QND, t, fresh=not known, last=block is blocks[-1])
        latents.append(model.pred_proj(predictor.transformer.norm(x_QND[-1])))
    return latents[-1]


class _Block:
    """A block of the predictor, with the modulations of all actions and the keys so far."""

    def __init__(self, block: nn.Module, conditions_KND: Tensor) -> None:
        assert isinstance(block, ConditionalBlock)
        linear = block.adaLN_modulation[-1]
        assert isinstance(linear, nn.Linear)
        ones_D = linear.bias.new_tensor(_ONES).repeat_interleave(conditions_KND.shape[-1])
        self._modulation_KND = F.linear(conditions_KND, linear.weight, linear.bias + ones_D)
        self._block = block
        self._keys_WNHE = self._values_WNHE = conditions_KND[:0]

    def advance(self, x_QND: Tensor, t: int, *, fresh: bool, last: bool) -> Tensor:
        """The output for the Q new steps before step t; for the last step only if `last`.

        Args:
            x_QND: The input.
            t: Where the window ends.
            fresh: Whether these steps are all that the window has.
            last: Whether this is the last block.
        """
        block, new = self._block, slice(t - len(x_QND), t)
        shift_1, scale_1, gate_1, *second = self._modulation_KND[new].chunk(6, dim=-1)
        seen_QND = block.attn.norm(torch.addcmul(shift_1, block.norm1(x_QND), scale_1))
        wanted = slice(-1, None) if last else slice(None)
        attended_QND = self._attend(seen_QND, wanted, fresh)
        x_QND = torch.addcmul(x_QND[wanted], gate_1[wanted], attended_QND)
        shift_2, scale_2, gate_2 = (part_QND[wanted] for part_QND in second)
        hidden_QND = block.mlp(torch.addcmul(shift_2, block.norm2(x_QND), scale_2))
        return torch.addcmul(x_QND, gate_2, hidden_QND)

    def _attend(self, seen_QND: Tensor, wanted: slice, fresh: bool) -> Tensor:
        """Attention of the wanted ones among the new steps to all steps up to them."""
        attn = self._block.attn
        q_QNHE, k_WNHE, v_WNHE = _heads(attn, seen_QND, wanted)
        if not fresh:
            k_WNHE = torch.cat([self._keys_WNHE, k_WNHE])
            v_WNHE = torch.cat([self._values_WNHE, v_WNHE])
        self._keys_WNHE, self._values_WNHE = k_WNHE, v_WNHE
        out_QNHE = v_WNHE
        if len(k_WNHE) > 1:  # a step alone attends to itself
            q, k, v = (part.permute(1, 2, 0, 3) for part in (q_QNHE, k_WNHE, v_WNHE))
            out = F.scaled_dot_product_attention(q, k, v, is_causal=len(q_QNHE) > 1)
            out_QNHE = out.permute(2, 0, 1, 3)
        return attn.to_out(out_QNHE.flatten(2))


def _heads(attn: Attention, seen_QND: Tensor, wanted: slice) -> tuple[Tensor, Tensor, Tensor]:
    """Queries of the wanted steps, and keys and values of all."""
    weight = attn.to_qkv.weight
    inner = len(weight) // 3
    if len(seen_QND) == 1 or wanted == slice(None):  # one product is quicker than two
        q, k, v = F.linear(seen_QND, weight).chunk(3, dim=-1)
    else:
        q = F.linear(seen_QND[wanted], weight[:inner])
        k, v = F.linear(seen_QND, weight[inner:]).chunk(2, dim=-1)
    q, k, v = (part.unflatten(-1, (attn.heads, -1)) for part in (q, k, v))
    return q, k, v


MAX_ROLLOUTS = 512  # at once: the quickest on two cores, whose cache it fits; a GPU likes more


CostName = Literal["latent", "time-to-go", "sum"]
GoalDistance = Callable[[Tensor, Tensor], Tensor]  # latents and goals (..., D) to (...)


def squared_distance(z: Tensor, z_goal: Tensor) -> Tensor:
    """Summed over the D numbers, as in stable-worldmodel."""
    return (z - z_goal).square().sum(dim=-1)


def goal_distance(name: CostName, time_to_go: TimeToGo | None) -> GoalDistance:
    """The distance to the goal that a cost asks for; it can be differentiated.

    Args:
        name: `latent` is the squared distance (the paper's), `time-to-go` the expected number of
            steps, `sum` the mean square plus the expected share of the longest time.
        time_to_go: Estimates the number of steps.
    """
    if name == "latent":
        return squared_distance
    if time_to_go is None:
        raise ValueError(
            f"cost={name} needs a time-to-go head, and this model has none; give a controller that "
            "was trained with one"
        )
    head = copy.deepcopy(time_to_go).eval()

    def distance(z: Tensor, z_goal: Tensor) -> Tensor:
        flat_ND, goal_ND = z.flatten(0, -2), z_goal.expand_as(z).flatten(0, -2)
        shares = head(flat_ND, goal_ND).softmax(-1).unflatten(0, z.shape[:-1])
        longest = shares.shape[-1]
        steps = shares @ torch.arange(1, longest + 1, device=z.device, dtype=z.dtype)
        if name == "time-to-go":
            return steps
        return squared_distance(z, z_goal) / z.shape[-1] + steps / longest

    return distance


class LatentCost:
    """A `CostFn`: the distance of the last predicted latent to the goal's.

    Plans are rolled out at most `MAX_ROLLOUTS` at a time, in pieces of whole environments where
    they fit. With more than half as many plans each, as by default, every environment has its own
    pieces: its costs are then the same to the last bit, whatever the other environments are.

    Args:
        model: In evaluation mode.
        z_BTD: Latents that are known, the last one being now.
        z_goal_BD: The goals' latents.
        actions_BTA: The T - 1 action blocks (z-scored) between the known latents, if T > 1.
        distance: Of a predicted latent to the goal's (default: the squared distance).

    Attributes:
        predictor_calls: Made so far for each environment: H a plan.
    """

    def __init__(
        self,
        model: LeWM,
        z_BTD: Tensor,
        z_goal_BD: Tensor,
        *,
        actions_BTA: Tensor | None = None,
        distance: GoalDistance = squared_distance,
    ) -> None:
        if actions_BTA is None:
            actions_BTA = z_BTD.new_empty(len(z_BTD), 0, model.config.block_dim)
        self.predictor_calls = 0
        self._model, self._distance = model, distance
        self._z_BTD, self._z_goal_BD, self._actions_BTA = z_BTD, z_goal_BD, actions_BTA

    def __call__(self, plans_BSHA: Tensor) -> Tensor:
        """Costs (B, S) of z-scored plans (B, S, H, A)."""
        batch, samples, horizon, _ = plans_BSHA.shape
        environments = max(1, MAX_ROLLOUTS // samples)
        rows = []
        for first in range(0, batch, environments):
            where = slice(first, first + environments)
            pieces = plans_BSHA[where].split(MAX_ROLLOUTS, dim=1)
            rows.append(torch.cat([self._piece(where, piece_BSHA) for piece_BSHA in pieces], dim=1))
        self.predictor_calls += samples * horizon
        return torch.cat(rows)

    def _piece(self, where: slice, plans_BSHA: Tensor) -> Tensor:
        """Costs (B, S) of some environments' plans, rolled out at once."""
        batch, samples = plans_BSHA.shape[:2]
        given_BSTA = self._actions_BTA[where, None].expand(-1, samples, -1, -1)
        actions_BSKA = torch.cat([given_BSTA, plans_BSHA], dim=2)
        z_BSTD = self._z_BTD[where, None].expand(-1, samples, -1, -1)
        actions_KNA, z_TND = (x.flatten(0, 1).transpose(0, 1) for x in (actions_BSKA, z_BSTD))
        z_BSD = last_latent(self._model, z_TND, actions_KNA).view(batch, samples, -1)
        return self._distance(z_BSD, self._z_goal_BD[where, None])
