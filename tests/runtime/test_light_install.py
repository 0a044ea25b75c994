"""The base installation alone, in an empty environment, acts with an exported controller."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from controller_helpers import FRAMES, GOALS, tiny_idm
from goalward.control.act import GCIDMController
from goalward.control.export import export_onnx

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys
import numpy as np
import goalward as gw

known = np.load("known.npz")
controller = gw.load("controller.onnx")
controller.reset(known["goals"], 50)
actions = controller.act(known["frames"])
np.testing.assert_allclose(actions, known["actions"], atol=1e-5)
assert not {"torch", "h5py", "matplotlib", "safetensors"} & sys.modules.keys()
print(gw.__file__)
"""


def run(*command: str | Path, cwd: Path) -> str:
    """A command's output; without this repository on the path of Python."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    texts = [str(part) for part in command]
    done = subprocess.run(
        texts, cwd=cwd, capture_output=True, text=True, timeout=600, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_base_installation_acts_in_an_empty_environment(tmp_path: Path) -> None:
    pip = (sys.executable, "-m", "pip", "--quiet")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", ROOT, "-w", tmp_path, cwd=tmp_path)
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env", cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    python = tmp_path / "env" / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    run(*pip, "--python", python, "install", wheel, "-c", constraints, cwd=tmp_path)
    model = tiny_idm()
    export_onnx(model, tmp_path / "controller.onnx")
    controller = GCIDMController(model)
    controller.reset(GOALS, 50)
    actions = controller.act(FRAMES)
    np.savez(tmp_path / "known.npz", frames=FRAMES, goals=GOALS, actions=actions)
    place = run(python, "-c", SCRIPT, cwd=tmp_path).strip()
    assert Path(place).is_relative_to(tmp_path)
    assert "evaluate" in run(tmp_path / "env" / "bin" / "goalward", "--help", cwd=tmp_path)
    run(python, "-c", "import importlib.util as u; assert not u.find_spec('torch')", cwd=tmp_path)
