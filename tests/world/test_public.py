"""Public checkpoints: the configuration is honoured exactly or refused by name, every tensor is
accounted for, nothing but tensors is loaded, and a model goes out and comes back unchanged.
"""

from __future__ import annotations

import copy
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from public_helpers import PAPER, SMALL, randomised, write_public

from artifact_helpers import names, refusal
from goalward.world.checkpoint import convert_world, load_world, save_world
from goalward.world.encoders import ConvConfig, ViTConfig
from goalward.world.lewm import LeWM, LeWMConfig
from goalward.world.public import Names, load_public, parse_public, public_json, save_public


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
        ("_target_", "os.system", "_target_ must be"),
        ("encoder._target_", "timm.create_model", "encoder._target_ must be"),
        ("encoder.size", "giant", "encoder.size must be"),
        ("encoder.patch_size", 15, "encoder: image_size 224 must be a multiple"),
        ("encoder.num_registers", 4, "encoder.num_registers: unknown key"),
        ("predictor.depth", 0, "predictor.depth must be at least 1"),
        ("predictor.depth", 6.0, "predictor.depth must be a whole number"),
        ("predictor.hidden_dim", 96, "predictor.hidden_dim: 96"),
        ("predictor.output_dim", 96, "predictor.output_dim: 96"),
        ("predictor.emb_dropout", 0.1, "predictor.emb_dropout: 0.1"),
        ("action_encoder.emb_dim", 96, "action_encoder.emb_dim: 96"),
        ("action_encoder.mlp_scale", 2, "action_encoder.mlp_scale must be 4"),
        ("action_encoder.input_dim", 5, "action_encoder.smoothed_dim: 10"),
        ("projector.input_dim", 96, "projector.input_dim: 96"),
        ("projector.norm_fn", None, "projector.norm_fn must be an object"),
        ("projector.norm_fn._target_", "torch.nn.LayerNorm", "projector.norm_fn._target_ must be"),
        ("projector.act_fn", "relu", "projector.act_fn: unknown key"),
        ("pred_proj.hidden_dim", 96, "pred_proj.hidden_dim: 96"),
        ("pred_proj", None, "pred_proj must be an object"),
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
    assert written["action_encoder"].pop("mlp_scale") == 4
    assert written == PAPER


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small") / "world"
    save_public(folder, randomised(SMALL), names="transformers-4")
    return folder


def changed(folder: Path, small: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    state = torch.load(small / "weights.pt")
    change(state)
    return write_public(folder, json.loads((small / "config.json").read_text()), state)


@pytest.mark.parametrize("release", ["transformers-4", "transformers-5"])
def test_an_exported_world_comes_back_with_its_id(release: Names, tmp_path: Path) -> None:
    model = randomised(SMALL)
    save_public(tmp_path / "public", model, names=release)
    save_world(tmp_path / "own", "best", model, None)
    world = load_world(tmp_path / "public")
    assert world.id == load_world(tmp_path / "own").id and world.actions is None
    assert not any(part.training for part in world.model.modules())


@pytest.mark.parametrize("prefix", ["module.", "model.", "model.module."])
def test_a_wrappers_prefix_is_stripped(small: Path, tmp_path: Path, prefix: str) -> None:
    state = {prefix + name: tensor for name, tensor in torch.load(small / "weights.pt").items()}
    config = json.loads((small / "config.json").read_text())
    folder = write_public(tmp_path / "world", config, state)
    assert load_world(folder).id == load_world(small).id


def test_a_mask_token_is_left_out_where_the_config_has_one(small: Path, tmp_path: Path) -> None:
    token = {"encoder.embeddings.mask_token": torch.zeros(1, 1, 192)}
    folder = changed(tmp_path / "world", small, lambda state: state.update(token))
    assert "mask_token is not part" in refusal(lambda: load_public(folder))
    config = json.loads((small / "config.json").read_text())
    del config["encoder"]["use_mask_token"]  # upstream's default is to have one
    (folder / "config.json").write_text(json.dumps(config))
    assert load_world(folder).id == load_world(small).id


def test_the_frameskip_divides_the_action_block(small: Path) -> None:
    assert load_public(small, frameskip=2).config.action_dim == 5
    message = refusal(lambda: load_public(small, frameskip=3))
    assert "action_encoder.input_dim: 10 is no multiple of the frameskip 3" in message


@pytest.mark.parametrize(
    ("encoder", "problem"),
    [(ConvConfig(), "knows no 'conv'"), (ViTConfig(image_size=28, dim=48), "(48, 12, 3)")],
)
def test_a_model_that_the_layout_does_not_have_is_not_exported(
    encoder: Any, problem: str, tmp_path: Path
) -> None:
    model = LeWM(replace(SMALL, encoder=encoder))
    assert problem in refusal(lambda: save_public(tmp_path / "world", model))
    assert names(tmp_path) == set()


def test_an_export_does_not_overwrite_and_leaves_no_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = randomised(SMALL)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "config.json").touch()
    assert "exists already" in refusal(lambda: save_public(tmp_path / "used", model))

    def full_disk(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(torch, "save", full_disk)
    with pytest.raises(OSError, match="no space left"):
        save_public(tmp_path / "world", model)
    assert names(tmp_path) == {"used"}


def test_a_tensor_that_does_not_fit_is_named(small: Path, tmp_path: Path) -> None:
    query = "encoder.encoder.layer.7.attention.attention.query.weight"
    missing = changed(tmp_path / "a", small, lambda state: state.pop(query))
    assert f"tensor {query} is missing" in refusal(lambda: load_public(missing))
    spoilt = torch.full((192, 192), torch.nan)
    unusable = changed(tmp_path / "b", small, lambda state: state.update({query: spoilt}))
    assert f"tensor {query} holds NaN" in refusal(lambda: load_public(unusable))


@pytest.mark.parametrize("kept", [0, 1000, -1])
def test_truncated_weights_are_refused_in_one_line(small: Path, tmp_path: Path, kept: int) -> None:
    folder = changed(tmp_path / "world", small, lambda state: None)
    path = folder / "weights.pt"
    path.write_bytes(path.read_bytes()[:kept])
    message = refusal(lambda: load_public(folder))
    assert str(path) in message and "damaged" in message


class Dangerous:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("touched"),))


def test_pickled_objects_are_refused_and_never_run(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = changed(tmp_path / "world", small, lambda state: state.update(extra=Dangerous()))
    message = refusal(lambda: load_world(folder))
    assert "never unpickled" in message and "state_dict()" in message
    (folder / "weights.pt").rename(folder / "lewm_object.ckpt")
    assert "lewm_object.ckpt: never unpickled" in refusal(lambda: load_world(folder))
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize("content", [[1, 2], {1: torch.zeros(1)}, torch.zeros(3)])
def test_a_file_without_a_state_dict_is_refused(content: Any, small: Path, tmp_path: Path) -> None:
    folder = changed(tmp_path / "world", small, lambda state: None)
    torch.save(content, folder / "weights.pt")
    assert "holds no state_dict" in refusal(lambda: load_public(folder))


def test_a_folder_must_hold_exactly_one_state_dict(small: Path, tmp_path: Path) -> None:
    folder = changed(tmp_path / "world", small, lambda state: None)
    (folder / "weights_epoch_9.pt").touch()
    message = refusal(lambda: load_world(folder))
    assert "2 .pt files" in message and "weights_epoch_9.pt" in message
    for path in folder.glob("*.pt"):
        path.unlink()
    assert "no .pt file" in refusal(lambda: load_public(folder))


# Conversion and download.


def test_a_download_is_converted(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def snapshot_download(repo_id: str, *, local_dir: Path, allow_patterns: list[str]) -> None:
        asked.append((repo_id, allow_patterns))
        for name in allow_patterns:
            shutil.copy(small / name, local_dir)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    convert_world("owner/name", tmp_path / "world", download=True)
    assert asked == [("owner/name", ["config.json", "weights.pt"])]
    assert load_world(tmp_path / "world").id == load_world(small).id


def test_a_failed_download_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise huggingface_hub.errors.LocalEntryNotFoundError("no\nnetwork")

    def message(repo_id: str = "owner/name") -> str:
        return refusal(lambda: convert_world(repo_id, tmp_path / "world", download=True))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    assert message().startswith("owner/name: not downloaded (no network); check the name")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "pip install 'goalward[hub]'" in message()
    for text in ("name", "a/b/c", "../name", "owner/..", "owner/", "o wner/name", "owner/na?me"):
        assert "give it as OWNER/NAME" in message(text)
    assert not (tmp_path / "world").exists()
