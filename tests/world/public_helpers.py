"""Public LeWM configurations, and models whose every tensor is random."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from goalward.world.encoders import ViTConfig
from goalward.world.lewm import LeWM, LeWMConfig, PredictorConfig

M = TypeVar("M", bound=nn.Module)

BATCH_NORM = {"_target_": "torch.nn.BatchNorm1d", "_partial_": True}
PAPER: dict[str, Any] = {
    "_target_": "stable_worldmodel.wm.lewm.LeWM",
    "encoder": {
        "_target_": "stable_pretraining.backbone.utils.vit_hf",
        "size": "tiny",
        "patch_size": 14,
        "image_size": 224,
        "pretrained": False,
        "use_mask_token": False,
    },
    "predictor": {
        "_target_": "stable_worldmodel.wm.lewm.module.Predictor",
        "num_frames": 3,
        "input_dim": 192,
        "hidden_dim": 192,
        "output_dim": 192,
        "depth": 6,
        "heads": 16,
        "mlp_dim": 2048,
        "dim_head": 64,
        "dropout": 0.1,
        "emb_dropout": 0.0,
    },
    "action_encoder": {
        "_target_": "stable_worldmodel.wm.lewm.module.Embedder",
        "input_dim": 10,
        "emb_dim": 192,
    },
    "projector": {
        "_target_": "stable_worldmodel.wm.lewm.module.MLP",
        "input_dim": 192,
        "output_dim": 192,
        "hidden_dim": 2048,
        "norm_fn": BATCH_NORM,
    },
    "pred_proj": {
        "_target_": "stable_worldmodel.wm.lewm.module.MLP",
        "input_dim": 192,
        "output_dim": 192,
        "hidden_dim": 2048,
        "norm_fn": BATCH_NORM,
    },
}
# The smallest model that the layout has, all but the encoder.
SMALL = LeWMConfig(
    action_dim=2,
    encoder=ViTConfig(image_size=28),
    latent_dim=8,
    projector_dim=10,
    predictor=PredictorConfig(depth=1, heads=2, dim_head=4, mlp_dim=12),
)


def randomise(model: M) -> M:
    """Leaves no tensor as it was built, zeros and running statistics included."""
    rng = torch.Generator().manual_seed(0)
    for name, tensor in model.state_dict().items():
        if name.endswith("num_batches_tracked"):
            tensor.fill_(11)
        elif name.endswith("running_var"):
            tensor.uniform_(0.5, 2.0, generator=rng)
        else:
            tensor.add_(torch.randn(tensor.shape, generator=rng), alpha=0.05)
    return model.eval()


def randomised(config: LeWMConfig) -> LeWM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return randomise(LeWM(config))


def write_public(folder: Path, config: dict[str, Any], state: dict[str, Tensor]) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    torch.save(state, folder / "weights.pt")
    return folder
