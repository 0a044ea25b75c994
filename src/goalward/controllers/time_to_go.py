"""Time to go: how many steps demonstrations took from one latent to another.

The paper feeds GC-IDM the remaining budget, so that it has no reason to hurry. This head says how
long the way is. It gives a whole distribution over 1 .. max_horizon steps, of which a controller
takes a quantile: ways differ, and a low quantile makes it go the quick one.
Shapes: B pairs, D latent numbers, H horizons.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from goalward.config import require_at_least, require_at_most, require_types
from goalward.controllers.backbone import (
    PairBackbone,
    require_dropout,
    small_head,
)
from goalward.world.encoders import MOST_DEPTH, MOST_WIDTH


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeToGoConfig:
    """The head's architecture."""

    hidden_dim: int = 256
    num_layers: int = 2
    dropout: float = 0.1

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 1, "hidden_dim", "num_layers")
        require_at_most(self, MOST_WIDTH, "hidden_dim")
        require_at_most(self, MOST_DEPTH, "num_layers")
        require_dropout(self.dropout)


class TimeToGo(nn.Module):
    """Pairs of latents to logits of 1 .. max_horizon steps."""

    def __init__(self, config: TimeToGoConfig, latent_dim: int, max_horizon: int) -> None:
        super().__init__()
        self.backbone = PairBackbone(
            latent_dim, config.hidden_dim, config.num_layers, config.dropout
        )
        self.head = small_head(config.hidden_dim, max_horizon)

    def forward(self, z_BD: Tensor, z_goal_BD: Tensor) -> Tensor:
        """Logits (B, H); the first is that of one step."""
        return self.head(self.backbone(z_BD, z_goal_BD))


def quantile_steps(logits_BH: Tensor, level: float) -> Tensor:
    """The least number of steps that suffices with probability `level`: (B,) int64, from 1 on."""
    cumulative_BH = logits_BH.softmax(dim=1).cumsum(dim=1)
    # Rounding may leave the last sum below a level of 1.
    return (cumulative_BH < level).sum(dim=1).clamp(max=logits_BH.shape[1] - 1) + 1
