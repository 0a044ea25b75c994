"""The public LeWM layout: a folder with `config.json` and the state_dict `weights.pt`.

Our tensors bear the public names but for the encoder's, where the public ones are those that the
`transformers` library wrote: its release 4 and its release 5 differ, and both are read and written.
Only tensors are ever unpickled, and nothing is imported by name.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from goalward import defaults
from goalward.checks import one_line
from goalward.config import read_json, write_json
from goalward.files import sync
from goalward.world.lewm import LeWM
from goalward.world.public_config import PublicConfig, parse_public, public_json
from goalward.world.tensors import fill, require_finite

CONFIG, WEIGHTS = "config.json", "weights.pt"
NEVER_UNPICKLED = "never unpickled; export it with state_dict() to the public layout"
PICKLES = (".ckpt", ".pickle", ".pkl")
MASK_TOKEN = "encoder.embeddings.mask_token"  # noqa: S105 - no password
WRAPPERS = ("module.", "model.")  # what training wrappers put in front of every name

Names = Literal["transformers-4", "transformers-5"]

# Parts of the encoder's tensor names: ours, then theirs.
OUTER = {
    "class_token": "embeddings.cls_token",
    "positions": "embeddings.position_embeddings",
    "patches": "embeddings.patch_embeddings.projection",
    "norm": "layernorm",
}
BLOCKS: dict[Names, str] = {"transformers-4": "encoder.layer", "transformers-5": "layers"}
QKV: dict[Names, tuple[str, str, str]] = {
    "transformers-4": (
        "attention.attention.query",
        "attention.attention.key",
        "attention.attention.value",
    ),
    "transformers-5": ("attention.q_proj", "attention.k_proj", "attention.v_proj"),
}
INNER: dict[Names, dict[str, str]] = {
    "transformers-4": {
        "norm_attention": "layernorm_before",
        "out": "attention.output.dense",
        "norm_mlp": "layernorm_after",
        "fc1": "intermediate.dense",
        "fc2": "output.dense",
    },
    "transformers-5": {
        "norm_attention": "layernorm_before",
        "out": "attention.o_proj",
        "norm_mlp": "layernorm_after",
        "fc1": "mlp.fc1",
        "fc2": "mlp.fc2",
    },
}


def is_public(folder: Path) -> bool:
    """Whether the folder looks like the public layout, readable or not."""
    kinds = {path.suffix for path in folder.iterdir()}
    return (folder / CONFIG).is_file() and not kinds.isdisjoint((".pt", *PICKLES))


def load_public(folder: str | os.PathLike[str], *, frameskip: int = defaults.FRAMESKIP) -> LeWM:
    """Reads a public checkpoint into a model in evaluation mode.

    Args:
        folder: holds `config.json` and exactly one `.pt` file.
        frameskip: raw actions of an action block, which the files do not tell.

    Raises:
        ValueError: one line about the first thing that does not fit.
    """
    config_path, weights_path = Path(folder) / CONFIG, _weights_path(Path(folder))
    try:
        public = parse_public(read_json(config_path))
        config = public.lewm(frameskip)
    except ValueError as error:
        raise ValueError(one_line(f"{config_path}: {error}")) from error
    found = _unwrapped(_read_state_dict(weights_path))
    if public.encoder.use_mask_token:
        found.pop(MASK_TOKEN, None)
    with torch.random.fork_rng(devices=[]):  # initial weights are drawn, and overwritten
        model = LeWM(config)
    names: Names = "transformers-5" if _is_release_5(found) else "transformers-4"
    targets = _narrowed(public_tensors(model, names), public)
    fill(targets, found, weights_path)
    return model.eval()


def save_public(
    folder: str | os.PathLike[str], model: LeWM, *, names: Names = "transformers-4"
) -> None:
    """Writes a new folder in the public layout; action scale and frameskip have no place in it.

    Args:
        folder: must not exist yet, or be empty.
        model: its encoder must be a ViT of a public size.
        names: the release of `transformers` that the reader has. The files that LeWM's authors
            published have the names of release 4.

    Raises:
        ValueError: the folder is in use, or the layout has no such model.
    """
    config = public_json(model.config)
    tensors = {name: view.cpu().clone() for name, view in public_tensors(model, names).items()}
    require_finite(tensors, folder)
    with new_folder(Path(folder)) as partial:
        write_json(partial / CONFIG, config)
        torch.save(tensors, partial / WEIGHTS)


def public_tensors(model: LeWM, names: Names) -> dict[str, Tensor]:
    """The model's tensors under their public names, as views on the model's own memory."""
    views: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        public = _public_names(name, names)
        parts = tensor.chunk(len(public)) if len(public) > 1 else (tensor,)
        views.update(zip(public, parts, strict=True))
    return views


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yields a temporary sibling to write files into; it becomes `folder` on normal exit."""
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise ValueError(f"{folder}: exists already; delete it or choose another folder")
    folder = folder.absolute()  # "." has no name
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp")
    temporary.mkdir()
    try:
        yield temporary
        for path in (*temporary.iterdir(), temporary):
            sync(path)
        temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync(folder.parent)


def _public_names(name: str, names: Names) -> tuple[str, ...]:
    """The public names of one of our tensors: three for a fused query, key and value."""
    if not name.startswith("encoder."):
        return (name,)
    part, _, rest = name.removeprefix("encoder.").partition(".")
    if part != "blocks":
        return (".".join(filter(None, ("encoder", OUTER[part], rest))),)
    number, layer, kind = rest.split(".")
    layers = QKV[names] if layer == "qkv" else (INNER[names][layer],)
    return tuple(f"encoder.{BLOCKS[names]}.{number}.{their}.{kind}" for their in layers)


def _is_release_5(found: Mapping[str, object]) -> bool:
    return any(name.startswith("encoder.layers.") for name in found)


def _narrowed(views: dict[str, Tensor], public: PublicConfig) -> dict[str, Tensor]:
    """Narrows the action encoder's first map to the file's width, with zeros beyond it.

    Upstream maps an action block to `smoothed_dim` numbers, we to as many as it has: the numbers
    in excess are zero and meet zeros, so that the function is the same.
    """
    width, first = public.action_encoder.smoothed_dim, "action_encoder.patch_embed"
    narrow = {name: views[name] for name in (f"{first}.weight", f"{first}.bias")}
    second = views["action_encoder.embed.0.weight"]
    for view in (*narrow.values(), second):
        view.zero_()
    narrowed = {name: view[:width] for name, view in narrow.items()}
    return {**views, **narrowed, "action_encoder.embed.0.weight": second[:, :width]}


def _unwrapped(found: dict[str, object]) -> dict[str, object]:
    for prefix in WRAPPERS:
        if found and all(name.startswith(prefix) for name in found):
            return _unwrapped({name.removeprefix(prefix): value for name, value in found.items()})
    return found


def _weights_path(folder: Path) -> Path:
    candidates = sorted(folder.glob("*.pt"))
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        shown = ", ".join(path.name for path in candidates[:3])
        raise ValueError(f"{folder}: has {len(candidates)} .pt files ({shown}); leave one of them")
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLES)
    if pickles:
        raise ValueError(f"{folder / pickles[0]}: {NEVER_UNPICKLED}")
    raise ValueError(f"{folder}: no .pt file; add the state_dict as {WEIGHTS}")


def _read_state_dict(path: Path) -> dict[str, object]:
    try:
        found = torch.load(path, weights_only=True, map_location="cpu")
    except OSError:
        raise
    except Exception as error:  # a damaged file may raise anything
        raise ValueError(
            f"{path}: damaged, or holds other objects than tensors, which are {NEVER_UNPICKLED}"
        ) from error
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise ValueError(f"{path}: holds no state_dict but a {type(found).__name__}; export one")
    return dict(found)
