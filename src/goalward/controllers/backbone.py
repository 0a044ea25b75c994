"""What the inverse dynamics models share: standardised latents, the MLP and the action head.

Shapes: B pairs, D latent numbers, F hidden features, A numbers that the head gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from goalward.world.tensors import require_tensor

HEAD_STD = 0.01  # of the head's initial weights, so that first actions are close to 0


class Standardise(nn.Module):
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
        self.standardise = Standardise(latent_dim)
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


def require_dropout(dropout: float) -> None:
    """Refuse a dropout that is no share of the features."""
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must lie in [0, 1), got {dropout}")


def _hidden_layer(inputs: int, outputs: int, dropout: float) -> Iterator[nn.Module]:
    yield kaiming_linear(inputs, outputs)
    yield nn.LayerNorm(outputs)
    yield nn.GELU()
    yield nn.Dropout(dropout)
