"""World models survive the disk exactly, and what cannot be loaded is refused in one line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from world_helpers import tiny_model

from artifact_helpers import names, refusal
from goalward.core.config import read_json, to_json
from goalward.core.tensors import tensors_id
from goalward.data.episodes import open_episodes
from goalward.data.windows import ActionScaler
from goalward.world.checkpoint import load_world, require_fits, save_world
from goalward.world.encoders import ConvConfig, ViTConfig
from goalward.world.lewm import LeWM, LeWMConfig, PredictorConfig

SMALL = LeWMConfig(
    action_dim=2,
    encoder=ViTConfig(image_size=8, patch_size=4, dim=8, depth=2, heads=2),
    latent_dim=6,
    projector_dim=10,
    predictor=PredictorConfig(depth=1, heads=2, dim_head=4, mlp_dim=12),
)
SCALE = ActionScaler(mean=(0.5, -1.0), std=(2.0, 0.25))
WEIGHT = "predictor.transformer.layers.0.mlp.net.1.weight"


def a_model(seed: int = 0, config: LeWMConfig = SMALL) -> LeWM:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LeWM(config)
        for part in model.modules():
            if isinstance(part, nn.BatchNorm1d):
                part.state_dict()["running_mean"].normal_()
                part.state_dict()["running_var"].uniform_(0.5, 2)
                part.state_dict()["num_batches_tracked"].fill_(7)
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_world(tmp_path / "world", "best", a_model(), SCALE)
    return tmp_path / "world"


@pytest.mark.parametrize(
    "config", [SMALL, replace(SMALL, encoder=ConvConfig())], ids=["vit", "conv"]
)
def test_a_saved_world_loads_bit_for_bit(tmp_path: Path, config: LeWMConfig) -> None:
    model = a_model(config=config)
    save_world(tmp_path / "new" / "world", "best", model, SCALE)
    world = load_world(tmp_path / "new" / "world")
    assert world.model.config == config and world.actions == SCALE
    loaded = world.model.state_dict()
    assert loaded.keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert loaded[name].dtype == tensor.dtype and torch.equal(loaded[name], tensor), name


def test_a_folder_keeps_several_weights_and_nothing_else(folder: Path) -> None:
    save_world(folder, "last", a_model(1), SCALE)
    save_world(folder, "last", a_model(2), SCALE)
    assert names(folder) == {"model.json", "best.safetensors", "last.safetensors"}
    last = load_world(folder, weights="last").model.state_dict()[WEIGHT]
    assert torch.equal(last, a_model(2).state_dict()[WEIGHT])
    assert torch.equal(
        load_world(folder).model.state_dict()[WEIGHT], a_model().state_dict()[WEIGHT]
    )


def test_model_json_describes_the_tensors(folder: Path) -> None:
    metadata = read_json(folder / "model.json")
    assert metadata.keys() == {"format", "version", "model", "actions"}
    assert (metadata["format"], metadata["version"]) == ("goalward-lewm", 1)
    assert metadata["model"]["encoder"]["kind"] == "vit" and metadata["model"]["action_dim"] == 2
    assert metadata["actions"] == {"mean": [0.5, -1.0], "std": [2.0, 0.25]}


@pytest.mark.parametrize("size", ["mlp_dim", "dim_head"])
def test_a_model_json_with_a_huge_size_asks_for_no_memory(folder: Path, size: str) -> None:
    metadata = read_json(folder / "model.json")
    metadata["model"]["predictor"][size] = 2**16
    metadata["model"]["latent_dim"] = 2**16
    (folder / "model.json").write_text(json.dumps(metadata))
    assert "best.safetensors" in refusal(lambda: load_world(folder))


def test_the_id_does_not_depend_on_the_order_of_tensors_in_memory(tmp_path: Path) -> None:
    last = a_model()
    last.encoder.patches.to(memory_format=torch.channels_last)
    for name, model in (("plain", a_model()), ("channels last", last)):
        save_world(tmp_path / name, "best", model, None)
    assert load_world(tmp_path / "plain").id == load_world(tmp_path / "channels last").id


def test_the_id_changes_with_any_tensor(folder: Path) -> None:
    model = a_model()
    about = {"model": to_json(SMALL), "actions": to_json(SCALE)}
    ids = {tensors_id(about, model.state_dict())}
    assert ids == {load_world(folder).id}
    for tensor in model.state_dict().values():
        tensor.view(-1)[-1] += 1
        ids.add(tensors_id(about, model.state_dict()))
    assert len(ids) == 1 + len(model.state_dict())


def test_the_id_changes_with_the_action_scale_and_the_architecture(
    tmp_path: Path, folder: Path
) -> None:
    save_world(tmp_path / "none", "best", a_model(), None)
    save_world(tmp_path / "scale", "best", a_model(), replace(SCALE, mean=(0.5, 1.0)))
    # The same tensors, other blocks of actions.
    blocks = a_model(config=replace(SMALL, action_dim=5, frameskip=2))
    save_world(tmp_path / "blocks", "best", blocks, None)
    worlds = [folder, *(tmp_path / name for name in ("none", "scale", "blocks"))]
    assert len({load_world(path).id for path in worlds}) == 4


@pytest.mark.parametrize("kept", [0, -1])
def test_a_truncated_checkpoint_is_refused_in_one_line(folder: Path, kept: int) -> None:
    path = folder / "best.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    message = refusal(lambda: load_world(folder))
    assert str(path) in message and "cut short" in message


def test_weights_that_are_not_there_are_refused_with_those_that_are(folder: Path) -> None:
    message = refusal(lambda: load_world(folder, weights="last"))
    assert "last.safetensors" in message and "has best" in message


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"version": 2}, "version must be 1, got 2"),
        ({"format": "other"}, "format must be 'goalward-lewm'"),
        ({"epoch": 3}, "epoch: unknown key"),
        ({"actions": {"mean": [0.0], "std": [1.0]}}, "a scale of 1 numbers for actions of 2"),
    ],
)
def test_a_model_json_that_does_not_fit_is_refused(
    folder: Path, change: dict[str, Any], problem: str
) -> None:
    metadata = read_json(folder / "model.json") | change
    (folder / "model.json").write_text(json.dumps(metadata))
    message = refusal(lambda: load_world(folder))
    assert "model.json" in message and problem in message


def test_what_is_no_folder_of_a_world_is_refused_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    message = refusal(lambda: load_world(tmp_path / "nowhere"))
    assert "no such folder" in message and "train" in message
    assert "no world model here" in refusal(lambda: load_world(tmp_path))
    (tmp_path / "config.json").write_text("{}")  # as every stage has
    assert "no world model here" in refusal(lambda: load_world(tmp_path))
    (tmp_path / "weights.pt").touch()
    assert "give the folder" in refusal(lambda: load_world("weights.pt"))


@pytest.mark.parametrize("name", ["lewm_object.ckpt", "model.pkl", "model.pickle"])
def test_a_pickle_is_refused_unread(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"cos\nabort\n(tR.")  # would end the process
    message = refusal(lambda: load_world(tmp_path / name))
    assert "never unpickled" in message and "state_dict()" in message


def test_data_of_another_size_is_refused_with_both_numbers(dots: Path) -> None:
    with open_episodes(dots) as episodes:
        require_fits(tiny_model(), episodes)
        message = refusal(lambda: require_fits(tiny_model(action_dim=5), episodes))
        assert "actions have 2 numbers, the world model takes 5" in message
        message = refusal(lambda: require_fits(SMALL, episodes))
        assert "frames have 16 pixels" in message and "--image-size 8" in message
