"""Inverse dynamics models on the disk: one safetensors file with everything that acting needs.

The file holds the world model, the network, the time-to-go head if there is one, and a card in its
header that describes them. It needs neither the dataset nor the training's folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from goalward.control.horizon import HorizonConfig
from goalward.control.networks import (
    GCIDM,
    GCIDMConfig,
    PairwiseConfig,
    PairwiseIDM,
    TimeToGo,
    TimeToGoConfig,
)
from goalward.core.checks import as_path, format_value
from goalward.core.config import canonical, parse_config, require_types, to_json
from goalward.core.machine import choose_device
from goalward.core.tensors import (
    Allowance,
    fill,
    read_tensors,
    require_finite,
    tensors_id,
    write_tensors,
)
from goalward.data.splits import SplitConfig
from goalward.data.windows import ActionScaler
from goalward.world.checkpoint import Weights, World, world_id
from goalward.world.lewm import LeWM, LeWMConfig

CARD = "card"
PARTS = ("world", "network", "time_to_go")


@dataclass(frozen=True, kw_only=True, slots=True)
class IDMMetadata:
    """What a file is, and what it was made from."""

    format: Literal["goalward-controller"] = "goalward-controller"
    version: Literal[1] = 1
    task: str | None
    world_id: str
    world: LeWMConfig
    action_scale: ActionScaler | None  # of the world model
    network: GCIDMConfig | PairwiseConfig
    time_to_go: TimeToGoConfig | None
    horizon: HorizonConfig
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    latents_id: str  # of the embedding that it was trained on
    split: SplitConfig  # which episodes of it were held out

    def __post_init__(self) -> None:
        require_types(self)
        size = self.network.action_dim
        if len(self.action_low) != size or len(self.action_high) != size:
            raise ValueError(f"action_low and action_high must have {size} numbers each")
        if any(low > high for low, high in zip(self.action_low, self.action_high, strict=True)):
            raise ValueError(
                "action_low must be at most action_high, got "
                f"{format_value(self.action_low)} and {format_value(self.action_high)}"
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
    world: LeWM
    network: GCIDM | PairwiseIDM
    time_to_go: TimeToGo | None
    path: Path | None = None  # the file that it was read from


def save_trained_idm(path: Path, model: TrainedIDM, *, half: bool = False) -> None:
    """Write the file, in place of an earlier one; it appears whole or not at all.

    Args:
        path: Where to.
        model: What to write.
        half: Store half precision. It must lose nothing: see `in_half_precision`.

    Raises:
        ValueError: a weight is not finite, or half precision would change it.
    """
    tensors = _tensors(model)
    require_finite(tensors, path)
    if half:
        tensors = {name: _halved(name, tensor) for name, tensor in tensors.items()}
    write_tensors(path, tensors, {CARD: canonical(to_json(model.metadata))})


def in_half_precision(model: TrainedIDM) -> TrainedIDM:
    """A copy with every weight rounded to half precision, and the id that its encoder then has.

    It computes in single precision as before; a file of half the size holds it exactly.

    Raises:
        ValueError: a weight is too large for half precision.
    """
    rounded = deepcopy(model)
    with torch.no_grad():
        for name, tensor in _tensors(rounded).items():
            if tensor.is_floating_point():
                tensor.copy_(tensor.half())
                require_finite({name: tensor}, "in half precision")
    world = world_id(rounded.world, rounded.metadata.action_scale)
    return replace(rounded, metadata=replace(rounded.metadata, world_id=world))


def load_trained_idm(
    path: str | Path, *, weights: Weights = "best", device: str | torch.device = "cpu"
) -> TrainedIDM:
    """Read a file that `save_trained_idm` wrote, or the named one of a training's folder.

    Raises:
        ValueError: one line about what is wrong and what to do.
    """
    device = device if isinstance(device, torch.device) else choose_device(device)
    path = _locate(as_path(path), weights)
    tensors, facts = read_tensors(path)
    if CARD not in facts:
        raise ValueError(f"{path}: not a controller file; give one that `goalward train` wrote")
    metadata = parse_config(IDMMetadata, facts[CARD].encode(), path)
    # Initial weights are drawn, and overwritten.
    with torch.random.fork_rng(devices=[]), Allowance(tensors.values(), path):
        model = new_inverse_model(metadata)
    for part, module in _modules(model).items():
        fill(module.state_dict(), _under(part, tensors), path)
    if unknown := [name for name in tensors if name.split(".")[0] not in _modules(model)]:
        raise ValueError(f"{path}: tensor {unknown[0]} is not part of this configuration")
    found = world_id(model.world, metadata.action_scale)
    if found != metadata.world_id:
        raise ValueError(
            f"{path}: its encoder is {found}, but it was trained on latents of "
            f"{metadata.world_id}; restore the file or train anew"
        )
    for module in _modules(model).values():
        module.to(device).eval()
    return replace(model, path=path)


def model_id(model: TrainedIDM) -> str:
    """16 hex digits that change with the card and with any weight."""
    return tensors_id(to_json(model.metadata), _tensors(model))


def new_inverse_model(metadata: IDMMetadata, world: World | None = None) -> TrainedIDM:
    """Initial weights from torch's generator, with a world model that is there already or not."""
    network, head = metadata.network.build(), None
    if metadata.time_to_go is not None:
        head = TimeToGo(
            metadata.time_to_go, metadata.network.latent_dim, metadata.network.max_horizon
        )
    model = LeWM(metadata.world) if world is None else world.model
    return TrainedIDM(metadata=metadata, world=model, network=network, time_to_go=head)


def _tensors(model: TrainedIDM) -> dict[str, Tensor]:
    return {
        f"{part}.{name}": tensor
        for part, module in _modules(model).items()
        for name, tensor in module.state_dict().items()
    }


def _halved(name: str, tensor: Tensor) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    half = tensor.half()
    if not torch.equal(half.to(tensor.dtype), tensor):
        raise ValueError(f"half precision would change tensor {name}; use in_half_precision first")
    return half


def _modules(model: TrainedIDM) -> dict[str, nn.Module]:
    found = {name: getattr(model, name) for name in PARTS}
    return {name: module for name, module in found.items() if module is not None}


def _under(part: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    prefix = f"{part}."
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def _locate(path: Path, weights: Weights) -> Path:
    file = path / f"{weights}.safetensors" if path.is_dir() else path
    if not file.is_file():
        raise ValueError(f"{file}: no such controller; give a file that `goalward train` wrote")
    return file
