"""The last latent of many rollouts: what `LeWM.rollout` ends with, for less arithmetic.

Three things that `LeWM.rollout` computes more than once, or for nothing, are left out; three fifths
of the products remain in the preset `cpu`, two thirds in `paper`:
- An action's modulation does not depend on its place in the window: it is computed once.
- While the window grows, a new step changes nothing about the steps before it: their keys and
  values are kept. Once the window moves, all steps have new places in it, and are computed anew.
- Only the last step's output is wanted: in the last block, the others give keys and values alone.

Time is the first axis here, so that a window is one piece of memory. Shapes: N rollouts, T given
latents, K actions, W steps of a window, Q of them new, D latent numbers, A numbers of an action
block, H heads of E numbers each.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from goalward.world.layers import Attention, ConditionalBlock
from goalward.world.lewm import LeWM

# Where the ones of "1 + scale" stand among a block's shift, scale and gate, twice.
_ONES = (0.0, 1.0, 0.0, 0.0, 1.0, 0.0)


def last_latent(model: LeWM, z_TND: Tensor, actions_KNA: Tensor) -> Tensor:
    """The latents (N, D) after the last action; it can be differentiated.

    Args:
        model: In evaluation mode.
        z_TND: Latents that are known, at most K.
        actions_KNA: Action blocks: the T - 1 between the latents, then those to be tried out.
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
    """A block of the predictor, with the modulations of all actions and what it has seen."""

    def __init__(self, block: nn.Module, conditions_KND: Tensor) -> None:
        assert isinstance(block, ConditionalBlock)
        linear = block.adaLN_modulation[-1]
        assert isinstance(linear, nn.Linear)
        ones_D = linear.bias.new_tensor(_ONES).repeat_interleave(conditions_KND.shape[-1])
        self._modulation_KND = F.linear(conditions_KND, linear.weight, linear.bias + ones_D)
        self._block = block
        self._keys_WNHE = self._values_WNHE = conditions_KND[:0]

    def advance(self, x_QND: Tensor, t: int, *, fresh: bool, last: bool) -> Tensor:
        """The output for the Q new steps before step t, or for the very last if `last`.

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
