"""What LeWM is trained to minimise: the paper's Eq. (3), with exchangeable regularisers.

    L = mean |ẑ_{t+1} - z_{t+1}|² + λ · R(Z) + w · mean |â_t - a_t|² + v · mean |x̂_t - x_t|²

Gradients flow through both sides of the prediction. R is SIGReg in the paper. The last two terms
are auxiliaries that the paper does not have (weight 0 there): small networks read the action block
from two successive latents, and a thumbnail of the frame from one. Minutes of training on a CPU
need them: the first makes latents keep what the actions move, the second what is to be seen.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from goalward.config import require_at_least, require_at_most, require_types
from goalward.world.encoders import MOST_PIXELS, MOST_WIDTH
from goalward.world.lewm import LeWM
from goalward.world.sigreg import KNOTS, sigreg
from goalward.world.vicreg import vicreg


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectiveConfig:
    """The terms' kinds and weights; the defaults are the public configuration's."""

    regulariser: Literal["sigreg", "vicreg", "none"] = "sigreg"
    regulariser_weight: float = 0.09  # λ
    projections: int = 1024  # random directions of SIGReg
    knots: int = KNOTS  # points of SIGReg's integral
    inverse_weight: float = 0.0  # w
    thumbnail_weight: float = 0.0  # v
    thumbnail_size: int = 16  # pixels a side
    auxiliary_dim: int = 512  # hidden numbers of the auxiliary networks

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 0, "regulariser_weight", "inverse_weight", "thumbnail_weight")
        require_at_least(self, 1, "projections", "thumbnail_size", "auxiliary_dim")
        require_at_least(self, 2, "knots")
        require_at_most(self, MOST_WIDTH, "projections", "knots", "auxiliary_dim")
        require_at_most(self, MOST_PIXELS, "thumbnail_size")


@dataclass(frozen=True)
class Terms:
    """The terms of one batch's loss, unweighted, and the spread of its latents."""

    loss: Tensor  # the weighted sum
    prediction: Tensor
    regulariser: Tensor
    inverse: Tensor
    thumbnail: Tensor
    latent_std: Tensor  # mean over the latent's numbers of their standard deviation

    def stacked(self) -> Tensor:
        """All terms as one detached vector, in the order of TERMS."""
        return torch.stack([getattr(self, name).detach().float() for name in TERMS])


TERMS = tuple(field.name for field in fields(Terms))


class Objective(nn.Module):
    """LeWM together with what only its training needs."""

    def __init__(self, model: LeWM, config: ObjectiveConfig) -> None:
        super().__init__()
        self.model = model
        self.config = config
        dim = model.config.latent_dim
        self.inverse = self.thumbnail = None
        if config.inverse_weight:
            self.inverse = _head(2 * dim, config.auxiliary_dim, model.config.block_dim)
        if config.thumbnail_weight:
            self.thumbnail = ThumbnailHead(dim, config.auxiliary_dim, config.thumbnail_size)

    def forward(self, pixels_BTCHW: Tensor, actions_BTA: Tensor, directions_DP: Tensor) -> Terms:
        """The terms for windows of T frames with the T - 1 action blocks between them."""
        config, (batch, frames) = self.config, pixels_BTCHW.shape[:2]
        pixels_NCHW = pixels_BTCHW.flatten(0, 1)
        z_ND = self.model.encode(pixels_NCHW).float()
        z_BTD = z_ND.view(batch, frames, -1)
        prediction = (self.model.predict(z_BTD[:, :-1], actions_BTA) - z_BTD[:, 1:]).square().mean()
        with torch.autocast(z_ND.device.type, enabled=False):  # statistics need their digits
            regulariser = self._regulariser(z_BTD.transpose(0, 1), directions_DP)
        inverse = thumbnail = z_ND.new_zeros(())
        if self.inverse is not None:
            pairs_BT2D = torch.cat([z_BTD[:, :-1], z_BTD[:, 1:]], dim=-1)
            inverse = (self.inverse(pairs_BT2D) - actions_BTA).square().mean()
        if self.thumbnail is not None:
            thumbnail = self.thumbnail(z_ND, pixels_NCHW)
        loss = (
            prediction
            + config.regulariser_weight * regulariser
            + config.inverse_weight * inverse
            + config.thumbnail_weight * thumbnail
        )
        return Terms(loss, prediction, regulariser, inverse, thumbnail, z_ND.detach().std(0).mean())

    def _regulariser(self, z_TBD: Tensor, directions_DP: Tensor) -> Tensor:
        if self.config.regulariser == "sigreg":
            return sigreg(z_TBD, directions_DP, knots=self.config.knots)
        if self.config.regulariser == "vicreg":
            return vicreg(z_TBD)
        return z_TBD.new_zeros(())


class ThumbnailHead(nn.Module):
    """Reads a small picture of the frame from its latent, and says how far off it is.

    Thumbnails are measured in standard deviations from the data's mean picture, so that the
    error's scale does not depend on the task.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, dim: int, hidden: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.read = _head(dim, hidden, 3 * size**2)
        self.register_buffer("mean", torch.zeros(3 * size**2))
        self.register_buffer("std", torch.ones(()))

    def fit(self, pixels_NCHW: Tensor) -> None:
        """Take mean picture and spread from a sample of normalised frames."""
        small_ND = self._small(pixels_NCHW)
        self.mean.copy_(small_ND.mean(0))
        self.std.copy_((small_ND - self.mean).std().clamp_min(1e-3))

    def forward(self, z_ND: Tensor, pixels_NCHW: Tensor) -> Tensor:
        """The mean squared error: a scalar."""
        with torch.no_grad():
            truth_ND = (self._small(pixels_NCHW) - self.mean) / self.std
        return (self.read(z_ND) - truth_ND).square().mean()

    def _small(self, pixels_NCHW: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(pixels_NCHW, self.size).flatten(1)


def _head(inputs: int, hidden: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, outputs))
