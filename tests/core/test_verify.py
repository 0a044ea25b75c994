"""Every flipped byte of every kind of stored file is found, when it is opened and by `verify`."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from artifact_helpers import a_stage, refusal
from goalward.core.array_files import read_arrays, write_arrays
from goalward.core.artifacts import open_stage
from goalward.core.config import read_json, write_json
from goalward.core.files import CHECKSUM, EMPTY_SEAL, sealed
from goalward.core.tensors import read_tensors, write_tensors
from goalward.core.verify import FileCheck, verify

SEALED_LINE = sealed(f'{{"{CHECKSUM}": "{EMPTY_SEAL}", "success": true}}'.encode()) + b"\n"


def write_all(folder: Path) -> None:
    """One of every kind of file, and some that nothing can be said about."""
    with a_stage(folder / "run" / "collect").writing() as out:
        (out / "part").mkdir()
        (out / "part" / "data.npy").write_bytes(b"latents")
    write_tensors(folder / "model.safetensors", {"a": torch.arange(3.0)}, {"step": "7"})
    write_json(folder / "table.json", {"rate": 0.5}, seal=True)
    (folder / "rows.jsonl").write_bytes(2 * SEALED_LINE)
    (folder / "controller.onnx").write_bytes(sealed(b"\x08\x07" + EMPTY_SEAL.encode() + b"\x12"))
    for name in ("notes.txt", ".hidden.json", "run/train.partial/config.json"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{}")


FILES: dict[str, Callable[[Path], object]] = {  # what opens them; one opener is not core's
    "run/collect/config.json": lambda path: open_stage(path.parent, "collect"),
    "run/collect/manifest.json": lambda path: open_stage(path.parent, "collect"),
    "run/collect/part/data.npy": lambda path: open_stage(path.parents[1], "collect"),
    "model.safetensors": read_tensors,
    "table.json": lambda path: read_json(path, seal=True),
    "rows.jsonl": verify,
    "controller.onnx": verify,
}


def test_files_as_they_were_written_are_in_order_one_by_one_and_together(tmp_path: Path) -> None:
    write_all(tmp_path)
    assert {check.path.relative_to(tmp_path).as_posix() for check in verify(tmp_path)} == set(FILES)
    assert [check.problem for check in verify(tmp_path)] == [None] * len(FILES)
    for name, open_file in FILES.items():
        open_file(tmp_path / name)
        assert verify(tmp_path / name) == [FileCheck(tmp_path / name, None)]


@pytest.mark.parametrize("name", FILES)
def test_any_flipped_byte_is_found(tmp_path: Path, name: str) -> None:
    write_all(tmp_path)
    path, rng = tmp_path / name, random.Random(0)
    data = path.read_bytes()
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= rng.randrange(1, 256)
        path.write_bytes(bytes(flipped))
        os.utime(path, (place, place))  # clocks of file systems are coarse
        (bad,) = [check for check in verify(tmp_path) if check.problem is not None]
        assert bad.problem is not None and "\n" not in bad.problem
        if FILES[name] is not verify:
            message = refusal(lambda: FILES[name](path))
            assert str(path.parent) in message or str(path.parents[1]) in message
    path.write_bytes(data)
    os.utime(path, (len(data), len(data)))
    FILES[name](path)


def test_verify_reads_again_what_was_read_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_all(tmp_path)
    open_stage(tmp_path / "run" / "collect", "collect")
    monkeypatch.setattr("goalward.core.verify.file_checksum", lambda path: "0" * 16)
    (_, config, data) = verify(tmp_path / "run" / "collect")
    for check in (config, data):
        assert check.problem is not None and check.problem.startswith("damaged: its content ")
        assert check.problem.endswith("make it again with `goalward collect ...`")


def test_what_cannot_be_verified_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert refusal(lambda: verify(tmp_path / "none")).endswith("none: no such file or folder")
    for path in (tmp_path, tmp_path / "notes.txt"):
        assert refusal(lambda path=path: verify(path)) == (  # type: ignore[misc]
            f"{path}: nothing to verify: no file in it has a checksum"
        )


def test_arrays_and_texts_are_read_as_they_were_written(tmp_path: Path) -> None:
    arrays = {"x": np.arange(6.0).reshape(2, 3).T, "one": np.float32(2), "none": np.zeros((0, 2))}
    write_arrays(tmp_path / "a", arrays, {"b": "c"})
    found, metadata = read_arrays(tmp_path / "a")
    assert metadata == {"b": "c"} and found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


def test_a_file_cut_short_and_one_without_checksum_are_refused_in_one_line(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    write_arrays(tmp_path / "a", {"x": np.arange(6.0)})
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:-8])
    assert refusal(lambda: read_arrays(tmp_path / "a")).startswith(
        f"{tmp_path / 'a'}: damaged or cut short; restore it from a copy"
    )
    save_file({"x": np.arange(6.0)}, tmp_path / "b")
    assert refusal(lambda: read_arrays(tmp_path / "b")).startswith(
        f"{tmp_path / 'b'}: has no checksum: it is damaged, or of an earlier version; restore"
    )
