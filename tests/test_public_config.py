"""The public `config.json` is honoured exactly, or refused by the dotted name of what cannot be."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from artifact_helpers import refusal
from goalward.world.lewm import LeWMConfig
from goalward.world.public import load_public, parse_public, public_json
from public_helpers import PAPER, SMALL, write_public


def test_older_targets_and_left_out_defaults_are_understood() -> None:
    old = copy.deepcopy(PAPER) | {"_target_": "jepa.JEPA", "embed_dim": 192, "history_size": 3}
    for part, target in (
        ("predictor", "module.ARPredictor"),
        ("action_encoder", "module.Embedder"),
        ("projector", "module.MLP"),
        ("pred_proj", "module.MLP"),
    ):
        old[part]["_target_"] = target
        old[part].pop("output_dim", None)
    for key in ("dim_head", "emb_dropout"):
        del old["predictor"][key]
    assert parse_public(old).lewm(5) == parse_public(PAPER).lewm(5) == LeWMConfig(action_dim=2)


@pytest.mark.parametrize(
    ("size", "shape"),
    [
        ("tiny", (192, 12, 3)),
        ("small", (384, 12, 6)),
        ("base", (768, 12, 12)),
        ("large", (1024, 24, 16)),
    ],
)
def test_the_sizes_of_the_encoder_are_upstreams(size: str, shape: tuple[int, int, int]) -> None:
    config = copy.deepcopy(PAPER)
    config["encoder"]["size"] = size
    config["projector"]["input_dim"] = shape[0]
    vit = parse_public(config).encoder.vit()
    assert (vit.dim, vit.depth, vit.heads) == shape


@pytest.mark.parametrize(
    ("where", "value", "problem"),
    [
        ("_target_", "os.system", "_target_: expected"),
        ("encoder._target_", "timm.create_model", "encoder._target_: expected"),
        ("encoder.size", "giant", "encoder.size: expected"),
        ("encoder.patch_size", 15, "encoder: image_size 224 must be a multiple"),
        ("encoder.num_registers", 4, "encoder.num_registers: unknown key"),
        ("predictor.depth", 0, "predictor: depth must be at least 1"),
        ("predictor.depth", 6.0, "predictor.depth: expected int"),
        ("predictor.hidden_dim", 96, "predictor.hidden_dim: 96"),
        ("predictor.output_dim", 96, "predictor.output_dim: 96"),
        ("predictor.emb_dropout", 0.1, "predictor.emb_dropout: 0.1"),
        ("action_encoder.emb_dim", 96, "action_encoder.emb_dim: 96"),
        ("action_encoder.mlp_scale", 2, "action_encoder.mlp_scale: 2"),
        ("action_encoder.input_dim", 5, "action_encoder.smoothed_dim: 10"),
        ("projector.input_dim", 96, "projector.input_dim: 96"),
        ("projector.norm_fn", None, "projector.norm_fn: expected an object"),
        ("projector.norm_fn._target_", "torch.nn.LayerNorm", "projector.norm_fn._target_:"),
        ("projector.act_fn", "relu", "projector.act_fn: unknown key"),
        ("pred_proj.hidden_dim", 96, "pred_proj.hidden_dim: 96"),
        ("pred_proj", None, "pred_proj: expected an object"),
        ("embed_dim", 96, "embed_dim: 96"),
        ("history_size", 4, "history_size: 4"),
    ],
)
def test_what_the_config_asks_beyond_our_means_is_refused_by_its_name(
    where: str, value: object, problem: str, tmp_path: Path
) -> None:
    config = copy.deepcopy(PAPER)
    *path, key = where.split(".")
    entry = config
    for part in path:
        entry = entry[part]
    entry[key] = value
    message = refusal(lambda: load_public(write_public(tmp_path / "world", config, {})))
    assert "config.json: " + problem in message


def test_a_single_head_of_full_width_is_refused() -> None:
    # Upstream has no output layer then.
    config = copy.deepcopy(PAPER)
    config["predictor"] |= {"heads": 1, "dim_head": 192}
    assert "predictor.heads" in refusal(lambda: parse_public(config))


@pytest.mark.parametrize("missing", ["projector", "predictor", "encoder"])
def test_a_missing_part_is_named(missing: str) -> None:
    config = {key: value for key, value in PAPER.items() if key != missing}
    assert f"{missing}: missing key" in refusal(lambda: parse_public(config))


def test_what_we_write_is_what_we_read() -> None:
    for model in (SMALL, LeWMConfig(action_dim=5), LeWMConfig(action_dim=3, frameskip=4)):
        assert parse_public(public_json(model)).lewm(model.frameskip) == model
    written = public_json(LeWMConfig(action_dim=2))
    assert written["action_encoder"].pop("smoothed_dim") == 10
    assert written == PAPER
