"""The networks on pairs of latents: GC-IDM, the pairwise model, and the time-to-go head.

Shapes: B pairs, D latent numbers, F features, A numbers of an action, H horizons.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from goalward import defaults
from goalward.core.config import AtLeastTwo, Fraction, OpenFraction, Positive, config

HEAD_STD = 0.01  # of the head's initial weights, so that first actions are close to 0


@config
class HorizonConfig:
    """Which horizon the network receives when it acts.

    `budget`: the number of remaining steps, as in the paper.
    `time-to-go`: a quantile of the learned time-to-go, or the remaining steps if those are fewer.
    `fixed`: always the same, or the remaining steps if those are fewer.
    """

    mode: Literal["budget", "time-to-go", "fixed"] = "budget"
    quantile: OpenFraction = 0.1  # of `time-to-go`; chosen on validation pairs, see decisions.md
    fixed_steps: Positive = 5  # of `fixed`


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
    """Two latents, concatenated, through an MLP (Section 4.2)."""

    def __init__(self, latent_dim: int, config: IDMConfig | TimeToGoConfig) -> None:
        super().__init__()
        self.standardise = Standardizer(latent_dim)
        self.layers = nn.Sequential()
        for inputs, width in pairwise([2 * latent_dim] + [config.hidden_dim] * config.num_layers):
            linear, dropout = kaiming_linear(inputs, width), nn.Dropout(config.dropout)
            self.layers.extend([linear, nn.LayerNorm(width), nn.GELU(), dropout])

    def forward(self, z_BD: Tensor, z_goal_BD: Tensor) -> Tensor:
        """Features (B, F) of pairs of latents."""
        return self.layers(torch.cat([self.standardise(z_BD), self.standardise(z_goal_BD)], dim=1))


class PairNetwork(nn.Module):
    """A head on the features of two latents."""

    def __init__(self, latent_dim: int, config: IDMConfig | TimeToGoConfig, outputs: int) -> None:
        super().__init__()
        self.backbone = PairBackbone(latent_dim, config)
        self.head = small_head(config.hidden_dim, outputs)

    def forward(self, z_BD: Tensor, z_goal_BD: Tensor, steps_B: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Outputs of the head (B, ...); only GC-IDM needs `steps_B`."""
        return self.head(self.backbone(z_BD, z_goal_BD))


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


@config
class IDMConfig:
    """What both inverse dynamics models have; the defaults are the paper's."""

    latent_dim: Positive
    action_dim: Positive
    hidden_dim: Positive = 512
    num_layers: Positive = 3
    dropout: Fraction = 0.1


@config
class GCIDMConfig(IDMConfig):
    """GC-IDM's architecture; the defaults are the paper's."""

    max_horizon: Positive = defaults.MAX_HORIZON  # environment steps; normalises the horizon input
    horizon_embedding: bool = True  # False: the network has no horizon input
    horizon_dim: AtLeastTwo = 64  # numbers of the sinusoidal encoding
    min_horizon: ClassVar[int] = 1  # environment steps to the nearest goal of a training
    block: ClassVar[int] = 1  # raw actions that the network gives at once

    def __post_init__(self) -> None:
        if self.horizon_dim % 2:
            raise ValueError(f"horizon_dim must be even, got {self.horizon_dim}")

    def build(self) -> GCIDM:
        """A network with initial weights."""
        return GCIDM(self)


class GCIDM(nn.Module):
    """GC-IDM. With initial weights it ignores the horizon, and its actions are close to 0."""

    def __init__(self, config: GCIDMConfig) -> None:
        super().__init__()
        self.config = config
        self.backbone = PairBackbone(config.latent_dim, config)
        self.modulation = Modulation(config) if config.horizon_embedding else None
        self.head = small_head(config.hidden_dim, config.action_dim)

    def forward(self, z_BD: Tensor, z_goal_BD: Tensor, steps_left_B: Tensor) -> Tensor:
        """Actions (B, A) for pairs of latents and remaining steps (int64, at least 1)."""
        h_BF = self.backbone(z_BD, z_goal_BD)
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
    """AdaLN-Zero: the horizon gives a scale and a shift of the features, both 0 at first."""

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
        # There are at most max_horizon different ones: half of the arithmetic of a training step,
        # and of a decision.
        gamma_HF, beta_HF = self._table()
        # An embedding's gradient, unlike that of indexing, is summed in a fixed order.
        return F.embedding(steps_B - 1, gamma_HF), F.embedding(steps_B - 1, beta_HF)

    def remember(self) -> None:
        """Compute the scales and shifts of all horizons once; weights must not change any more."""
        with torch.no_grad():
            self.known_gamma, self.known_beta = self._table()

    def compute(self, steps_B: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and shift of these horizons, which may be fractions."""
        c_BC = self.embedding(encode_horizon(steps_B / self.max_horizon, self.frequencies))
        return self.gamma(c_BC), self.beta(c_BC)

    def _table(self) -> tuple[Tensor, Tensor]:
        """Scale and shift of every horizon: two of (H, F)."""
        if self.known_gamma is not None and self.known_beta is not None:
            return self.known_gamma, self.known_beta
        return self.compute(torch.arange(1, self.max_horizon + 1, device=self.frequencies.device))


def encode_horizon(share_B: Tensor, frequencies_K: Tensor) -> Tensor:
    """Sines and cosines of the horizon's share of its maximum: (B, 2 K)."""
    angles_BK = share_B[:, None] * frequencies_K
    return torch.cat([angles_BK.sin(), angles_BK.cos()], dim=1)


def horizon_frequencies(config: GCIDMConfig) -> Tensor:
    """Angular frequencies for shares in (0, 1], in geometric order: (horizon_dim / 2,).

    The slowest makes a quarter of a turn over the whole range, so it never repeats. The fastest
    makes one turn in four environment steps, so neighbouring horizons differ clearly. (The usual
    10000^(-k/K), made for positions 0, 1, 2, ..., gives almost the same code to all shares.)
    """
    turns = torch.linspace(0, 1, config.horizon_dim // 2, dtype=torch.float64)
    return (math.pi / 2 * float(config.max_horizon) ** turns).float()


@config
class PairwiseConfig(IDMConfig):
    """The pairwise model's architecture; the defaults are the paper's."""

    frameskip: Positive = 1  # environment steps between the two frames

    @property
    def block(self) -> int:
        """Raw actions that the network gives at once."""
        return self.frameskip

    min_horizon = max_horizon = block  # steps between the frames of a pair

    def build(self) -> PairwiseIDM:
        """A network with initial weights."""
        return PairwiseIDM(self)


class PairwiseIDM(PairNetwork):
    """The pairwise inverse dynamics model: the actions between two latents in a row."""

    def __init__(self, config: PairwiseConfig) -> None:
        super().__init__(config.latent_dim, config, config.block * config.action_dim)
        self.config = config


@config
class TimeToGoConfig:
    """The time-to-go head's architecture."""

    hidden_dim: Positive = 256
    num_layers: Positive = 2
    dropout: Fraction = 0.1


class TimeToGo(PairNetwork):
    """How many steps demonstrations took from one latent to another: logits of 1 .. max_horizon.

    With the paper's input, the remaining budget, GC-IDM has no reason to hurry. This head estimates
    the distance as a distribution, of which a controller takes a quantile. Demonstrations differ: a
    low quantile follows the fast ones.
    """

    def __init__(self, config: TimeToGoConfig, latent_dim: int, max_horizon: int) -> None:
        super().__init__(latent_dim, config, max_horizon)


IDM = GCIDM | PairwiseIDM
AnyIDMConfig = GCIDMConfig | PairwiseConfig


def quantile_steps(logits_BH: Tensor, quantile: float) -> Tensor:
    """The least number of steps that is enough with this probability: (B,) int64, from 1 on."""
    cumulative_BH = logits_BH.softmax(dim=1).cumsum(dim=1)
    # Rounding may leave the last sum below a quantile near 1.
    return (cumulative_BH < quantile).sum(dim=1).clamp(max=logits_BH.shape[1] - 1) + 1
