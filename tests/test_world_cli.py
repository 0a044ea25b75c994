"""World models on the command line: validated, converted, and refused in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from public_helpers import SMALL, randomised

from cli_helpers import Capture, document, refusal
from goalward import cli
from goalward.data.episodes import open_episodes
from goalward.world.checkpoint import load_world, save_world
from goalward.world.public import save_public


def test_a_model_goes_to_the_public_layout_and_back_unchanged(
    capsys: Capture, tmp_path: Path
) -> None:
    save_world(tmp_path / "ours", "best", randomised(SMALL), None)
    for source, out, layout in (("ours", "public", "public"), ("public", "back", "goalward")):
        arguments = [str(tmp_path / source), str(tmp_path / out), "--layout", layout]
        facts = document(capsys, "convert-world", *arguments)
        assert facts["folder"] == str(tmp_path / out)
    assert load_world(tmp_path / "back").id == load_world(tmp_path / "ours").id
    again = (str(tmp_path / "public"), str(tmp_path / "ours"))
    assert "exists already" in refusal(capsys, "convert-world", *again)


def test_a_public_model_gets_the_scale_of_the_actions_that_it_was_trained_on(
    capsys: Capture, tmp_path: Path, dots: Path
) -> None:
    save_public(tmp_path / "public", randomised(SMALL))
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
    capsys: Capture, tmp_path: Path, tiny_world: Path
) -> None:
    out = tmp_path / "out"
    to_public = (str(out), "--layout", "public")
    assert "only 'vit'" in refusal(capsys, "convert-world", str(tiny_world), *to_public)
    text = refusal(capsys, "convert-world", "owner/name", str(out))
    assert "goalward convert-world owner/name FOLDER --download" in text
    assert not out.exists()
