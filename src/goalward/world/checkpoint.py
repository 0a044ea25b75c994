"""World models on the disk: a folder with `model.json` and one or more `<name>.safetensors`.

`model.json` holds the architecture and the scale of the actions, the other files the tensors.
Folders in the public layout (see `public`) are read, too, and converted.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from goalward import defaults
from goalward.core.artifacts import MANIFEST, open_stage
from goalward.core.checks import as_path, one_line
from goalward.core.config import config, from_json, read_config, to_json, write_json
from goalward.core.tensors import make_module, read_tensors, tensors_id, write_tensors
from goalward.data.episodes import Episodes, open_episodes
from goalward.data.splits import SplitConfig
from goalward.data.windows import ActionScaler, action_scale, require_finite_actions, sizes
from goalward.world import public
from goalward.world.lewm import LeWM, LeWMConfig

STAGE = "train-world"
MODEL = "model.json"
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)

Weights = Literal["best", "last"]


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """A trained world model, ready to use: a `WorldModel`."""

    model: LeWM  # in evaluation mode
    actions: ActionScaler | None  # None in public checkpoints, which do not store it
    id: str  # see `world_id`
    folder: Path | None = None  # where it was read from
    split: SplitConfig = field(default_factory=SplitConfig)  # of its training

    @property
    def image_size(self) -> int:
        """Pixels a side of the frames that `encode` takes."""
        return self.model.image_size

    @property
    def latent_dim(self) -> int:
        """D, the numbers of a latent."""
        return self.model.latent_dim

    @property
    def frameskip(self) -> int:
        """Environment steps in a model step."""
        return self.model.config.frameskip

    @property
    def history(self) -> int:
        """Model steps that the predictor sees."""
        return self.model.config.history

    def encode(self, pixels_NCHW: Tensor) -> Tensor:
        """Normalised frames to latents."""
        return self.model.encode(pixels_NCHW)

    def rollout(self, z_BHD: Tensor, actions_BTA: Tensor) -> Tensor:
        """Latents after every action from the H-th on."""
        return self.model.rollout(z_BHD, actions_BTA)


@config
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


def require_world(encoder: object) -> World:
    """The encoder, if it is a world model."""
    if not isinstance(encoder, World):
        raise ValueError(
            "a registered encoder is not stored and predicts nothing: planning and export need a "
            "world model that goalward trained or read"
        )
    return encoder


def save_world(folder: Path, name: Weights, model: LeWM, actions: ActionScaler | None) -> None:
    """Writes `model.json` and `<name>.safetensors`, in place of earlier ones."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / MODEL, to_json(_Metadata(model=model.config, actions=actions)))
    write_tensors(folder / f"{name}.safetensors", model.state_dict())


def load_world(
    path: str | os.PathLike[str],
    *,
    weights: Weights = "best",
    device: str | torch.device = "cpu",
    frameskip: int = defaults.FRAMESKIP,
) -> World:
    """Reads a world model from a folder that `save_world` wrote or in the public layout.

    The public layout has no choice of weights, and does not store its frameskip.
    """
    folder, actions = as_path(path), None
    _require_folder(folder, os.fspath(path))
    split = SplitConfig()  # where no training is known
    if (folder / MANIFEST).is_file():
        split = from_json(SplitConfig, open_stage(folder, STAGE).config["split"])
    if (folder / MODEL).is_file():
        metadata = read_config(_Metadata, folder / MODEL)
        model = _read_model(folder / f"{weights}.safetensors", metadata.model)
        actions = metadata.actions
    elif public.is_public(folder):
        model = public.load_public(folder, frameskip=frameskip)
    else:
        raise ValueError(
            f"{folder}: no world model here (neither {MODEL} nor a public config.json with "
            "weights.pt); give the folder of a trained or downloaded one"
        )
    identity, model = world_id(model, actions), model.to(device).eval()
    return World(model=model, actions=actions, id=identity, folder=folder, split=split)


def world_id(model: LeWM, actions: ActionScaler | None) -> str:
    """Identifies a model: changes with the architecture, the scale of actions and any weight."""
    about: dict[str, Any] = {"model": to_json(model.config)}
    return tensors_id({**about, "actions": actions and to_json(actions)}, model.state_dict())


def require_fits(config: LeWMConfig, episodes: Episodes) -> None:
    """Refuses data whose actions or frames have another size than the model, or are not finite."""
    action_dim, size = sizes(episodes)
    if action_dim != config.action_dim:
        raise ValueError(
            f"{episodes.path}: actions have {action_dim} numbers, the world model takes "
            f"{config.action_dim}; use data of the task that the model is for"
        )
    if size != (needed := config.encoder.image_size):
        raise ValueError(
            f"{episodes.path}: frames have {size} pixels a side, the world model takes {needed}; "
            f"collect with --image-size {needed}, or train a model for these frames with "
            f"--set model.encoder.image_size={size}"
        )
    require_finite_actions(episodes)


def convert_world(
    source: str,
    out: Path,
    *,
    to: Literal["goalward", "public"] = "goalward",
    weights: Weights = "best",
    frameskip: int = defaults.FRAMESKIP,
    names: public.Names = "transformers-4",
    download: bool = False,
    episodes: Path | None = None,
) -> None:
    """Read a world model, from a folder or a repository, and write it to the new folder `out`.

    `weights` chooses among those of a folder in our layout. Public files store neither a frameskip
    nor the scale of actions that planners need: `episodes` is the training data, to compute it.
    """
    if episodes is not None and to == "public":
        raise ValueError("public files store no scale of actions; leave --episodes out")
    with tempfile.TemporaryDirectory(prefix="goalward-") as folder:
        path = _download(source, Path(folder)) if download else source
        world = load_world(path, weights=weights, frameskip=frameskip)
    if to == "public":
        public.save_public(out, world.model, names=names)
        return
    actions = world.actions
    if episodes is not None:
        with open_episodes(episodes) as opened:
            actions = action_scale(opened, np.arange(opened.num_episodes))
    with public.new_folder(out) as partial:
        save_world(partial, "best", world.model, actions)


def _download(repository: str, folder: Path) -> Path:
    """Download a public world model from Hugging Face into a folder."""
    if not REPOSITORY.fullmatch(repository):
        raise ValueError(f"{repository!r} is no repository; give it as OWNER/NAME")
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ValueError(
            "downloading needs huggingface_hub, which is not installed; "
            "install it with: pip install 'goalward[hub]'"
        ) from error
    wanted = [public.CONFIG, public.WEIGHTS]
    try:
        snapshot_download(repository, local_dir=folder, allow_patterns=wanted)
    except OSError as error:  # its own errors are among them
        reason = one_line(str(error)) or type(error).__name__
        raise ValueError(
            f"{repository}: not downloaded ({reason}); check the name and the connection"
        ) from error
    return folder


def _require_folder(folder: Path, given: str) -> None:
    if folder.is_dir():
        return
    problem = "no such folder; train a world model first, or give the folder of one"
    if folder.suffix in public.PICKLES:
        problem = public.NEVER_UNPICKLED
    elif folder.is_file():
        problem = "a file; give the folder that holds it"
    elif REPOSITORY.fullmatch(given):
        command = f"goalward convert-world {given} FOLDER --download"
        problem = f"no such folder; if it is a public model, download it: {command}"
    raise ValueError(f"{given}: {problem}")


def _read_model(path: Path, config: LeWMConfig) -> LeWM:
    if not path.is_file():
        there = ", ".join(sorted(found.stem for found in path.parent.glob("*.safetensors")))
        raise ValueError(f"{path}: no such weights; the folder has {there or 'none'}")
    tensors, _ = read_tensors(path)
    return make_module(lambda: LeWM(config), tensors, path)
