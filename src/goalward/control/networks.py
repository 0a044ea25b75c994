"""Time to go: how many steps demonstrations took from one latent to another.

The paper feeds GC-IDM the remaining budget, so that it has no reason to hurry. This head says how
long the way is. It gives a whole distribution over 1 .. max_horizon steps, of which a controller
takes a quantile: ways differ, and a low quantile makes it go the quick one.
Shapes: B pairs, D latent numbers, H horizons.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from goalward import defaults
from goalward.core.config import AtLeastTwo, Fraction, Positive, config
from goalward.core.tensors import require_tensor

HEAD_STD = 0.01  # of the head's initial weights, so that first actions are close to 0


class Standardizer(nn.Module):
    """Latents less their mean, over their standard deviation; the identity until it is fitted."""

    mean: Tensor
    std: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("std", torch.ones(dim))

    def fit(self, mean: Sequence[float], std: Sequence[float]) -> None:
        """Take the statistics; a number that never changes is left unscaled."""
        self.mean.copy_(torch.tensor(mean))
        self.std.copy_(torch.tensor([value if value > 1e-6 else 1.0 for value in std]))

    def forward(self, z_BD: Tensor) -> Tensor:
        """(B, D) to (B, D)."""
        return (z_BD - self.mean) / self.std


class PairBackbone(nn.Module):
    """Two latents, one after the other, through an MLP (Section 4.2): (B, D), (B, D) to (B, F)."""

    def __init__(self, latent_dim: int, hidden_dim: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.standardise = Standardizer(latent_dim)
        widths = [2 * latent_dim] + [hidden_dim] * num_layers
        self.layers = nn.Sequential(
            *(
                layer
                for inputs, outputs in pairwise(widths)
                for layer in _hidden_layer(inputs, outputs, dropout)
            )
        )

    def forward(self, z_BD: Tensor, z_goal_BD: Tensor) -> Tensor:
        """Features (B, F) of pairs of latents.

        Raises:
            ValueError: they are no pairs, or no latents of this size.
        """
        mean_D = self.standardise.mean
        require_tensor(z_BD, "latents", "B", len(mean_D), dtype=mean_D.dtype)
        # Not len(): it would fix the number of pairs in an exported graph.
        require_tensor(z_goal_BD, "goals", z_BD.shape[0], len(mean_D), dtype=mean_D.dtype)
        pair_BD = torch.cat([self.standardise(z_BD), self.standardise(z_goal_BD)], dim=1)
        return self.layers(pair_BD)


def kaiming_linear(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer as Appendix F initialises it: Kaiming normal, no bias at first."""
    linear = nn.Linear(inputs, outputs)
    nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
    nn.init.zeros_(linear.bias)
    return linear


def small_head(inputs: int, outputs: int) -> nn.Linear:
    """The action head: its first outputs are close to 0."""
    head = nn.Linear(inputs, outputs)
    nn.init.normal_(head.weight, std=HEAD_STD)
    nn.init.zeros_(head.bias)
    return head


def _hidden_layer(inputs: int, outputs: int, dropout: float) -> Iterator[nn.Module]:
    yield kaiming_linear(inputs, outputs)
    yield nn.LayerNorm(outputs)
    yield nn.GELU()
    yield nn.Dropout(dropout)


@config
class GCIDMConfig:
    """The architecture; the defaults are the paper's."""

    latent_dim: Positive
    action_dim: Positive
    hidden_dim: Positive = 512
    num_layers: Positive = 3
    dropout: Fraction = 0.1
    max_horizon: Positive = defaults.MAX_HORIZON  # environment steps; normalises the horizon input
    horizon_embedding: bool = True  # False: the network is not told how many steps are left
    horizon_dim: AtLeastTwo = 64  # numbers of the sinusoidal encoding

    def __post_init__(self) -> None:
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


@config
class PairwiseConfig:
    """The architecture; the defaults are the paper's."""

    latent_dim: Positive
    action_dim: Positive
    hidden_dim: Positive = 512
    num_layers: Positive = 3
    dropout: Fraction = 0.1
    frameskip: Positive = 1  # environment steps between the two frames

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


@config
class TimeToGoConfig:
    """The head's architecture."""

    hidden_dim: Positive = 256
    num_layers: Positive = 2
    dropout: Fraction = 0.1


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
