"""Writing one episode: what is stored and refused, and what crashes and full disks leave behind."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import hdf5plugin
import numpy as np
import pytest

from episode_helpers import (
    TASK,
    ColumnsChange,
    having,
    make_episode,
    merged_fixture,  # noqa: F401
    without,
    write_parts,
)
from goalward.core import files
from goalward.data.episodes import open_episodes
from goalward.data.hdf5 import merge_episodes, write_episode


def test_an_episode_comes_back_as_it_was_written(tmp_path: Path) -> None:
    columns = make_episode(0, 9)
    write_episode(tmp_path / "a.h5", columns, attributes=TASK)
    with open_episodes(tmp_path / "a.h5") as episodes:
        back = episodes.episode(0)
        assert episodes.attributes == {
            "task": "two-room",
            "format": "goalward-episodes",
            "format_version": "1",
        }
    for name, values in columns.items():
        np.testing.assert_array_equal(back[name], values)
        assert back[name].dtype == values.dtype
    assert back["step_idx"].tolist() == list(range(9))
    assert back["episode_idx"].tolist() == [0] * 9


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    columns = make_episode(0, 9)
    attributes = {"task": "two-room", "config": "x" * 5000}
    write_episode(tmp_path / "a.h5", columns, attributes=attributes)
    merge_episodes([tmp_path / "a.h5"] * 3, tmp_path / "m.h5")
    time.sleep(1.1)  # HDF5 would note times in seconds
    write_episode(
        tmp_path / "b.h5",
        dict(reversed(columns.items())),
        attributes=dict(reversed(attributes.items())),
    )
    merge_episodes([tmp_path / "b.h5"] * 3, tmp_path / "n.h5")
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
    assert (tmp_path / "m.h5").read_bytes() == (tmp_path / "n.h5").read_bytes()


def test_writing_changes_none_of_its_arguments(tmp_path: Path) -> None:
    columns, before = make_episode(0, 5), make_episode(0, 5)
    write_episode(tmp_path / "a.h5", columns, attributes=TASK)
    assert list(columns) == list(before)
    for name, values in before.items():
        np.testing.assert_array_equal(columns[name], values)


def test_the_stored_layout_is_one_compressed_frame_a_chunk(merged: Path) -> None:
    with h5py.File(merged) as file:
        assert file["pixels"].chunks == (1, 8, 8, 3)
        assert list(file["pixels"]._filters) == [str(hdf5plugin.LZ4.filter_id)]
        assert file["ep_len"].dtype == np.int32
        assert file["ep_offset"].dtype == np.int64
        assert file["episode_idx"].dtype == file["step_idx"].dtype == np.int32
        assert file["action"].dtype == np.float32
        assert file.attrs["format_version"] == 1


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (without("pixels"), "no column 'pixels'"),
        (without("action"), "no column 'action'"),
        (having("state", np.zeros((4, 2))), r"column 'state' has shape \(4, 2\).* 5 rows"),
        (having("state", 1.0), r"column 'state' has shape \(\)"),
        (having("pixels", np.zeros((5, 8, 8, 3))), "'pixels' must be uint8 .* float64"),
        (having("pixels", np.zeros((5, 3, 8, 8), np.uint8)), r"'pixels' .*\(5, 3, 8, 8\)"),
        (having("action", np.zeros((5, 2), np.float32)), "last row of 'action' must be NaN"),
        (having("action", np.full((5, 2), np.nan, np.float32)), "row 0 of column 'action'"),
        (having("action", np.full((5, 2), np.nan)), "'action' must be float32"),
        (having("action", np.full(5, np.nan, np.float32)), "'action' must be float32"),
        (having("state", [0, 0, np.inf, 0, 0]), "row 2 of column 'state' is not finite"),
        (having("note", ["a"] * 5), "column 'note' is <U1"),
        (having("ep_len", [5] * 5), "column 'ep_len' is written by itself"),
        (lambda columns: {k: v[-1:] for k, v in columns.items()}, "at least 2 frames, not 1"),
    ],
)
def test_columns_that_make_no_episode_are_refused(
    tmp_path: Path, change: ColumnsChange, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        write_episode(tmp_path / "a.h5", change(make_episode(0, 5)), attributes=TASK)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_an_attribute_of_the_format_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="attribute 'format'"):
        write_episode(tmp_path / "a.h5", make_episode(0, 5), attributes={"format": "mine"})


# Crashes and full disks


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_crash_before_the_rename_leaves_the_old_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.h5"
    write_episode(path, make_episode(0, 5), attributes=TASK)
    before = path.read_bytes()

    def crash(_: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "sync", crash)
    with pytest.raises(KeyboardInterrupt):
        write_episode(path, make_episode(1, 5), attributes=TASK)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.h5"]


def test_a_killed_writer_leaves_no_file_under_the_final_name(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path\n"
        "sys.path.insert(0, sys.argv[2]); from episode_helpers import TASK, make_episode\n"
        "from goalward import files; from goalward.data import episode_writer\n"
        "files.fsync = lambda path: os._exit(9)\n"
        "columns = make_episode(0, 5)\n"
        "episode_writer.write_episode(Path(sys.argv[1]), columns, attributes=TASK)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "a.h5"), str(Path(__file__).parent)]
    assert subprocess.run(command, check=False).returncode == 9
    (left,) = tmp_path.iterdir()
    assert left.suffix == ".tmp"
    with pytest.raises(ValueError, match="holds none"):
        open_episodes(tmp_path)


def test_an_interrupted_merge_leaves_nothing_behind(tmp_path: Path) -> None:
    parts = write_parts(tmp_path / "parts")
    (tmp_path / "out").mkdir()

    def crash(done: int) -> None:
        if done == 2:
            raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        merge_episodes(parts, tmp_path / "out" / "episodes.h5", on_part=crash)
    assert not list((tmp_path / "out").iterdir())


def test_a_full_disk_while_writing_an_episode_is_an_os_error(tmp_path: Path) -> None:
    with files_limited_to(2000), pytest.raises(OSError, match="File too large") as caught:
        write_episode(tmp_path / "a.h5", make_episode(0, 50), attributes=TASK)
    assert caught.value.errno == errno.EFBIG
    assert not list(tmp_path.iterdir())


def test_a_full_disk_while_merging_is_an_os_error(tmp_path: Path) -> None:
    parts = [write_parts(tmp_path / "parts", (200,))[0]] * 20
    out = tmp_path / "out" / "episodes.h5"
    out.parent.mkdir()
    with files_limited_to(100_000), pytest.raises(OSError, match="File too large") as caught:
        merge_episodes(parts, out)
    assert caught.value.errno == errno.EFBIG
    assert caught.value.filename == str(out)
    assert caught.value.__cause__ is not None
    assert not list(out.parent.iterdir())


def test_a_missing_folder_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_episode(tmp_path / "none" / "a.h5", make_episode(0, 5), attributes=TASK)
