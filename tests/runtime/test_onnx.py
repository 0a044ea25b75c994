"""Exported controllers: the same actions without torch, from one file that is as it was written."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, load_model_from_string

from controller_helpers import FRAMES, GOALS, tiny_idm
from goalward.control.act import GCIDMController
from goalward.control.checkpoint import model_id
from goalward.control.controller import Controller
from goalward.control.export import export_onnx
from goalward.control.networks import HorizonConfig
from goalward.core.config import to_json
from goalward.core.files import EMPTY_SEAL, SEAL, sealed
from goalward.runtime.onnx import OnnxController

NOT_LOADED = ["torch", "h5py", "matplotlib", "pydantic", "stable_worldmodel", "gymnasium"]
NOT_LOADED += ["safetensors", "scipy", "cv2"]


@pytest.fixture(name="exported", scope="module")
def exported_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "controller.onnx"
    export_onnx(tiny_idm(), path)
    return path


@pytest.mark.parametrize(
    "horizon",
    [
        HorizonConfig(mode="budget"),
        HorizonConfig(mode="fixed", fixed_steps=3),
        HorizonConfig(mode="time-to-go", quantile=0.3),
    ],
    ids=lambda horizon: horizon.mode,
)
def test_an_exported_controller_acts_as_the_one_that_it_was_made_from(
    tmp_path: Path, horizon: HorizonConfig
) -> None:
    model = tiny_idm()
    metadata = export_onnx(model, tmp_path / "c.onnx", horizon)
    exported = OnnxController(tmp_path / "c.onnx", threads=1)
    assert exported.metadata == metadata and metadata.model_id == model_id(model)
    assert metadata.horizon == to_json(horizon)
    both: list[Controller] = [exported, GCIDMController(model, horizon)]

    def require_same_actions(*arguments: Any, **more: Any) -> None:
        ours, theirs = (controller.act(*arguments, **more) for controller in both)
        np.testing.assert_allclose(ours, theirs, atol=1e-5)

    for controller in both:
        controller.reset(GOALS, [50, 3, 20, 1, 9])
    for _ in range(3):
        require_same_actions(FRAMES)
    for controller in both:
        controller.reset(GOALS[:1], 9, environments=[2])
    require_same_actions(FRAMES[:2], environments=[2, 0])
    for controller in both:
        controller.reset(GOALS[0], 50)
    require_same_actions(FRAMES[0])


def test_it_needs_numpy_onnx_runtime_and_xxhash_only(exported: Path) -> None:
    code = (
        "import sys, numpy as np, goalward\n"
        "from goalward.runtime.onnx import OnnxController\n"
        f"controller = OnnxController({str(exported)!r}, threads=1)\n"
        "frames = np.zeros((2, 16, 16, 3), dtype=np.uint8)\n"
        "controller.reset(frames, 50)\n"
        "assert controller.act(frames).shape == (2, 2)\n"
        f"print([name for name in {NOT_LOADED} if name in sys.modules])\n"
    )
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout == "[]\n"


def test_a_file_names_no_place_on_the_machine_that_wrote_it(exported: Path) -> None:
    assert b"/" + b"goalward" not in exported.read_bytes()
    assert str(Path.home()).encode() not in exported.read_bytes()


def test_any_changed_byte_is_found_before_onnx_runtime_reads_it(
    exported: Path, tmp_path: Path
) -> None:
    content, path = exported.read_bytes(), tmp_path / "c.onnx"
    for place in np.random.default_rng(0).integers(len(content), size=40):
        flipped = bytearray(content)
        flipped[place] ^= 1 << int(place % 8)
        path.write_bytes(flipped)
        with pytest.raises(ValueError, match=r"c\.onnx: .*goalward export") as refusal:
            OnnxController(path)
        assert "checksum" in str(refusal.value) and "\n" not in str(refusal.value)


def changed(exported: Path, path: Path, **metadata: str) -> ModelProto:
    """The exported graph, to change and then to seal."""
    graph = load_model_from_string(SEAL.sub(EMPTY_SEAL.encode(), exported.read_bytes()))
    for entry in graph.metadata_props:
        entry.value = metadata.get(entry.key, entry.value)
    path.write_bytes(sealed(graph.SerializeToString()))
    return graph


def test_tensors_in_other_files_are_refused(exported: Path, tmp_path: Path) -> None:
    graph = changed(exported, tmp_path / "c.onnx")
    tensor = graph.graph.initializer[0]
    (tmp_path / "weights").write_bytes(bytes(10**5))
    for place in ("weights", "/etc/passwd", "../weights"):
        del tensor.external_data[:]
        entry = tensor.external_data.add()
        entry.key, entry.value = "location", place
        tensor.data_location = TensorProto.EXTERNAL
        (tmp_path / "c.onnx").write_bytes(sealed(graph.SerializeToString()))
        with pytest.raises(ValueError, match="refers to other files, which are never read"):
            OnnxController(tmp_path / "c.onnx")


def test_sizes_that_the_file_lacks_are_refused_before_they_cost_memory(
    exported: Path, tmp_path: Path
) -> None:
    graph = changed(exported, tmp_path / "c.onnx")
    for tensor in graph.graph.initializer:
        if tensor.dims:
            tensor.dims[0] = 10**12
    (tmp_path / "c.onnx").write_bytes(sealed(graph.SerializeToString()))
    with pytest.raises(ValueError, match="no ONNX file"):
        OnnxController(tmp_path / "c.onnx")
    promised = asdict(OnnxController(exported).metadata) | {"latent_dim": 10**12}
    changed(exported, tmp_path / "c.onnx", goalward=json.dumps(promised))
    with pytest.raises(ValueError, match=r"goals': \[16\].*promise.*\[1000000000000\]"):
        OnnxController(tmp_path / "c.onnx")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ('{"format": "goalward-onnx", "version": 2}', "not a controller of this version"),
        ("[]", "not a controller of this version"),
        ("{", "not a controller of this version"),
    ],
)
def test_metadata_of_another_version_is_refused(
    exported: Path, tmp_path: Path, metadata: str, message: str
) -> None:
    changed(exported, tmp_path / "c.onnx", goalward=metadata)
    with pytest.raises(ValueError, match=f"{message}.*goalward export"):
        OnnxController(tmp_path / "c.onnx")


def test_files_that_are_no_exported_controllers_are_refused(exported: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such file"):
        OnnxController(tmp_path / "missing.onnx")
    (tmp_path / "cut.onnx").write_bytes(exported.read_bytes()[:5000])
    with pytest.raises(ValueError, match="damaged, or of an earlier version"):
        OnnxController(tmp_path / "cut.onnx")
    (tmp_path / "text.onnx").write_bytes(sealed(b"hello " + EMPTY_SEAL.encode()))
    with pytest.raises(ValueError, match="no ONNX file"):
        OnnxController(tmp_path / "text.onnx")
    with (tmp_path / "huge.onnx").open("wb") as file:
        file.truncate(2**31 + 1)
    with pytest.raises(ValueError, match=r"has 2147483649 bytes, an ONNX file at most"):
        OnnxController(tmp_path / "huge.onnx")
    with pytest.raises(ValueError, match=r"goals must be .* \(16, 16, 3\)"):
        OnnxController(exported).reset(GOALS[:, :8], 50)


def test_exporting_elsewhere_than_to_an_onnx_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.onnx"):
        export_onnx(tiny_idm(), tmp_path / "c.bin")
    with pytest.raises(ValueError, match="no such folder"):
        export_onnx(tiny_idm(), tmp_path / "nowhere" / "c.onnx")
