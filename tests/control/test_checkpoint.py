"""Controller files: everything that acting needs, and refusals of other files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from controller_helpers import FRAMES, GOALS, tiny_idm
from goalward.control.act import GCIDMController
from goalward.control.checkpoint import (
    METADATA,
    in_half_precision,
    load_trained_idm,
    model_id,
    save_trained_idm,
)
from goalward.core.arrays import Array
from goalward.core.tensors import read_tensors, write_tensors


@pytest.fixture(name="file", scope="module")
def file_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("controllers") / "best.safetensors"
    save_trained_idm(path, tiny_idm())
    return path


def actions(controller: GCIDMController) -> Array:
    controller.reset(GOALS, 50)
    return controller.act(FRAMES)


def test_a_file_gives_the_model_back_bit_for_bit(file: Path) -> None:
    model, found = tiny_idm(), load_trained_idm(file)
    assert found.metadata == model.metadata and model_id(found) == model_id(model)
    assert found.world.id == model.world.id and found.world.actions == model.world.actions
    np.testing.assert_array_equal(actions(GCIDMController(found)), actions(GCIDMController(model)))


def test_a_folder_has_the_best_and_the_last_weights(file: Path, tmp_path: Path) -> None:
    save_trained_idm(tmp_path / "last.safetensors", tiny_idm(seed=1))
    (tmp_path / "best.safetensors").write_bytes(file.read_bytes())
    ids = [model_id(load_trained_idm(tmp_path, weights=name)) for name in ("best", "last")]
    assert ids == [model_id(tiny_idm()), model_id(tiny_idm(seed=1))]


def test_a_file_alone_acts_without_dataset_training_or_simulators(
    file: Path, tmp_path: Path
) -> None:
    expected = actions(GCIDMController(load_trained_idm(file)))
    np.savez(tmp_path / "x.npz", frames=FRAMES, goals=GOALS, actions=expected)
    code = (
        "import numpy as np, sys\n"
        "from pathlib import Path\n"
        "from goalward.control.act import GCIDMController\n"
        "from goalward.control.checkpoint import load_trained_idm\n"
        f"controller = GCIDMController(load_trained_idm(Path({str(file)!r})))\n"
        "known = np.load('x.npz')\n"
        "controller.reset(known['goals'], 50)\n"
        "actions = controller.act(known['frames'])\n"
        "np.testing.assert_allclose(actions, known['actions'], atol=1e-6)\n"
        "heavy = ('stable_worldmodel', 'mujoco', 'matplotlib', 'gymnasium')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_half_precision_halves_the_file_and_rounds_the_model(file: Path, tmp_path: Path) -> None:
    half = tmp_path / "half.safetensors"
    save_trained_idm(half, tiny_idm(), half=True)
    assert half.stat().st_size < 0.7 * file.stat().st_size
    found, rounded = load_trained_idm(half), in_half_precision(tiny_idm())
    assert model_id(found) == model_id(rounded) and found.world.id == rounded.metadata.world_id
    assert found.world.id != tiny_idm().world.id  # another encoder, by its last bits
    np.testing.assert_array_equal(
        actions(GCIDMController(found)), actions(GCIDMController(rounded))
    )
    exact = actions(GCIDMController(tiny_idm()))
    np.testing.assert_allclose(actions(GCIDMController(found)), exact, atol=0.02)
    assert all(t.dtype != torch.float16 for t in found.network.state_dict().values())


def test_files_that_are_no_controllers_are_refused(
    file: Path, tiny_world: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="no such controller"):
        load_trained_idm(tmp_path / "no.safetensors")
    with pytest.raises(ValueError, match="not a controller file"):
        load_trained_idm(tiny_world / "best.safetensors")
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(ValueError, match=r"cut\.safetensors: (damaged|has no checksum)"):
        load_trained_idm(cut)


def change(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda metadata: metadata.update(values)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (change(version=2), "version"),
        (change(world_id="0" * 16), f"its encoder is [0-9a-f]{{16}}.*{'0' * 16}"),
        (change(action_low=[0.0]), "action_low and action_high must have 2 numbers each"),
        (change(action_low=[2.0, 0.0]), "action_low must be at most action_high"),
        (lambda metadata: metadata["network"].update(latent_dim=8), "network.latent_dim is 8"),
        (lambda metadata: metadata["network"].update(hidden_dim=9), "shape"),
        (lambda metadata: metadata["network"].update(hidden_dim=10**6), "x.safetensors: "),
        (lambda metadata: metadata["horizon"].update(level=0.1), "horizon.level: unknown key"),
        (lambda metadata: metadata.pop("split"), "split: missing key"),
    ],
)
def test_metadata_that_does_not_fit_is_refused_by_name(
    file: Path, tmp_path: Path, changed: Callable[[dict[str, Any]], None], message: str
) -> None:
    tensors, facts = read_tensors(file)
    metadata = json.loads(facts[METADATA])
    changed(metadata)
    write_tensors(tmp_path / "x.safetensors", tensors, {METADATA: json.dumps(metadata)})
    with pytest.raises(ValueError, match=message):
        load_trained_idm(tmp_path / "x.safetensors")
