"""The public LeWM layout, in and out: `config.json` for hydra, and a state_dict in `weights.pt`.

A configuration is honoured exactly, or refused by the dotted name of what we cannot build. Nothing
but tensors is read from a weights file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_type_hints

import torch
from torch import Tensor

from goalward import defaults
from goalward.core.checks import one_line
from goalward.core.config import (
    Fraction,
    Positive,
    config,
    from_json,
    read_json,
    to_json,
    write_json,
)
from goalward.core.files import fsync
from goalward.core.tensors import fill
from goalward.world.encoders import ViTConfig
from goalward.world.lewm import LeWM, LeWMConfig, PredictorConfig

CONFIG, WEIGHTS = "config.json", "weights.pt"
NEVER_UNPICKLED = "never unpickled; export it with state_dict() to the public layout"
PICKLES = (".ckpt", ".pickle", ".pkl")
MASK_TOKEN = "encoder.embeddings.mask_token"  # noqa: S105 - no password
WRAPPERS = ("module.", "model.")  # what training wrappers put in front of every name

Names = Literal["transformers-4", "transformers-5"]
Size = Literal["tiny", "small", "base", "large", "huge"]
SIZES: dict[Size, tuple[int, int, int]] = {  # dim, depth, heads
    "tiny": (192, 12, 3),
    "small": (384, 12, 6),
    "base": (768, 12, 12),
    "large": (1024, 24, 16),
    "huge": (1280, 32, 16),
}
# Parts of the encoder's tensor names: ours, then theirs in releases 4 and 5 of transformers. Our
# `qkv` is their q, k and v in a row.
NAMES = {
    "class_token": ("embeddings.cls_token", "embeddings.cls_token"),
    "positions": ("embeddings.position_embeddings", "embeddings.position_embeddings"),
    "patches": ("embeddings.patch_embeddings.projection", "embeddings.patch_embeddings.projection"),
    "norm": ("layernorm", "layernorm"),
    "norm_attention": ("layernorm_before", "layernorm_before"),
    "norm_mlp": ("layernorm_after", "layernorm_after"),
    "blocks": ("encoder.layer", "layers"),
    "q": ("attention.attention.query", "attention.q_proj"),
    "k": ("attention.attention.key", "attention.k_proj"),
    "v": ("attention.attention.value", "attention.v_proj"),
    "out": ("attention.output.dense", "attention.o_proj"),
    "fc1": ("intermediate.dense", "mlp.fc1"),
    "fc2": ("output.dense", "mlp.fc2"),
}


@config
class PublicEncoder:
    """Arguments of stable-pretraining's `vit_hf`."""

    _target_: Literal["stable_pretraining.backbone.utils.vit_hf"] = (
        "stable_pretraining.backbone.utils.vit_hf"
    )
    size: Size = "tiny"
    patch_size: Positive = 16
    image_size: Positive = 224
    pretrained: bool = False  # where training started; the weights replace it
    use_mask_token: bool = True  # one more tensor, which LeWM never uses

    def __post_init__(self) -> None:
        self.vit()  # which checks the sizes

    def vit(self) -> ViTConfig:
        """The same encoder as our configuration."""
        (dim, depth, heads), side, patch = SIZES[self.size], self.image_size, self.patch_size
        return ViTConfig(image_size=side, patch_size=patch, dim=dim, depth=depth, heads=heads)


@config
class PublicPredictor:
    """Arguments of LeWM's predictor."""

    _target_: Literal["stable_worldmodel.wm.lewm.module.Predictor", "module.ARPredictor"] = (
        "stable_worldmodel.wm.lewm.module.Predictor"
    )
    num_frames: Positive
    depth: Positive
    heads: Positive
    mlp_dim: Positive
    input_dim: Positive
    hidden_dim: Positive
    output_dim: Positive | None = None
    dim_head: Positive = 64
    dropout: Fraction = 0.0
    emb_dropout: float = 0.0


@config
class PublicEmbedder:
    """Arguments of the action encoder."""

    _target_: Literal["stable_worldmodel.wm.lewm.module.Embedder", "module.Embedder"] = (
        "stable_worldmodel.wm.lewm.module.Embedder"
    )
    input_dim: Positive = 10
    # Public files leave this out, Cube's too, whose action blocks have 25 numbers.
    smoothed_dim: Positive = 10
    emb_dim: Positive = 10
    mlp_scale: Literal[4] = 4


@config
class PublicNorm:
    """The only norm that LeWM's heads are known with."""

    _target_: Literal["torch.nn.BatchNorm1d"] = "torch.nn.BatchNorm1d"
    _partial_: Literal[True] = True


@config
class PublicMLP:
    """Arguments of a projector; without `norm_fn` it would be another network."""

    _target_: Literal["stable_worldmodel.wm.lewm.module.MLP", "module.MLP"] = (
        "stable_worldmodel.wm.lewm.module.MLP"
    )
    input_dim: Positive
    hidden_dim: Positive
    norm_fn: PublicNorm
    output_dim: Positive | None = None


@config
class PublicConfig:
    """The whole file."""

    _target_: Literal["stable_worldmodel.wm.lewm.LeWM", "jepa.JEPA"] = (
        "stable_worldmodel.wm.lewm.LeWM"
    )
    encoder: PublicEncoder
    predictor: PublicPredictor
    action_encoder: PublicEmbedder
    projector: PublicMLP
    pred_proj: PublicMLP
    embed_dim: Positive | None = None  # this and the next repeat what the parts say
    history_size: Positive | None = None

    def __post_init__(self) -> None:
        """Refuses sizes that differ from those that one LeWM would have."""
        part, actions, dim = self.predictor, self.action_encoder, self.predictor.input_dim
        first, last, smoothed = self.projector, self.pred_proj, actions.smoothed_dim
        needed = {
            "predictor.hidden_dim": (part.hidden_dim, dim),
            "predictor.output_dim": (part.output_dim or dim, dim),
            "predictor.emb_dropout": (part.emb_dropout, 0.0),
            "action_encoder.emb_dim": (actions.emb_dim, dim),
            "projector.input_dim": (first.input_dim, self.encoder.vit().dim),
            "projector.output_dim": (first.output_dim or first.input_dim, dim),
            "pred_proj.input_dim": (last.input_dim, dim),
            "pred_proj.output_dim": (last.output_dim or last.input_dim, dim),
            "pred_proj.hidden_dim": (last.hidden_dim, first.hidden_dim),
            "embed_dim": (self.embed_dim or dim, dim),
            "history_size": (self.history_size or part.num_frames, part.num_frames),
            "action_encoder.smoothed_dim": (smoothed, min(smoothed, actions.input_dim)),
        }
        for name, (found, wanted) in needed.items():
            if found != wanted:
                raise ValueError(f"{name}: {found} is not supported, here it must be {wanted}")
        if part.heads == 1 and part.dim_head == dim:
            # Upstream leaves out the attention's output layer then.
            raise ValueError("predictor.heads: a single head of full width is not supported")

    def lewm(self, frameskip: int) -> LeWMConfig:
        """The same model as our configuration, with action blocks of `frameskip` actions."""
        block, part = self.action_encoder.input_dim, self.predictor
        if block % frameskip:
            raise ValueError(
                f"action_encoder.input_dim: {block} is no multiple of the frameskip {frameskip}; "
                "give the frameskip that the model was trained with"
            )
        same = {field.name: getattr(part, field.name) for field in fields(PredictorConfig)}
        return LeWMConfig(
            action_dim=block // frameskip,
            encoder=self.encoder.vit(),
            frameskip=frameskip,
            history=part.num_frames,
            latent_dim=part.input_dim,
            projector_dim=self.projector.hidden_dim,
            predictor=PredictorConfig(**same),
        )


def parse_public(data: Any) -> PublicConfig:
    """Reads the parsed JSON; refuses what cannot be honoured by its dotted name."""
    return from_json(PublicConfig, _with_defaults(PublicConfig, data))


def _with_defaults(kind: Any, data: Any) -> Any:
    """Adds upstream's defaults where the file has no value; `from_json` checks the rest."""
    if not is_dataclass(kind) or not isinstance(data, dict):
        return data
    hints = get_type_hints(kind)
    given = {name: _with_defaults(hints.get(name), value) for name, value in data.items()}
    return {f.name: f.default for f in fields(kind) if f.default is not MISSING} | given


def public_json(config: LeWMConfig) -> dict[str, Any]:
    """The file's content for one of our models, if the public layout has such a model."""
    vit, dim, block = config.encoder, config.latent_dim, config.block_dim
    if not isinstance(vit, ViTConfig):
        raise ValueError(f"encoder: the public layout knows no {vit.kind!r}, only 'vit'")
    shape = (vit.dim, vit.depth, vit.heads)
    size = next((size for size in SIZES if SIZES[size] == shape), None)
    if size is None:
        known = ", ".join(f"{size} {shape}" for size, shape in SIZES.items())
        raise ValueError(
            f"encoder: the public layout knows no ViT of dim, depth and heads {shape}, only {known}"
        )

    def head(input_dim: int) -> PublicMLP:
        hidden, norm = config.projector_dim, PublicNorm()
        return PublicMLP(input_dim=input_dim, hidden_dim=hidden, norm_fn=norm, output_dim=dim)

    side, patch = vit.image_size, vit.patch_size
    ours = {"num_frames": config.history, **to_json(config.predictor)}
    public = PublicConfig(
        encoder=PublicEncoder(size=size, patch_size=patch, image_size=side, use_mask_token=False),
        predictor=PublicPredictor(input_dim=dim, hidden_dim=dim, output_dim=dim, **ours),
        action_encoder=PublicEmbedder(input_dim=block, smoothed_dim=block, emb_dim=dim),
        projector=head(vit.dim),
        pred_proj=head(dim),
    )
    assert public.lewm(config.frameskip) == config
    return {key: value for key, value in to_json(public).items() if value is not None}


def is_public(folder: Path) -> bool:
    """Whether the folder looks like the public layout, readable or not."""
    kinds = {path.suffix for path in folder.iterdir()}
    return (folder / CONFIG).is_file() and not kinds.isdisjoint((".pt", *PICKLES))


def load_public(folder: Path, *, frameskip: int = defaults.FRAMESKIP) -> LeWM:
    """Reads a folder with `config.json` and exactly one `.pt` file; the model is in `eval` mode."""
    config_path, weights_path = folder / CONFIG, _weights_path(folder)
    try:
        public = parse_public(read_json(config_path))
        config = public.lewm(frameskip)
    except ValueError as error:
        raise ValueError(one_line(f"{config_path}: {error}")) from error
    found = _read_state_dict(weights_path)
    if public.encoder.use_mask_token:
        found.pop(MASK_TOKEN, None)
    with torch.random.fork_rng(devices=[]):  # initial weights are drawn, and overwritten
        model = LeWM(config)
    is_release_5 = any(name.startswith("encoder.layers.") for name in found)
    views = public_tensors(model, "transformers-5" if is_release_5 else "transformers-4")
    fill(_narrowed(views, public.action_encoder.smoothed_dim), found, weights_path)
    return model.eval()


def save_public(folder: Path, model: LeWM, *, names: Names = "transformers-4") -> None:
    """Writes a new folder in the public layout, which stores no action scale and no frameskip.

    `names` is the release of `transformers` that the reader has. The files that LeWM's authors
    published have the names of release 4.
    """
    config = public_json(model.config)
    tensors = {name: view.cpu().clone() for name, view in public_tensors(model, names).items()}
    with new_folder(folder) as partial:
        write_json(partial / CONFIG, config)
        torch.save(tensors, partial / WEIGHTS)


def public_tensors(model: LeWM, names: Names) -> dict[str, Tensor]:
    """The model's tensors under their public names, as views on the model's own memory."""
    release = 0 if names == "transformers-4" else 1
    encoder_names = {ours: theirs[release] for ours, theirs in NAMES.items()}
    views: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        first, *parts = name.split(".")
        known = encoder_names if first == "encoder" else {}
        pieces = zip("qkv", tensor.chunk(3), strict=True) if "qkv" in parts else [("", tensor)]
        for one, view in pieces:
            ours = (one if part == "qkv" else part for part in parts)
            views[".".join([first, *(known.get(part, part) for part in ours)])] = view
    return views


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yields a temporary folder to write files into; it becomes `folder` on normal exit."""
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise ValueError(f"{folder}: exists already; delete it or choose another folder")
    folder = folder.absolute()  # "." has no name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", suffix=".tmp", dir=folder.parent) as temporary:
        partial = Path(temporary) / "new"
        partial.mkdir()
        yield partial
        for path in (*partial.iterdir(), partial):
            fsync(path)
        partial.rename(folder)
    fsync(folder.parent)


def _narrowed(views: dict[str, Tensor], width: int) -> dict[str, Tensor]:
    """Narrows the action encoder's first map to the file's width, with zeros beyond it.

    Upstream maps an action block to `smoothed_dim` numbers, we to as many as it has: the numbers
    in excess are zero and meet zeros, so that the function is the same.
    """
    first, second = "action_encoder.patch_embed", "action_encoder.embed.0.weight"
    for name in (f"{first}.weight", f"{first}.bias"):
        views |= {name: views[name].zero_()[:width]}
    return {**views, second: views[second].zero_()[:, :width]}


def _weights_path(folder: Path) -> Path:
    """The one weights file of a folder."""
    candidates = sorted(folder.glob("*.pt"))
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        shown = ", ".join(path.name for path in candidates[:3])
        raise ValueError(f"{folder}: has {len(candidates)} .pt files ({shown}); leave one of them")
    for path in sorted(folder.iterdir()):
        if path.suffix in PICKLES:
            raise ValueError(f"{path}: {NEVER_UNPICKLED}")
    raise ValueError(f"{folder}: no .pt file; add the state_dict as {WEIGHTS}")


def _read_state_dict(path: Path) -> dict[str, object]:
    """The content of a weights file, under its names without the prefixes of wrappers."""
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
    while prefix := next(
        (p for p in WRAPPERS if found and all(n.startswith(p) for n in found)), ""
    ):
        found = {name.removeprefix(prefix): value for name, value in found.items()}
    return dict(found)
