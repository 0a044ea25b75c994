"""Downloading a public checkpoint, and only when the user asks for it."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any, Literal, get_type_hints
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import torch
from torch import Tensor

from goalward import defaults
from goalward.core.checks import one_line
from goalward.core.config import from_json, read_json, require_at_least, to_json, write_json
from goalward.core.files import fsync
from goalward.core.tensors import fill, require_finite
from goalward.world.encoders import ViTConfig
from goalward.world.lewm import LeWM, LeWMConfig, PredictorConfig

MLP_SCALE = 4  # hidden width of the action encoder over its output's

Size = Literal["tiny", "small", "base", "large", "huge"]
SIZES: dict[tuple[int, int, int], Size] = {  # dim, depth, heads
    (192, 12, 3): "tiny",
    (384, 12, 6): "small",
    (768, 12, 12): "base",
    (1024, 24, 16): "large",
    (1280, 32, 16): "huge",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicEncoder:
    """Arguments of stable-pretraining's `vit_hf`."""

    _target_: Literal["stable_pretraining.backbone.utils.vit_hf"]
    size: Size = "tiny"
    patch_size: int = 16
    image_size: int = 224
    pretrained: bool = False  # where training started; the weights replace it
    use_mask_token: bool = True  # a tensor more, which LeWM never uses

    def __post_init__(self) -> None:
        self.vit()  # which checks the sizes

    def vit(self) -> ViTConfig:
        """The same encoder in our words."""
        dim, depth, heads = next(shape for shape, size in SIZES.items() if size == self.size)
        return ViTConfig(
            image_size=self.image_size,
            patch_size=self.patch_size,
            dim=dim,
            depth=depth,
            heads=heads,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicPredictor:
    """Arguments of LeWM's predictor."""

    _target_: Literal["stable_worldmodel.wm.lewm.module.Predictor", "module.ARPredictor"]
    num_frames: int
    depth: int
    heads: int
    mlp_dim: int
    input_dim: int
    hidden_dim: int
    output_dim: int | None = None
    dim_head: int = 64
    dropout: float = 0.0
    emb_dropout: float = 0.0

    def __post_init__(self) -> None:
        require_at_least(self, 1, "num_frames", "input_dim")
        self.config()  # which checks the rest

    def config(self) -> PredictorConfig:
        """The same predictor in our words."""
        return PredictorConfig(
            depth=self.depth,
            heads=self.heads,
            dim_head=self.dim_head,
            mlp_dim=self.mlp_dim,
            dropout=self.dropout,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicEmbedder:
    """Arguments of the action encoder."""

    _target_: Literal["stable_worldmodel.wm.lewm.module.Embedder", "module.Embedder"]
    input_dim: int = 10
    # Public files leave this out, Cube's too, whose action blocks have 25 numbers.
    smoothed_dim: int = 10
    emb_dim: int = 10
    mlp_scale: int = MLP_SCALE

    def __post_init__(self) -> None:
        require_at_least(self, 1, "input_dim", "smoothed_dim")


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicNorm:
    """The only norm that LeWM's heads are known with."""

    _target_: Literal["torch.nn.BatchNorm1d"]
    _partial_: Literal[True]


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicMLP:
    """Arguments of a projector; without `norm_fn` it would be another network."""

    _target_: Literal["stable_worldmodel.wm.lewm.module.MLP", "module.MLP"]
    input_dim: int
    hidden_dim: int
    norm_fn: PublicNorm
    output_dim: int | None = None

    def __post_init__(self) -> None:
        require_at_least(self, 1, "input_dim", "hidden_dim")


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicConfig:
    """The whole file."""

    _target_: Literal["stable_worldmodel.wm.lewm.LeWM", "jepa.JEPA"]
    encoder: PublicEncoder
    predictor: PublicPredictor
    action_encoder: PublicEmbedder
    projector: PublicMLP
    pred_proj: PublicMLP
    embed_dim: int | None = None  # this and the next only repeat what the parts say
    history_size: int | None = None

    def __post_init__(self) -> None:
        self._check_predictor()
        self._check_action_encoder()
        dim, first, last = self.predictor.input_dim, self.projector, self.pred_proj
        _require("projector.input_dim", first.input_dim, self.encoder.vit().dim)
        _require("projector.output_dim", first.output_dim or first.input_dim, dim)
        _require("pred_proj.input_dim", last.input_dim, dim)
        _require("pred_proj.output_dim", last.output_dim or last.input_dim, dim)
        _require("pred_proj.hidden_dim", last.hidden_dim, first.hidden_dim)
        _require("embed_dim", self.embed_dim, dim)
        _require("history_size", self.history_size, self.predictor.num_frames)

    def _check_predictor(self) -> None:
        part = self.predictor
        _require("predictor.hidden_dim", part.hidden_dim, part.input_dim)
        _require("predictor.output_dim", part.output_dim or part.input_dim, part.input_dim)
        _require("predictor.emb_dropout", part.emb_dropout, 0.0)
        if part.heads == 1 and part.dim_head == part.input_dim:
            # Upstream leaves out the attention's output layer then.
            raise ValueError("predictor.heads: a single head of full width is not supported")

    def _check_action_encoder(self) -> None:
        part = self.action_encoder
        _require("action_encoder.emb_dim", part.emb_dim, self.predictor.input_dim)
        _require("action_encoder.mlp_scale", part.mlp_scale, MLP_SCALE)
        if part.smoothed_dim > part.input_dim:
            raise ValueError(
                f"action_encoder.smoothed_dim: {part.smoothed_dim} (10 if left out) is not "
                f"supported, here it must not exceed input_dim, {part.input_dim}"
            )

    def lewm(self, frameskip: int) -> LeWMConfig:
        """The same model in our words.

        Raises:
            ValueError: action blocks cannot be made of `frameskip` actions.
        """
        block = self.action_encoder.input_dim
        if frameskip < 1 or block % frameskip:
            raise ValueError(
                f"action_encoder.input_dim: {block} is no multiple of the frameskip {frameskip}; "
                "give the frameskip that the model was trained with"
            )
        return LeWMConfig(
            action_dim=block // frameskip,
            encoder=self.encoder.vit(),
            frameskip=frameskip,
            history=self.predictor.num_frames,
            latent_dim=self.predictor.input_dim,
            projector_dim=self.projector.hidden_dim,
            predictor=self.predictor.config(),
        )


def parse_public(data: Any) -> PublicConfig:
    """Reads the parsed JSON, refusing by its dotted name whatever cannot be honoured."""
    return from_json(PublicConfig, _with_defaults(PublicConfig, data))


def public_json(config: LeWMConfig) -> dict[str, Any]:
    """The file's content for one of our models.

    Raises:
        ValueError: the public layout has no such model.
    """
    module = "stable_worldmodel.wm.lewm.module"
    public = {
        "_target_": "stable_worldmodel.wm.lewm.LeWM",
        "encoder": _encoder_json(config),
        "predictor": {
            "_target_": f"{module}.Predictor",
            "num_frames": config.history,
            "input_dim": config.latent_dim,
            "hidden_dim": config.latent_dim,
            "output_dim": config.latent_dim,
            **to_json(config.predictor),
            "emb_dropout": 0.0,
        },
        "action_encoder": {
            "_target_": f"{module}.Embedder",
            "input_dim": config.block_dim,
            "smoothed_dim": config.block_dim,
            "emb_dim": config.latent_dim,
        },
        "projector": _mlp_json(config, config.encoder.features),
        "pred_proj": _mlp_json(config, config.latent_dim),
    }
    parsed = parse_public(public)  # refuses what upstream would build otherwise
    assert parsed.lewm(config.frameskip) == config
    return public


def _encoder_json(config: LeWMConfig) -> dict[str, Any]:
    vit = config.encoder
    if not isinstance(vit, ViTConfig):
        raise ValueError(f"encoder: the public layout knows no {vit.kind!r}, only 'vit'")
    if (shape := (vit.dim, vit.depth, vit.heads)) not in SIZES:
        raise ValueError(
            f"encoder: the public layout knows no ViT of dim, depth and heads {shape}, only "
            f"{', '.join(f'{size} {known}' for known, size in SIZES.items())}"
        )
    return {
        "_target_": "stable_pretraining.backbone.utils.vit_hf",
        "size": SIZES[shape],
        "patch_size": vit.patch_size,
        "image_size": vit.image_size,
        "pretrained": False,
        "use_mask_token": False,
    }


def _mlp_json(config: LeWMConfig, input_dim: int) -> dict[str, Any]:
    return {
        "_target_": "stable_worldmodel.wm.lewm.module.MLP",
        "input_dim": input_dim,
        "output_dim": config.latent_dim,
        "hidden_dim": config.projector_dim,
        "norm_fn": {"_target_": "torch.nn.BatchNorm1d", "_partial_": True},
    }


def _with_defaults(kind: Any, data: Any) -> Any:
    """Upstream's defaults where the file is silent; `from_json` judges the rest."""
    if not is_dataclass(kind) or not isinstance(data, dict):
        return data
    hints = get_type_hints(kind)
    given = {name: _with_defaults(hints.get(name), value) for name, value in data.items()}
    defaults = {f.name: f.default for f in fields(kind) if f.default is not MISSING}
    return {**defaults, **given}


def _require(name: str, value: float | None, needed: float) -> None:
    if value is not None and value != needed:
        raise ValueError(f"{name}: {value} is not supported, here it must be {needed}")


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
            fsync(path)
        temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    fsync(folder.parent)


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


HUB = "https://huggingface.co"
TIMEOUT = 30.0  # seconds without an answer
LARGEST_FILE = 2 * 10**9  # bytes
CHUNK = 2**20  # bytes
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)


def is_repo_id(text: str) -> bool:
    """Whether the text has the form OWNER/NAME."""
    return _REPO_ID.fullmatch(text) is not None


def fetch_public(
    repo_id: str, folder: str | os.PathLike[str], *, endpoint: str | None = None
) -> None:
    """Downloads `config.json` and `weights.pt` of a public checkpoint into a new folder.

    Args:
        repo_id: such as `quentinll/lewm-pusht`.
        folder: must not exist yet, or be empty; it appears when both files are complete.
        endpoint: the hub; by default that of the environment variable HF_ENDPOINT, or else HUB.

    Raises:
        ValueError: one line about what is wrong with the arguments or with the download.
    """
    if not is_repo_id(repo_id):
        raise ValueError(f"{repo_id!r} is no repository; give it as OWNER/NAME")
    base = (endpoint or os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")
    _require_safe(base)
    with new_folder(Path(folder)) as partial:
        for name in (CONFIG, WEIGHTS):
            _download(f"{base}/{repo_id}/resolve/main/{name}", partial / name)


class _SafeRedirects(HTTPRedirectHandler):
    """Follows redirections, as hubs send to their storage, but to safe addresses only."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        with fp:
            _require_safe(newurl)
            return super().redirect_request(req, fp, code, msg, headers, newurl)


def _require_safe(url: str) -> None:
    parts = urlsplit(url)
    local = parts.scheme == "http" and parts.hostname in LOOPBACK
    if not parts.hostname or not (parts.scheme == "https" or local):
        raise ValueError(f"{url}: not downloaded, since it is not https; check HF_ENDPOINT")


def _download(url: str, path: Path) -> None:
    opener = build_opener(_SafeRedirects())
    with _network_errors(url), opener.open(url, timeout=TIMEOUT) as response:
        promised = int(response.headers.get("Content-Length") or -1)
        _require_small(url, promised)
        received = 0
        with path.open("xb") as stream:
            while chunk := response.read(CHUNK):
                received += len(chunk)
                _require_small(url, received)
                stream.write(chunk)
    if promised >= 0 and received != promised:
        raise ValueError(f"{url}: only {received} of {promised} bytes arrived; try again")


def _require_small(url: str, size: int) -> None:
    if size > LARGEST_FILE:
        raise ValueError(f"{url}: larger than {LARGEST_FILE / 1e9:g} GB, so no LeWM checkpoint")


@contextmanager
def _network_errors(url: str) -> Iterator[None]:
    try:
        yield
    except (URLError, HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
        if isinstance(error, URLError) and hasattr(error, "close"):
            error.close()  # the answer of the server that an HTTPError carries
        reason = one_line(str(error)) or type(error).__name__
        hint = "check the name and the connection"
        raise ValueError(f"{url}: not downloaded ({reason}); {hint}") from error
