"""What comes with the package: half the size, the same actions, evaluated without any dataset."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from goalward import bundle, cli
from goalward.control.act import GCIDMController
from goalward.control.checkpoint import (
    TrainedIDM,
    in_half_precision,
    load_trained_idm,
    model_id,
    save_trained_idm,
)
from goalward.evaluation.pairs import PairsConfig, draw_pairs, save_pairs
from goalward.tasks import get_task
from test_cli import refusal
from test_evaluate_cli import controller_fixture, episodes_fixture  # noqa: F401

Capture = pytest.CaptureFixture[str]
FRAMES = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3), dtype=np.uint8)
RUN = ["--in-distribution", "--offset", "10", "--budget", "8", "--device", "cpu", "--workers", "1"]


@pytest.fixture(name="bundled")
def bundled_fixture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, episodes: Path, controller: Path
) -> Path:
    """A package with one task."""
    folder = tmp_path / "bundled"
    folder.mkdir()
    monkeypatch.setattr(bundle, "FOLDER", folder)
    half = in_half_precision(load_trained_idm(controller))
    save_trained_idm(folder / "two-room.safetensors", half, half=True)
    config = PairsConfig(task="two-room", count=3, offset=10, episodes="all")
    save_pairs(folder / "two-room.npz", draw_pairs(episodes, config))
    return folder


def actions(model: TrainedIDM) -> np.ndarray:
    controller = GCIDMController(model)
    controller.reset(FRAMES[::-1].copy(), 50)
    return controller.act(FRAMES)


def test_a_file_of_half_the_size_gives_the_rounded_model_back_bit_for_bit(
    controller: Path, tmp_path: Path
) -> None:
    model = load_trained_idm(controller)
    half = in_half_precision(model)
    save_trained_idm(tmp_path / "half.safetensors", half, half=True)
    save_trained_idm(tmp_path / "whole.safetensors", model)
    small, large = (tmp_path / f"{name}.safetensors" for name in ("half", "whole"))
    assert small.stat().st_size < 0.6 * large.stat().st_size
    loaded = load_trained_idm(small)
    assert model_id(loaded) == model_id(half) != model_id(model)
    assert loaded.metadata.world_id != model.metadata.world_id  # another encoder, by its last bits
    np.testing.assert_array_equal(actions(loaded), actions(half))
    np.testing.assert_allclose(actions(loaded), actions(model), atol=0.02)
    assert all(t.dtype != torch.float16 for t in loaded.network.state_dict().values())


def test_half_precision_never_changes_a_weight_unasked(controller: Path, tmp_path: Path) -> None:
    model = load_trained_idm(controller)
    with pytest.raises(ValueError, match="would change tensor"):
        save_trained_idm(tmp_path / "m.safetensors", model, half=True)
    with torch.no_grad():
        next(model.network.parameters()).fill_(1e6)
    with pytest.raises(ValueError, match=r"in half precision: tensor .* infinity"):
        in_half_precision(model)


@pytest.mark.usefixtures("bundled")
def test_the_bundled_controller_is_evaluated_without_any_dataset(
    capsys: Capture, tmp_path: Path
) -> None:
    run = ["evaluate", "two-room", "--controller", "zero", "bundled", "--pairs", "2", *RUN]
    assert cli.main([*run, "--out", str(tmp_path / "e"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [m["method"] for m in facts["methods"]] == ["zero", "gc-idm"]
    assert all(m["rate"]["count"] == 2 for m in facts["methods"])


@pytest.mark.usefixtures("bundled")
def test_what_does_not_come_with_the_package_is_refused(capsys: Capture, tmp_path: Path) -> None:
    def said(task: str, *more: str) -> str:
        return refusal(capsys, "evaluate", task, "--out", str(tmp_path / "e"), *more)

    assert "only of: two-room" in said("push-t", "--controller", "bundled")
    blind = ("--controller", "zero", *RUN)
    assert "only of: two-room" in said("push-t", *blind)
    assert "pairs must be 1 to 3" in said("two-room", *blind, "--pairs", "4")
    assert "are others (" in said("two-room", *blind, "--pairs", "3", "--seed", "5")
    assert not (tmp_path / "e").exists()


def test_what_ships_is_small_and_of_its_task() -> None:
    shipped = sorted(bundle.FOLDER.glob("*.safetensors"))
    assert "two-room" in [path.stem for path in shipped]
    assert sum(path.stat().st_size for path in bundle.FOLDER.iterdir()) <= 40e6
    for path in shipped:
        metadata = load_trained_idm(bundle.controller_path(path.stem)).metadata
        pairs = bundle.bundled_pairs(path.stem, 50)
        assert metadata.task == pairs.metadata.config.task == path.stem
        # Pairs of episodes that neither world model nor controller was trained on.
        assert (
            pairs.metadata.config.episodes == "test"
            and metadata.split == pairs.metadata.config.split
        )


@pytest.mark.parametrize("protocol", ["moderate", "strict"])
@pytest.mark.parametrize(("task", "count"), [("two-room", 20), ("push-t", 150)])
def test_stricter_protocols_take_the_shipped_pairs_that_they_admit(
    task: str, count: int, protocol: str
) -> None:
    rule, every = get_task(task).protocols[protocol], bundle.bundled_pairs(task, 200).attempts
    found = bundle.bundled_pairs(task, count, protocol)
    admitted = [bool(rule.admits(a.start, a.goal)) for a in every]
    wanted = [a.recorded for a, is_in in zip(every, admitted, strict=True) if is_in][:count]
    np.testing.assert_array_equal([a.recorded for a in found.attempts], wanted)
    assert [a.pair for a in found.attempts] == list(range(count))
    assert found.metadata.config == PairsConfig(task=task, protocol=protocol, count=count)
    assert (
        found.metadata.scene.physics == rule.physics
    )  # of Two-Room: without a way through the wall
    with pytest.raises(ValueError, match=f"1 to {sum(admitted)}, .* for protocol {protocol}"):
        bundle.bundled_pairs(task, sum(admitted) + 1, protocol)


@pytest.mark.parametrize(("task", "least"), [("two-room", 16), ("push-t", 10), ("cube", 13)])
def test_what_ships_reaches_its_goals(
    capsys: Capture, tmp_path: Path, task: str, least: int
) -> None:
    run = ["evaluate", task, "--controller", "bundled", "--pairs", "16", "--json"]
    run += ["--out", str(tmp_path / "out"), "--device", "cpu", "--workers", "1"]
    assert cli.main(run) == 0
    methods = json.loads(capsys.readouterr().out)["methods"]
    (ours,) = (method for method in methods if method["subset"] == "all")
    assert ours["rate"]["successes"] >= least
