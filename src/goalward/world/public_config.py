"""The `config.json` of public LeWM checkpoints, read without importing what it names.

The file tells the hydra library what to call with which arguments. Here it is data: the known
targets stand below with their parameters and upstream's defaults, and anything else is refused.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Literal, get_type_hints

from goalward.config import from_json, require_at_least, to_json
from goalward.world.encoders import ViTConfig
from goalward.world.lewm import LeWMConfig, PredictorConfig

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
