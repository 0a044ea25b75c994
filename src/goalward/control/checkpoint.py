"""Inverse dynamics models on disk: one safetensors file with everything that acting needs.

It holds the world model, the network and the time-to-go head if there is one; its header holds
`IDMMetadata`. It needs neither the dataset nor the training's folder.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from goalward.control.networks import IDM, AnyIDMConfig, HorizonConfig, TimeToGo, TimeToGoConfig
from goalward.core.artifacts import MANIFEST, open_stage
from goalward.core.config import canonical, config, parse_config, to_json
from goalward.core.tensors import (
    make_module,
    read_tensors,
    require_finite,
    tensors_id,
    write_tensors,
)
from goalward.data.splits import SplitConfig
from goalward.data.windows import ActionScaler
from goalward.world.checkpoint import Weights, World, require_world, world_id
from goalward.world.lewm import LeWM, LeWMConfig
from goalward.world.protocol import Encoder, NamedEncoder

STAGE = "train"  # the stage whose folder a training is
METADATA = "metadata"  # key in the file's header


@config
class IDMMetadata:
    """What a file is, and what it was made from."""

    format: Literal["goalward-controller"] = "goalward-controller"
    version: Literal[1] = 1
    task: str | None
    world_id: str  # of the encoder
    world: LeWMConfig | NamedEncoder
    action_scaler: ActionScaler | None  # of the world model
    network: AnyIDMConfig
    time_to_go: TimeToGoConfig | None
    horizon: HorizonConfig
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    latents_id: str  # of the latents that it was trained on
    split: SplitConfig  # which episodes of them were held out

    def __post_init__(self) -> None:
        size = self.network.action_dim
        if len(self.action_low) != size or len(self.action_high) != size:
            raise ValueError(f"action_low and action_high must have {size} numbers each")
        if any(low > high for low, high in zip(self.action_low, self.action_high, strict=True)):
            raise ValueError(
                f"action_low must be at most action_high, got {self.action_low} and "
                f"{self.action_high}"
            )
        if self.network.latent_dim != self.world.latent_dim:
            raise ValueError(
                f"network.latent_dim is {self.network.latent_dim}, the world model's latents have "
                f"{self.world.latent_dim} numbers"
            )


@dataclass(frozen=True, kw_only=True)
class TrainedIDM:
    """A trained inverse dynamics model, with the world model that it belongs to."""

    metadata: IDMMetadata
    encoder: Encoder  # the world model, or a registered encoder, which the file only names
    network: IDM
    time_to_go: TimeToGo | None
    path: Path | None = None  # the file that it was read from

    @property
    def world(self) -> World:
        """The world model; refused where the encoder is none."""
        return require_world(self.encoder)


def new_idm(metadata: IDMMetadata, encoder: Encoder) -> TrainedIDM:
    """Initial weights from torch's generator, for an encoder that exists already."""
    return TrainedIDM(metadata=metadata, encoder=encoder, **_new_networks(metadata))


def _new_networks(metadata: IDMMetadata) -> dict[str, Any]:
    network, head = metadata.network.build(), metadata.time_to_go
    sizes = metadata.network.latent_dim, metadata.network.max_horizon
    return {"network": network, "time_to_go": head and TimeToGo(head, *sizes)}


def save_trained_idm(path: Path, model: TrainedIDM, *, half: bool = False) -> None:
    """Write the file; `half` writes what `in_half_precision` gives, in half the size."""
    if half:
        model = in_half_precision(model)
    tensors = _tensors(model)
    require_finite(tensors, path)
    if half:
        tensors = {k: t.half() if t.is_floating_point() else t for k, t in tensors.items()}
    write_tensors(path, tensors, {METADATA: canonical(to_json(model.metadata))})


def in_half_precision(model: TrainedIDM) -> TrainedIDM:
    """A copy with every weight rounded to half precision, and the id that its encoder then has.

    It still computes in single precision.
    """
    rounded = deepcopy(model)
    tensors = _tensors(rounded)
    for tensor in tensors.values():
        if tensor.is_floating_point():
            tensor.copy_(tensor.half())
    require_finite(tensors, "in half precision")
    identity = world_id(rounded.world.model, rounded.world.actions)
    return replace(
        rounded,
        metadata=replace(rounded.metadata, world_id=identity),
        encoder=replace(rounded.world, id=identity),
    )


def load_trained_idm(
    path: Path, *, weights: Weights = "best", device: str | torch.device = "cpu"
) -> TrainedIDM:
    """Read a file that `save_trained_idm` wrote, or the named one of a training's folder."""
    file = path / f"{weights}.safetensors" if path.is_dir() else path
    if not file.is_file():
        raise ValueError(f"{file}: no such controller; give a file that `goalward train` wrote")
    if path.is_dir() and (path / MANIFEST).is_file():
        open_stage(path, STAGE)
    tensors, facts = read_tensors(file)
    if METADATA not in facts:
        raise ValueError(
            f"{file}: not a controller file of this version; give one that `goalward train` wrote"
        )
    metadata = parse_config(IDMMetadata, facts[METADATA].encode(), file)
    about = metadata.world
    parts = make_module(
        lambda: _module_dict(
            world=LeWM(about) if isinstance(about, LeWMConfig) else None, **_new_networks(metadata)
        ),
        tensors,
        file,
    )
    modules: dict[str, Any] = dict(parts.to(device).eval().items())
    if isinstance(about, NamedEncoder):
        encoder = about.load(metadata.world_id)
    else:
        encoder = _world(metadata, modules["world"], file)
    return TrainedIDM(
        metadata=metadata,
        encoder=encoder,
        network=modules["network"],
        time_to_go=modules.get("time_to_go"),
        path=file,
    )


def _world(metadata: IDMMetadata, model: LeWM, file: Path) -> World:
    """The world model of a file, which must be the one that made the latents."""
    actions, identity = metadata.action_scaler, metadata.world_id
    if (found := world_id(model, actions)) != identity:
        raise ValueError(
            f"{file}: its encoder is {found}, but it was trained on latents of {identity}; restore "
            "the file or train again"
        )
    return World(model=model, actions=actions, id=identity, split=metadata.split)


def model_id(model: TrainedIDM) -> str:
    """16 hex digits that change with the metadata and with any weight."""
    return tensors_id(to_json(model.metadata), _tensors(model))


def _tensors(model: TrainedIDM) -> dict[str, Tensor]:
    """All weights by part and name, not copied; those of a registered encoder are not ours."""
    world = model.encoder.model if isinstance(model.encoder, World) else None
    parts = _module_dict(world=world, network=model.network, time_to_go=model.time_to_go)
    return parts.state_dict()


def _module_dict(**parts: nn.Module | None) -> nn.ModuleDict:
    return nn.ModuleDict({name: part for name, part in parts.items() if part is not None})
