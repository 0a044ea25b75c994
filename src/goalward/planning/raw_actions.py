"""Between the world model's action blocks and the actions that an environment takes.

Shapes: B environments, H model steps, A numbers of an action block, R numbers of a raw action,
`frameskip` of which make a block.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from goalward.arrays import as_array
from goalward.checks import described
from goalward.types import Array
from goalward.world.checkpoint import World


class RawActions:
    """The scale and the bounds of a task's raw actions.

    Raises:
        ValueError: the world model does not tell the scale of its actions, or has others.
    """

    def __init__(self, world: World, low: npt.ArrayLike, high: npt.ArrayLike) -> None:
        if world.actions is None:
            raise ValueError(
                "plans are z-scored actions, and this world model does not tell their mean and std "
                "(public checkpoints do not); goalward convert-world --episodes PATH adds them"
            )
        self._scale, size = world.actions, world.model.config.action_dim
        self._block_dim = world.model.config.block_dim
        self._low_R = _edge(low, "action_low", size)
        self._high_R = _edge(high, "action_high", size)
        if not (self._low_R <= self._high_R).all():
            raise ValueError(
                f"action_low must be at most action_high, got {self._low_R} and {self._high_R}"
            )

    def of_blocks(self, blocks_BHA: Tensor) -> Array:
        """Raw actions (B, H * frameskip, R) within the bounds, of z-scored blocks."""
        z = blocks_BHA.reshape(len(blocks_BHA), -1, len(self._scale.mean))
        return np.clip(self._scale.restore(z).cpu().numpy(), self._low_R, self._high_R)

    def to_block(self, actions: Array) -> Tensor:
        """The z-scored block (A,) of raw actions (frameskip, R)."""
        return self._scale.normalise(torch.from_numpy(actions)).flatten()

    def to_blocks(self, actions_BLR: Tensor) -> Tensor:
        """Z-scored blocks (B, H, A) of raw actions (B, H * frameskip, R), put within the bounds."""
        low_R, high_R = (torch.from_numpy(e).to(actions_BLR) for e in (self._low_R, self._high_R))
        z_BLR = self._scale.normalise(actions_BLR.clamp(low_R, high_R))
        return z_BLR.reshape(len(z_BLR), -1, self._block_dim)


def _edge(values: npt.ArrayLike, name: str, size: int) -> Array:
    edge_R = as_array(values, name)
    if edge_R.dtype.kind not in "iuf" or edge_R.shape != (size,):
        raise ValueError(
            f"{name} must have {size} numbers, as the world model's actions do, got "
            f"{described(edge_R)}"
        )
    return edge_R.astype(np.float32)
