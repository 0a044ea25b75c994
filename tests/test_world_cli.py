"""World models on the command line: validated, converted, and refused in one line."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from world_helpers import dots_fixture, tiny_model  # noqa: F401

from cli_helpers import Capture, refusal
from goalward import cli
from goalward.data.episodes import open_episodes
from goalward.world.checkpoint import load_world, save_world
from goalward.world.encoders import ViTConfig
from goalward.world.lewm import LeWM, LeWMConfig, PredictorConfig
from goalward.world.public import save_public


def public_model() -> LeWM:
    """The smallest model that the public layout can describe."""
    torch.manual_seed(0)
    return LeWM(
        LeWMConfig(
            action_dim=2,
            encoder=ViTConfig(image_size=28),
            projector_dim=16,
            predictor=PredictorConfig(depth=1, heads=2, dim_head=8, mlp_dim=16),
        )
    ).eval()


@pytest.fixture(name="tiny")
def tiny_fixture(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    save_world(tmp_path / "tiny", "best", LeWM(tiny_model()), None)
    return tmp_path / "tiny"


def test_a_stored_model_is_validated_for_people_and_for_programs(
    capsys: Capture, dots: Path, tiny: Path
) -> None:
    assert cli.main(["validate-world", str(tiny), str(dots)]) == 0
    assert "error of copying" in capsys.readouterr().out
    assert cli.main(["validate-world", str(tiny), str(dots), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [error["steps"] for error in facts["prediction"]] == [1, 5]


def test_a_dataset_of_another_size_than_the_weights_is_refused(
    capsys: Capture, dots: Path, tmp_path: Path
) -> None:
    save_world(tmp_path / "vit", "best", public_model(), None)
    text = refusal(capsys, "validate-world", str(tmp_path / "vit"), str(dots))
    assert "frames have 16 pixels a side, the world model takes 28" in text
    save_world(tmp_path / "three", "best", LeWM(tiny_model(action_dim=3)), None)
    text = refusal(capsys, "validate-world", str(tmp_path / "three"), str(dots))
    assert "actions have 2 numbers, the world model takes 3" in text


def test_a_model_goes_to_the_public_layout_and_back_unchanged(
    capsys: Capture, tmp_path: Path
) -> None:
    save_world(tmp_path / "ours", "best", public_model(), None)
    for source, out, layout in (("ours", "public", "public"), ("public", "back", "goalward")):
        arguments = [str(tmp_path / source), str(tmp_path / out), "--layout", layout]
        assert cli.main(["convert-world", *arguments, "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert facts["folder"] == str(tmp_path / out)
    assert load_world(tmp_path / "back").id == load_world(tmp_path / "ours").id
    again = (str(tmp_path / "public"), str(tmp_path / "ours"))
    assert "exists already" in refusal(capsys, "convert-world", *again)


def test_a_public_model_gets_the_scale_of_the_actions_that_it_was_trained_on(
    capsys: Capture, tmp_path: Path, dots: Path
) -> None:
    save_public(tmp_path / "public", public_model())
    arguments = [str(tmp_path / "public"), str(tmp_path / "ours"), "--episodes", str(dots)]
    assert cli.main(["convert-world", *arguments]) == 0
    capsys.readouterr()
    with open_episodes(dots) as episodes:
        actions = episodes.read("action", 0, episodes.num_rows)
    scale = load_world(tmp_path / "ours").actions
    assert scale is not None
    np.testing.assert_allclose(scale.mean, np.nanmean(actions, axis=0), rtol=1e-6)
    np.testing.assert_allclose(scale.std, np.nanstd(actions, axis=0), rtol=1e-6)
    arguments = [str(tmp_path / "ours"), str(tmp_path / "back"), "--episodes", str(dots)]
    text = refusal(capsys, "convert-world", *arguments, "--layout", "public")
    assert "public files store no scale" in text and not (tmp_path / "back").exists()


def test_what_cannot_be_converted_is_refused_and_leaves_nothing(
    capsys: Capture, tmp_path: Path, tiny: Path
) -> None:
    out = tmp_path / "out"
    to_public = (str(out), "--layout", "public")
    assert "only 'vit'" in refusal(capsys, "convert-world", str(tiny), *to_public)
    text = refusal(capsys, "convert-world", "owner/name", str(out))
    assert "goalward convert-world owner/name FOLDER --download" in text
    assert not out.exists()


def test_damaged_and_dangerous_checkpoints_are_refused_in_one_line(
    capsys: Capture, tmp_path: Path, dots: Path, tiny: Path
) -> None:
    weights = tiny / "best.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "damaged or cut short" in refusal(capsys, "validate-world", str(tiny), str(dots))

    save_public(tmp_path / "public", public_model())
    config = tmp_path / "public" / "config.json"
    spoilt = json.loads(config.read_text())
    spoilt["encoder"]["_target_"] = "os.system"
    config.write_text(json.dumps(spoilt))
    text = refusal(capsys, "validate-world", str(tmp_path / "public"), str(dots))
    assert "encoder._target_" in text and "os.system" in text

    save_public(tmp_path / "pickled", public_model())
    (tmp_path / "pickled" / "weights.pt").write_bytes(pickle.dumps(public_model()))
    refusal(capsys, "validate-world", str(tmp_path / "pickled"), str(dots))
    (tmp_path / "lewm_object.ckpt").write_bytes(b"")
    text = refusal(capsys, "validate-world", str(tmp_path / "lewm_object.ckpt"), str(dots))
    assert "never unpickled" in text
