"""World models from one layout into another, and from Hugging Face when asked."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal

import numpy as np

from goalward import defaults
from goalward.data.episodes import open_episodes
from goalward.data.windows import ActionScaler, action_scale
from goalward.world.checkpoint import Weights, load_world, save_world
from goalward.world.lewm import num_parameters
from goalward.world.public import Names, fetch_public, new_folder, save_public


def convert_world(
    source: str,
    out: Path,
    *,
    to: Literal["goalward", "public"] = "goalward",
    weights: Weights = "best",
    frameskip: int = defaults.FRAMESKIP,
    names: Names = "transformers-4",
    download: bool = False,
    episodes: Path | None = None,
) -> dict[str, str]:
    """Read a world model, from a folder or a repository, and write it to `out`.

    Args:
        source: Folder or repository.
        out: Folder to write.
        to: Layout to write.
        weights: Which weights of a folder in our layout.
        frameskip: Environment steps a model step, which public files do not tell.
        names: Whose tensor names a public file gets.
        download: Fetch the repository.
        episodes: What the model was trained on, if `out` is to tell the scale of its actions:
            planners need it, and public files do not tell it.

    Returns:
        What was written, for people to read.

    Raises:
        ValueError: something is wrong with the source, or `out` cannot hold what it is to hold.
    """
    if episodes is not None and to == "public":
        raise ValueError("public files hold no scale of actions; leave --episodes out")
    scale = None if episodes is None else _scale_of(episodes)
    if download:
        with tempfile.TemporaryDirectory(prefix="goalward-") as folder:
            fetched = Path(folder) / "public"
            fetch_public(source, fetched)
            return _convert(str(fetched), out, to, weights, frameskip, names, scale)
    return _convert(source, out, to, weights, frameskip, names, scale)


def _scale_of(path: Path) -> ActionScaler:
    with open_episodes(path) as episodes:
        return action_scale(episodes, np.arange(episodes.num_episodes))


def _convert(
    source: str,
    out: Path,
    to: Literal["goalward", "public"],
    weights: Weights,
    frameskip: int,
    names: Names,
    scale: ActionScaler | None,
) -> dict[str, str]:
    world = load_world(source, weights=weights, frameskip=frameskip)
    if to == "public":
        save_public(out, world.model, names=names)
    else:
        with new_folder(out) as partial:
            save_world(partial, "best", world.model, world.actions if scale is None else scale)
    config = world.model.config
    return {
        "world": world.id,
        "parameters": f"{num_parameters(world.model):,}",
        "tensors": f"{len(world.model.state_dict())} of ours",
        "frames": f"{config.encoder.image_size} px",
        "actions": f"{config.action_dim} numbers, blocks of {config.frameskip}",
        "folder": str(out),
    }
