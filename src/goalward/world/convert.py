"""World models from one layout into another, and from Hugging Face when asked."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal

from goalward import defaults
from goalward.world.checkpoint import Weights, load_world, save_world
from goalward.world.fetch import fetch_public
from goalward.world.lewm import num_parameters
from goalward.world.public_layout import Names, new_folder, save_public


def convert_world(
    source: str,
    out: Path,
    *,
    to: Literal["goalward", "public"] = "goalward",
    weights: Weights = "best",
    frameskip: int = defaults.FRAMESKIP,
    names: Names = "transformers-4",
    download: bool = False,
) -> dict[str, str]:
    """Read a world model, from a folder or a repository, and write it to `out`.

    Returns:
        What was written, for people to read.
    """
    if download:
        with tempfile.TemporaryDirectory(prefix="goalward-") as folder:
            fetched = Path(folder) / "public"
            fetch_public(source, fetched)
            return _convert(str(fetched), out, to, weights, frameskip, names)
    return _convert(source, out, to, weights, frameskip, names)


def _convert(
    source: str,
    out: Path,
    to: Literal["goalward", "public"],
    weights: Weights,
    frameskip: int,
    names: Names,
) -> dict[str, str]:
    world = load_world(source, weights=weights, frameskip=frameskip)
    if to == "public":
        save_public(out, world.model, names=names)
    else:
        with new_folder(out) as partial:
            save_world(partial, "best", world.model, world.actions)
    config = world.model.config
    return {
        "world": world.id,
        "parameters": f"{num_parameters(world.model):,}",
        "tensors": f"{len(world.model.state_dict())} of ours",
        "frames": f"{config.encoder.image_size} px",
        "actions": f"{config.action_dim} numbers, blocks of {config.frameskip}",
        "folder": str(out),
    }
