"""World models on the disk: a folder with `model.json` and one or more `<name>.safetensors`.

`model.json` holds the architecture and the scale of the actions, the other files the tensors.
Folders in the public layout are read as well; see `public_layout`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch

from goalward import defaults
from goalward.core.artifacts import MANIFEST, load_manifest
from goalward.core.checks import as_path
from goalward.core.config import (
    differences,
    from_json,
    read_config,
    read_json,
    to_json,
    write_json,
)
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
from goalward.world.lewm import LeWM, LeWMConfig
from goalward.world.public import NEVER_UNPICKLED, PICKLES, is_public, is_repo_id, load_public

STAGE = "train-world"
MODEL = "model.json"

Weights = Literal["best", "last"]


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """A trained world model, ready to use."""

    model: LeWM  # in evaluation mode
    actions: ActionScaler | None  # None in public checkpoints, which do not tell it
    id: str  # see `world_id`; not that of a file
    folder: Path | None = None  # where it was read from
    split: SplitConfig = field(default_factory=SplitConfig)  # its training's


@dataclass(frozen=True, kw_only=True, slots=True)
class _Metadata:
    """The content of `model.json`."""

    format: Literal["goalward-lewm"] = "goalward-lewm"
    version: Literal[1] = 1
    model: LeWMConfig
    actions: ActionScaler | None

    def __post_init__(self) -> None:
        size = self.model.action_dim
        if self.actions is not None and len(self.actions.mean) != size:
            raise ValueError(
                f"actions: a scale of {len(self.actions.mean)} numbers for actions of {size}"
            )


def save_world(
    folder: str | os.PathLike[str], name: Weights, model: LeWM, actions: ActionScaler | None
) -> None:
    """Writes `<name>.safetensors`, in place of an earlier one, and `model.json` if need be.

    Raises:
        ValueError: the folder holds another model's `model.json`, or a weight is not finite.
    """
    folder = Path(folder)
    metadata = to_json(_Metadata(model=model.config, actions=actions))
    path = folder / f"{name}.safetensors"
    require_finite(model.state_dict(), path)
    folder.mkdir(parents=True, exist_ok=True)
    _write_card(folder / MODEL, metadata)
    write_tensors(path, model.state_dict())


def load_world(
    path: str | os.PathLike[str],
    *,
    weights: Weights = "best",
    device: str | torch.device = "cpu",
    frameskip: int = defaults.FRAMESKIP,
) -> World:
    """Reads a world model from a folder that `save_world` wrote or in the public layout.

    Args:
        path: the folder.
        weights: which of the folder's weights; the public layout has one set of them.
        device: where the model is to live.
        frameskip: environment steps a model step, which the public layout does not tell.

    Raises:
        ValueError: one line about what is wrong and what to do.
    """
    folder = as_path(path)
    _require_folder(folder, os.fspath(path))
    if (folder / MODEL).is_file():
        metadata = read_config(_Metadata, folder / MODEL)
        model, actions = _read_model(folder / f"{weights}.safetensors", metadata), metadata.actions
    elif is_public(folder):
        model, actions = load_public(folder, frameskip=frameskip), None
    else:
        raise ValueError(
            f"{folder}: no world model here (neither {MODEL} nor a public config.json with "
            "weights.pt); give the folder of a trained or downloaded one"
        )
    identity = world_id(model, actions)
    return World(
        model=model.to(device).eval(),
        actions=actions,
        id=identity,
        folder=folder,
        split=_training_split(folder),
    )


def world_id(model: LeWM, actions: ActionScaler | None) -> str:
    """What a model is known by: changes with the architecture, the scale and any weight."""
    about = {"model": to_json(model.config), "actions": actions and to_json(actions)}
    return tensors_id(about, model.state_dict())


def require_fits(world: World, *, action_dim: int, image_size: int) -> None:
    """Refuses data whose raw actions or frames are not of the size that the weights need."""
    config = world.model.config
    if action_dim != config.action_dim:
        raise ValueError(
            f"the data has actions of {action_dim} numbers, the world model needs "
            f"{config.action_dim}; use data of the task that it was trained on"
        )
    if image_size != (needed := config.encoder.image_size):
        raise ValueError(
            f"the data has frames of {image_size} pixels, the world model needs {needed}; "
            f"collect with --image-size {needed}, or train a model on this data"
        )


def _training_split(folder: Path) -> SplitConfig:
    """How the model's training held out episodes; the default where no training is known."""
    if not (folder / MANIFEST).is_file():
        return SplitConfig()
    config = load_manifest(folder, stage=STAGE).config
    return from_json(SplitConfig, config["split"])


def _require_folder(folder: Path, given: str) -> None:
    if folder.suffix in PICKLES and not folder.is_dir():
        raise ValueError(f"{given}: {NEVER_UNPICKLED}")
    if folder.is_file():
        raise ValueError(f"{given}: a file; give the folder that holds it")
    if not folder.is_dir():
        remedy = "train a world model first, or give the folder of one"
        if is_repo_id(given):
            command = f"goalward convert-world {given} --download --out FOLDER"
            remedy = f"if it is a public model, download it: {command}"
        raise ValueError(f"{given}: no such folder; {remedy}")


def _read_model(path: Path, metadata: _Metadata) -> LeWM:
    if not path.is_file():
        there = ", ".join(sorted(found.stem for found in path.parent.glob("*.safetensors")))
        raise ValueError(f"{path}: no such weights; the folder has {there or 'none'}")
    tensors, _ = read_tensors(path)
    # Initial weights are drawn, and overwritten.
    with torch.random.fork_rng(devices=[]), Allowance(tensors.values(), path):
        model = LeWM(metadata.model)
    fill(model.state_dict(), tensors, path)
    return model


def _write_card(path: Path, metadata: dict[str, object]) -> None:
    if path.is_file():
        if (found := read_json(path)) != metadata:
            changes = differences(found, metadata)
            raise ValueError(f"{path}: describes another model ({changes}); use another folder")
        return
    write_json(path, metadata)
