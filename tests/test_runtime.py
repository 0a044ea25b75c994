"""Exported controllers: the same actions without torch, from one file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from goalward import cli
from goalward.control.act import GCIDMController
from goalward.control.checkpoint import TrainedIDM, load_trained_idm, model_id
from goalward.control.export import export_onnx
from goalward.control.horizon import HorizonConfig
from goalward.runtime.onnx import OnnxController
from test_cli import refusal
from test_evaluate_cli import arguments, controller_fixture, episodes_fixture  # noqa: F401

Capture = pytest.CaptureFixture[str]
FRAMES = np.random.default_rng(0).integers(0, 256, (4, 64, 64, 3), dtype=np.uint8)
GOALS = np.random.default_rng(1).integers(0, 256, (4, 64, 64, 3), dtype=np.uint8)


@pytest.fixture(name="model", scope="module")
def model_fixture(controller: Path) -> TrainedIDM:
    return load_trained_idm(controller)


@pytest.fixture(name="exported", scope="module")
def exported_fixture(model: TrainedIDM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "controller.onnx"
    export_onnx(model, path)
    return path


@pytest.mark.parametrize(
    "horizon",
    [
        HorizonConfig(mode="budget"),
        HorizonConfig(mode="fixed", steps=3),
        HorizonConfig(mode="time-to-go", level=0.3),
    ],
    ids=lambda horizon: horizon.mode,
)
def test_an_exported_controller_acts_as_the_one_that_it_was_made_from(
    model: TrainedIDM, tmp_path: Path, horizon: HorizonConfig
) -> None:
    metadata = export_onnx(model, tmp_path / "c.onnx", horizon)
    assert metadata.model_id == model_id(model) and metadata.horizon == horizon
    ours, theirs = OnnxController(tmp_path / "c.onnx", threads=1), GCIDMController(model, horizon)
    for controller in (ours, theirs):
        controller.reset(GOALS, [50, 3, 20, 1])
    for _ in range(3):
        np.testing.assert_allclose(ours.act(FRAMES), theirs.act(FRAMES), atol=1e-5)
    for controller in (ours, theirs):
        controller.reset(GOALS[:1], 9, environments=[2])
    few = np.array([2, 0])
    np.testing.assert_allclose(
        ours.act(FRAMES[:2], environments=few), theirs.act(FRAMES[:2], environments=few), atol=1e-5
    )
    for controller in (ours, theirs):
        controller.reset(GOALS[0], 50)
    assert ours.act(FRAMES[0]).shape == (2,)


def test_it_needs_no_torch(exported: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"  # whoever imports it fails
        "import numpy as np\n"
        "from goalward.runtime.onnx import OnnxController\n"
        f"controller = OnnxController({str(exported)!r}, threads=1)\n"
        "frames = np.zeros((2, 64, 64, 3), dtype=np.uint8)\n"
        "controller.reset(frames, 50)\n"
        "print(controller.act(frames).shape)\n"
    )
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout == "(2, 2)\n"


def test_a_controller_is_exported_and_compared_from_the_command_line(
    capsys: Capture, tmp_path: Path, controller: Path, episodes: Path
) -> None:
    out = tmp_path / "c.onnx"
    assert cli.main(["export", str(controller), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == out.stat().st_size
    run = arguments(tmp_path / "e", episodes, controller, "--pairs", "2")
    assert cli.main([*run, "--controller", str(out), "gc-idm", "--json"]) == 0
    onnx, torch = json.loads(capsys.readouterr().out)["methods"]
    assert (onnx["method"], torch["method"]) == ("gc-idm-onnx@c", "gc-idm")
    assert "give the one that it was made from" in refusal(capsys, *run, "--pairwise", str(out))
    assert onnx["rate"] == torch["rate"] and onnx["steps"] == torch["steps"]


def test_what_is_no_exported_controller_is_refused(
    capsys: Capture, tmp_path: Path, exported: Path, model: TrainedIDM
) -> None:
    with pytest.raises(ValueError, match="no such file"):
        OnnxController(tmp_path / "missing.onnx")
    (tmp_path / "cut.onnx").write_bytes(exported.read_bytes()[:5000])
    with pytest.raises(ValueError, match="damaged"):
        OnnxController(tmp_path / "cut.onnx")
    with pytest.raises(ValueError, match="threads must be at least 1"):
        OnnxController(exported, threads=0)
    controller = OnnxController(exported)
    with pytest.raises(ValueError, match="64 pixels a side"):
        controller.reset(FRAMES[:, :32], 50)
    assert controller._environments._steps_left_B is None  # a refused reset changes nothing
    with pytest.raises(ValueError, match=r"ends in \.onnx"):
        export_onnx(model, tmp_path / "c.bin")
    with pytest.raises(ValueError, match="no such folder"):
        export_onnx(model, tmp_path / "nowhere" / "c.onnx")
    assert "no such controller" in refusal(capsys, "export", str(tmp_path / "x"), "--out", "y")
