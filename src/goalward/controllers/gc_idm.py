"""GC-IDM, the goal-conditioned inverse dynamics model: action = f(z, z_goal, steps left).

Section 4.2 and Appendix F of the paper. Shapes: B pairs, D latent numbers, F hidden features, C
numbers of the horizon's embedding, A numbers of an action.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from goalward import defaults
from goalward.config import require_at_least, require_at_most, require_types
from goalward.controllers.backbone import (
    PairBackbone,
    kaiming_linear,
    require_dropout,
    small_head,
)
from goalward.world.encoders import MOST_DEPTH, MOST_WIDTH
from goalward.world.tensors import require_tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class GCIDMConfig:
    """The architecture; the defaults are the paper's."""

    latent_dim: int
    action_dim: int
    hidden_dim: int = 512
    num_layers: int = 3
    dropout: float = 0.1
    max_horizon: int = defaults.MAX_HORIZON  # environment steps; normalises the horizon input
    horizon_embedding: bool = True  # False: the network is not told how many steps are left
    horizon_dim: int = 64  # numbers of the sinusoidal encoding

    def __post_init__(self) -> None:
        names = ("latent_dim", "action_dim", "hidden_dim", "max_horizon")
        require_types(self)
        require_at_least(self, 1, *names, "num_layers")
        require_at_least(self, 2, "horizon_dim")
        require_at_most(self, MOST_WIDTH, *names, "horizon_dim")
        require_at_most(self, MOST_DEPTH, "num_layers")
        require_dropout(self.dropout)
        if self.horizon_dim % 2:
            raise ValueError(f"horizon_dim must be even, got {self.horizon_dim}")

    @property
    def min_horizon(self) -> int:
        """The nearest goal of the training, in environment steps."""
        return 1

    @property
    def block(self) -> int:
        """Raw actions that the network gives at once."""
        return 1

    def build(self) -> GCIDM:
        """A network with initial weights."""
        return GCIDM(self)


class GCIDM(nn.Module):
    """The network. At birth it ignores the horizon, and its actions are close to 0."""

    def __init__(self, config: GCIDMConfig) -> None:
        super().__init__()
        self.config = config
        self.backbone = PairBackbone(
            config.latent_dim, config.hidden_dim, config.num_layers, config.dropout
        )
        self.modulation = Modulation(config) if config.horizon_embedding else None
        self.head = small_head(config.hidden_dim, config.action_dim)

    def forward(self, z_BD: Tensor, z_goal_BD: Tensor, steps_left_B: Tensor) -> Tensor:
        """Actions (B, A) for pairs of latents and whole numbers of steps left, at least 1.

        Raises:
            ValueError: shapes or types do not fit the network or each other.
        """
        h_BF = self.backbone(z_BD, z_goal_BD)
        require_tensor(steps_left_B, "steps_left", h_BF.shape[0], dtype=torch.int64)
        if self.modulation is not None:
            gamma_BF, beta_BF = self.modulation(steps_left_B)
            h_BF = h_BF * (1 + gamma_BF) + beta_BF  # Eq. (6)
        return self.head(h_BF)

    def frozen(self) -> GCIDM:
        """A copy to act with: what depends on the horizon alone is computed once."""
        copied = copy.deepcopy(self).eval()
        if copied.modulation is not None:
            copied.modulation.remember()
        return copied


class Modulation(nn.Module):
    """AdaLN-Zero: steps left to a scale and a shift of the features, both 0 at birth."""

    frequencies: Tensor
    known_gamma: Tensor | None  # of every horizon (H, F), once they are remembered
    known_beta: Tensor | None

    def __init__(self, config: GCIDMConfig) -> None:
        super().__init__()
        self.max_horizon = config.max_horizon
        self.register_buffer("frequencies", horizon_frequencies(config), persistent=False)
        width = config.hidden_dim
        self.embedding = nn.Sequential(
            kaiming_linear(config.horizon_dim, width), nn.GELU(), kaiming_linear(width, width)
        )
        self.gamma, self.beta = nn.Linear(width, width), nn.Linear(width, width)
        for name in ("known_gamma", "known_beta"):
            self.register_buffer(name, None, persistent=False)
        for linear in (self.gamma, self.beta):
            nn.init.zeros_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, steps_left_B: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and shift of each pair: two of (B, F)."""
        steps_B = steps_left_B.clamp(1, self.max_horizon)
        # There are no more than max_horizon different ones: half of a training step's arithmetic,
        # and of a decision's.
        gamma_HF, beta_HF = self.known_gamma, self.known_beta
        if gamma_HF is None or beta_HF is None:
            gamma_HF, beta_HF = self._table()
        # An embedding's gradient, unlike that of indexing, is summed in a fixed order.
        return F.embedding(steps_B - 1, gamma_HF), F.embedding(steps_B - 1, beta_HF)

    def remember(self) -> None:
        """Compute the scales and shifts of all horizons once: the weights are not to change."""
        with torch.no_grad():
            self.known_gamma, self.known_beta = self._table()

    def compute(self, steps_B: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and shift of each of these horizons, which need not be whole numbers."""
        c_BC = self.embedding(encode_horizon(steps_B / self.max_horizon, self.frequencies))
        return self.gamma(c_BC), self.beta(c_BC)

    def _table(self) -> tuple[Tensor, Tensor]:
        """Scale and shift of every horizon: two of (H, F)."""
        device = self.frequencies.device
        return self.compute(torch.arange(1, self.max_horizon + 1, device=device))


def encode_horizon(share_B: Tensor, frequencies_K: Tensor) -> Tensor:
    """Sines and cosines of the horizon's share of its maximum: (B, 2 K)."""
    angles_BK = share_B[:, None] * frequencies_K
    return torch.cat([angles_BK.sin(), angles_BK.cos()], dim=1)


def horizon_frequencies(config: GCIDMConfig) -> Tensor:
    """Angular frequencies for shares in (0, 1], in geometric order: (horizon_dim / 2,).

    The slowest makes a quarter of a turn over the whole range, so that it never repeats; the
    quickest turns once in four environment steps, so that neighbouring horizons differ plainly.
    (The usual 10000^(-k/K), made for positions 0, 1, 2, ..., hardly tells shares apart.)
    """
    turns = torch.linspace(0, 1, config.horizon_dim // 2, dtype=torch.float64)
    return (math.pi / 2 * float(config.max_horizon) ** turns).float()
