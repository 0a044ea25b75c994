"""The pairwise inverse dynamics model of Appendix D: which actions lead from one latent to another.

At frameskip 1 it decodes the action between consecutive frames; at frameskip k the k actions
between frames k steps apart, which many action sequences connect.
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
class PairwiseConfig:
    """The architecture; the defaults are the paper's."""

    latent_dim: int
    action_dim: int
    hidden_dim: int = 512
    num_layers: int = 3
    dropout: float = 0.1
    frameskip: int = 1  # environment steps between the two frames

    def __post_init__(self) -> None:
        names = ("latent_dim", "action_dim", "hidden_dim", "num_layers", "frameskip")
        require_types(self)
        require_at_least(self, 1, *names)
        require_at_most(self, MOST_WIDTH, "latent_dim", "action_dim", "hidden_dim", "frameskip")
        require_at_most(self, MOST_DEPTH, "num_layers")
        require_dropout(self.dropout)

    @property
    def min_horizon(self) -> int:
        """Steps between the frames of a pair."""
        return self.frameskip

    @property
    def max_horizon(self) -> int:
        """Steps between the frames of a pair."""
        return self.frameskip

    @property
    def block(self) -> int:
        """Raw actions that the network gives at once."""
        return self.frameskip

    def build(self) -> PairwiseIDM:
        """A network with initial weights."""
        return PairwiseIDM(self)


class PairwiseIDM(nn.Module):
    """The network."""

    def __init__(self, config: PairwiseConfig) -> None:
        super().__init__()
        self.config = config
        self.backbone = PairBackbone(
            config.latent_dim, config.hidden_dim, config.num_layers, config.dropout
        )
        self.head = small_head(config.hidden_dim, config.block * config.action_dim)

    def forward(self, z_BD: Tensor, z_next_BD: Tensor, steps_B: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """The actions between two latents, one after the other: (B, frameskip * action_dim).

        Args:
            z_BD: Latents.
            z_next_BD: Latents `frameskip` environment steps later.
            steps_B: Not used; the goal-conditioned model's third input.
        """
        return self.head(self.backbone(z_BD, z_next_BD))
