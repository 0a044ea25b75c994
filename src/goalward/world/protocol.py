"""What the package needs of an encoder and of a world model, and how a foreign one joins.

A controller needs an `Encoder` only; planners need a `WorldModel`. LeWM is one of many: any
function or torch module from frames to latents becomes an encoder with `FunctionEncoder`, and a
name with `register_encoder`. Shapes: N frames, D latent numbers, B plans of T action blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from goalward.core.config import Positive, config
from goalward.core.registry import Registry


@runtime_checkable
class Encoder(Protocol):
    """Maps frames to latents; it is frozen."""

    @property
    def id(self) -> str:
        """Changes with the weights: latents and controllers name the encoder that they need."""

    @property
    def image_size(self) -> int:
        """Pixels a side of the frames that `encode` takes."""

    @property
    def latent_dim(self) -> int:
        """D, the numbers of a latent."""

    def encode(self, pixels_NCHW: Tensor) -> Tensor:
        """Latents (N, D) of frames (N, 3, image_size, image_size), float32.

        Colours are normalised with the mean and standard deviation of ImageNet.
        """


@runtime_checkable
class WorldModel(Encoder, Protocol):
    """Also predicts latents from actions."""

    @property
    def frameskip(self) -> int:
        """Environment steps in a model step; an action block holds as many raw actions."""

    @property
    def history(self) -> int:
        """Model steps that a prediction can use."""

    def rollout(self, z_BHD: Tensor, actions_BTA: Tensor) -> Tensor:
        """Latents (B, T - H + 1, D) after every action block from the H-th on."""


class FunctionEncoder(nn.Module):
    """A function or a torch module as an `Encoder`.

    Args:
        function: Normalised frames (N, 3, image_size, image_size) to latents (N, D).
        id: Identifies function and weights; another function needs another id.
        latent_dim: D.
        image_size: Pixels a side.
    """

    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        *,
        id: str,  # noqa: A002 - as in the protocol
        latent_dim: int,
        image_size: int,
    ) -> None:
        super().__init__()
        self.id, self.latent_dim, self.image_size = id, latent_dim, image_size
        self.function = function

    def encode(self, pixels_NCHW: Tensor) -> Tensor:
        """Latents (N, D) of normalised frames."""
        return self.function(pixels_NCHW)


@config
class NamedEncoder:
    """How files refer to a registered encoder, whose weights they do not hold."""

    name: str  # or place
    image_size: Positive
    latent_dim: Positive

    def load(self, identity: str) -> Encoder:
        """The encoder, if it is still the one with this id."""
        encoder = get_encoder(self.name)
        if encoder.id != identity:
            raise ValueError(
                f"encoder {self.name} is {encoder.id} now, but {identity} is needed; register that "
                "one, or embed and train again"
            )
        return encoder


ENCODERS: Registry[Callable[[], Encoder]] = Registry("encoder", {}, callable)


def register_encoder(name: str, load: Callable[[], Encoder]) -> None:
    """Let a name stand for an encoder; `load` makes it when it is first needed."""
    ENCODERS.register(name, load)


def is_encoder_name(text: str) -> bool:
    """Whether a text is a registered name, or a place such as `package.module:LOAD`."""
    return text in ENCODERS or (":" in text and not Path(text).exists())


def get_encoder(name: str) -> Encoder:
    """The encoder that a name or a place stands for."""
    encoder = ENCODERS.get(name)()
    if not isinstance(encoder, Encoder):
        raise ValueError(
            f"encoder {name}: its function made a {type(encoder).__name__}, expected an object "
            "with id, image_size, latent_dim and encode"
        )
    return encoder
