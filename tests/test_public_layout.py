"""Public checkpoints: every tensor is accounted for, and nothing but tensors is loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from artifact_helpers import names, refusal
from goalward.world.checkpoint import load_world, save_world
from goalward.world.encoders import ConvConfig, ViTConfig
from goalward.world.lewm import LeWM
from goalward.world.public import Names, load_public, save_public
from public_helpers import SMALL, randomised, write_public


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
    assert "frameskip 0" in refusal(lambda: load_public(small, frameskip=0))


@pytest.mark.parametrize(
    ("encoder", "problem"),
    [
        (ConvConfig(), "knows no 'conv'"),
        (ViTConfig(image_size=28, dim=48), "(48, 12, 3)"),
    ],
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


# The weights.


def test_the_first_tensor_that_does_not_fit_is_named(small: Path, tmp_path: Path) -> None:
    query = "encoder.encoder.layer.7.attention.attention.query.weight"

    def message(change: Callable[[dict[str, Any]], Any]) -> str:
        folder = changed(tmp_path / str(len(names(tmp_path))), small, change)
        return refusal(lambda: load_public(folder))

    assert f"tensor {query} is missing" in message(lambda state: state.pop(query))
    assert "tensor extra.bias is not part" in message(
        lambda state: state.update({"extra.bias": torch.zeros(1)})
    )
    assert f"tensor {query} has shape (3, 192) instead of (192, 192)" in message(
        lambda state: state.update({query: torch.zeros(3, 192)})
    )
    assert f"tensor {query} is a int, not a plain tensor" in message(
        lambda state: state.update({query: 3})
    )
    assert "has type complex64 instead of float32" in message(
        lambda state: state.update({query: torch.zeros(192, 192, dtype=torch.complex64)})
    )
    nan = torch.full((192, 192), torch.nan)
    assert f"tensor {query} holds NaN" in message(lambda state: state.update({query: nan}))


def test_half_precision_is_widened(small: Path, tmp_path: Path) -> None:
    def halve(state: dict[str, Any]) -> None:
        state.update({key: t.half() for key, t in state.items() if t.is_floating_point()})

    model = load_public(changed(tmp_path / "world", small, halve))
    assert {p.dtype for p in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("kept", [0, 3, 1000, -20_000, -1])
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
