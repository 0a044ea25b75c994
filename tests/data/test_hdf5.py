"""Episode files: what is stored, what is refused, and that no damaged byte is used."""

from __future__ import annotations

import errno
import resource
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest

from episode_helpers import (
    LENGTHS,
    TASK,
    ColumnsChange,
    edit,
    having,
    make_episode,
    replace,
    without,
    write_parts,
)
from goalward.core.arrays import Array
from goalward.data.episodes import open_episodes
from goalward.data.hdf5 import merge_episodes, write_episode, write_episodes

# Writing


def test_an_episode_comes_back_as_it_was_written(tmp_path: Path) -> None:
    columns, before = make_episode(0, 9), make_episode(0, 9)
    write_episode(tmp_path / "a.h5", columns, attributes=TASK)
    with open_episodes(tmp_path / "a.h5") as episodes:
        back = episodes.episode(0)
        noted = {"format": "goalward-episodes", "format_version": "2"}
        assert episodes.attributes == TASK | noted
    for name, values in before.items():
        np.testing.assert_array_equal(back[name], values)
        np.testing.assert_array_equal(columns[name], values)
        assert back[name].dtype == values.dtype
    assert back["step_idx"].tolist() == list(range(9))
    assert back["episode_idx"].tolist() == [0] * 9


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    columns = make_episode(0, 9)
    attributes = {"task": "two-room", "note": "é" * 5000, "gl": ""}
    write_episode(tmp_path / "a.h5", columns, attributes=attributes)
    merge_episodes([tmp_path / "a.h5"] * 3, tmp_path / "m.h5")
    time.sleep(1.1)  # HDF5 would note times in seconds
    turned = dict(reversed(columns.items())), dict(reversed(attributes.items()))
    write_episode(tmp_path / "b.h5", turned[0], attributes=turned[1])
    merge_episodes([tmp_path / "b.h5"] * 3, tmp_path / "n.h5")
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
    assert (tmp_path / "m.h5").read_bytes() == (tmp_path / "n.h5").read_bytes()
    with open_episodes(tmp_path / "m.h5") as episodes:
        assert attributes.items() <= episodes.attributes.items()


def test_the_stored_layout_is_one_compressed_frame_a_chunk(merged: Path) -> None:
    with h5py.File(merged) as file:
        assert file["pixels"].chunks == (1, 8, 8, 3)
        assert list(file["pixels"]._filters) == [str(hdf5plugin.LZ4.filter_id), "fletcher32"]
        assert file["ep_len"].dtype == np.int32
        assert file["ep_offset"].dtype == np.int64
        assert file["episode_idx"].dtype == file["step_idx"].dtype == np.int32
        assert file["action"].dtype == np.float32


def test_an_iterator_of_episodes_becomes_a_file(tmp_path: Path) -> None:
    held = [make_episode(k, rows) for k, rows in enumerate(LENGTHS)]
    short = ({**e, "action": e["action"][:-1].tolist()} for e in held)  # T - 1 actions, as lists
    with write_episodes(tmp_path / "new" / "e.h5", short, attributes=TASK) as episodes:
        assert episodes.lengths.tolist() == list(LENGTHS)
        for k, episode in enumerate(held):
            for name, values in episode.items():
                np.testing.assert_array_equal(episodes.episode(k)[name], values)
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["e.h5"]


@pytest.mark.parametrize(
    ("episode", "complaint"),
    [
        ({"action": np.zeros((9, 2))}, "no column 'pixels'"),
        (
            {**make_episode(0, 5), "state": np.zeros((5, 9))},
            r"episode 1: .*'state' is float64 \(9,",
        ),
        ({**make_episode(0, 5), "action": np.zeros((5, 2))}, "'action' must have 4 rows"),
        ([1, 2], "columns must be given by name"),
    ],
)
def test_an_episode_unlike_the_first_leaves_no_file(
    tmp_path: Path, episode: Any, complaint: str
) -> None:
    with pytest.raises(ValueError, match=f"cannot write .*e.h5: .*{complaint}"):
        write_episodes(tmp_path / "e.h5", [make_episode(0, 5), episode])
    with pytest.raises(ValueError, match="there are no episodes"):
        write_episodes(tmp_path / "e.h5", [])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (without("pixels"), "no column 'pixels'"),
        (without("action"), "no column 'action'"),
        (having("state", np.zeros((4, 2))), r"column 'state' has shape \(4, 2\).* 5 rows"),
        (having("state", 1.0), r"column 'state' has shape \(\)"),
        (having("pixels", np.zeros((5, 8, 8, 3))), "'pixels' must be uint8 .* float64"),
        (having("pixels", np.zeros((5, 3, 8, 8), np.uint8)), r"'pixels' .*\(5, 3, 8, 8\)"),
        (having("action", np.zeros((5, 2), np.float32)), "'action' must have 4 rows"),
        (having("action", np.full((5, 2), np.nan, np.float32)), "row 0 of column 'action'"),
        (having("action", np.full(5, np.nan, np.float32)), "'action' must be numbers"),
        (having("state", [0, 0, np.inf, 0, 0]), "row 2 of column 'state' is not finite"),
        (having("note", ["a"] * 5), "column 'note' is <U1"),
        (having("ep_len", [5] * 5), "no column can be named 'ep_len'"),
        (having("a/b", [5] * 5), "no column can be named 'a/b'"),
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


@pytest.mark.parametrize("attributes", [{"format": "mine"}, {"task": 3}, {"": "x"}])
def test_attributes_that_cannot_be_stored_are_refused(tmp_path: Path, attributes: Any) -> None:
    with pytest.raises(ValueError, match="attribute"):
        write_episode(tmp_path / "a.h5", make_episode(0, 5), attributes=attributes)


# Merging


def test_a_merged_file_holds_the_episodes_in_order(merged: Path, content: dict[str, Array]) -> None:
    with open_episodes(merged) as episodes:
        assert episodes.lengths.tolist() == list(LENGTHS)
        assert episodes.offsets.tolist() == [0, 7, 19, 24]
        for name, values in content.items():
            np.testing.assert_array_equal(episodes.read(name, 0, sum(LENGTHS)), values)
        index = np.repeat(np.arange(4), LENGTHS)
        np.testing.assert_array_equal(episodes.read("episode_idx", 0, sum(LENGTHS)), index)
        assert episodes.read("step_idx", 5, 9).tolist() == [5, 6, 0, 1]
        assert episodes.attributes["task"] == "two-room"


def recompress(file: Any) -> None:
    pixels = file["pixels"][()]
    del file["pixels"]
    file.create_dataset("pixels", data=pixels, chunks=(1, 8, 8, 3), **hdf5plugin.Zstd())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (recompress, "compressed in another way"),
        (lambda file: replace(file, "state", np.zeros((3, 4))), "'state' does not match its check"),
        (lambda file: file.attrs.pop("checksums"), "not written by this goalward"),
    ],
)
def test_a_part_that_was_changed_is_refused(
    tmp_path: Path, change: Callable[[Any], None], complaint: str
) -> None:
    parts = write_parts(tmp_path / "parts")
    edit(parts[1], change)
    with pytest.raises(ValueError, match=f"{parts[1].name}.*{complaint}"):
        merge_episodes(parts, tmp_path / "m.h5")


# Crashes and full disks


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_killed_writer_leaves_no_file_under_the_final_name(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path\n"
        "sys.path.insert(0, sys.argv[2]); from episode_helpers import TASK, make_episode\n"
        "from goalward.core import files; from goalward.data import hdf5\n"
        "files.fsync = lambda path: os._exit(9)\n"
        "hdf5.write_episode(Path(sys.argv[1]), make_episode(0, 5), attributes=TASK)\n"
    )
    helpers = str(Path(__file__).parents[1])
    command = [sys.executable, "-c", program, str(tmp_path / "a.h5"), helpers]
    assert subprocess.run(command, check=False).returncode == 9
    (left,) = tmp_path.iterdir()
    assert left.suffix == ".tmp"
    with pytest.raises(ValueError, match="holds none"):
        open_episodes(tmp_path)


def test_a_full_disk_is_an_os_error_that_names_the_file(tmp_path: Path) -> None:
    parts, out = [write_parts(tmp_path / "parts", (200,))[0]] * 20, tmp_path / "episodes.h5"
    with files_limited_to(2000), pytest.raises(OSError, match="File too large") as caught:
        write_episode(out, make_episode(0, 50), attributes=TASK)
    assert caught.value.errno == errno.EFBIG
    with files_limited_to(100_000), pytest.raises(OSError, match="File too large") as caught:
        merge_episodes(parts, out)
    assert caught.value.errno == errno.EFBIG
    assert caught.value.filename == str(out)
    assert [p.name for p in tmp_path.iterdir()] == ["parts"]


# Damaged files


def test_no_flipped_byte_is_used(tmp_path: Path) -> None:
    rows = (3, 4)
    merge_episodes(write_parts(tmp_path / "parts", rows), tmp_path / "good.h5")
    with open_episodes(tmp_path / "good.h5") as episodes:
        content = {name: episodes.read(name, 0, sum(rows)) for name in episodes.columns}
        noted = episodes.attributes
    data, refused = (tmp_path / "good.h5").read_bytes(), 0
    rng = np.random.default_rng(0)
    for at in rng.permutation(len(data))[:300]:
        changed = bytearray(data)
        changed[at] ^= int(rng.integers(1, 256))
        (tmp_path / "bad.h5").write_bytes(changed)
        try:
            with open_episodes(tmp_path / "bad.h5") as episodes:
                for name, values in content.items():  # gaps in a file hold nothing
                    np.testing.assert_array_equal(episodes.read(name, 0, sum(rows)), values)
                assert episodes.attributes == noted
        except ValueError as error:
            refused += 1
            assert str(error).startswith(f"{tmp_path / 'bad.h5'}") and "\n" not in str(error)
    assert refused > 150


def test_a_damaged_column_or_frame_is_named(tmp_path: Path) -> None:
    part = write_parts(tmp_path, (5,))[0]
    edit(part, lambda f: f["pixels"].id.write_direct_chunk((2, 0, 0, 0), b"\x00" * 30))
    with open_episodes(part) as episodes:
        assert episodes.read("pixels", 0, 2).shape == (2, 8, 8, 3)
        with pytest.raises(ValueError, match=r"cannot read column 'pixels' .*damaged"):
            episodes.read("pixels", 1, 4)
        with pytest.raises(ValueError, match=r"cannot read column 'pixels' .*damaged"):
            episodes.rows("pixels", [2])
    edit(part, lambda f: f["state"].write_direct(np.ones((1, 4)), dest_sel=np.s_[3:4]))
    with pytest.raises(ValueError, match=rf"{part.name}: 'state' does not match its checksum"):
        open_episodes(part)


def test_files_of_version_1_have_no_checksums_and_are_read(tmp_path: Path) -> None:
    def as_version_1(file: Any) -> None:
        del file.attrs["checksums"]
        file.attrs["format_version"] = 1
        recompress(file)

    part = edit(write_parts(tmp_path, (5,))[0], as_version_1)
    with open_episodes(part) as episodes:
        np.testing.assert_array_equal(episodes.episode(0)["state"], make_episode(0, 5)["state"])
        assert episodes.attributes["format_version"] == "1"


def elsewhere(file: Any, name: str = "state") -> Path:
    """Another file with a dataset of the same shape as the column that it takes out of this one."""
    other = Path(file.filename).with_name("other.h5")
    with h5py.File(other, "w") as target:
        target.create_dataset(name, data=np.zeros((5, 4)))
    del file[name]
    return other


def external_link(file: Any) -> None:
    file["state"] = h5py.ExternalLink(elsewhere(file).name, "/state")


def soft_link_out_of_the_file(file: Any) -> None:
    file.create_group("inner")["state"] = h5py.ExternalLink(elsewhere(file).name, "/state")
    file["state"] = h5py.SoftLink("/inner/state")


def dangling_link(file: Any) -> None:
    file["more"] = h5py.SoftLink("/none")


def virtual_dataset(file: Any) -> None:
    layout = h5py.VirtualLayout((5, 4), "f8")
    layout[:] = h5py.VirtualSource(elsewhere(file), "state", (5, 4))
    file.create_virtual_dataset("state", layout)


def external_storage(file: Any) -> None:
    del file["state"]
    raw = Path(file.filename).with_name("raw.bin")
    raw.write_bytes(bytes(160))
    file.create_dataset("state", (5, 4), "f8", external=[(str(raw), 0, 160)])


def frames_that_were_never_written(file: Any) -> None:
    del file["pixels"]
    file.create_dataset("pixels", (5, 8, 8, 3), "u1", chunks=(1, 8, 8, 3))
    file["pixels"][:4] = 0


def numbers_that_were_never_written(file: Any) -> None:
    del file["state"]
    file.create_dataset("state", (5, 10**12), "f8")


def set_table(lengths: list[int], offsets: list[int]) -> Callable[[Any], None]:
    def change(file: Any) -> None:
        replace(file, "ep_len", lengths)
        replace(file, "ep_offset", offsets)

    return change


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda f: f.pop("ep_len"), "no episode file: it has no dataset 'ep_len', only action, "),
        (lambda f: replace(f, "ep_len", np.zeros(0, int)), "a length of at least 1"),
        (lambda f: replace(f, "ep_len", [5.0]), "a length of at least 1"),
        (lambda f: replace(f, "ep_len", [6, -1]), "a length of at least 1"),
        (lambda f: replace(f, "ep_len", [6]), "has 5 rows, but the lengths in 'ep_len' add up to"),
        (lambda f: replace(f, "state", np.zeros((4, 4))), "'state' has 4 rows, but"),
        (lambda f: replace(f, "ep_len", [3, 2]), "'ep_offset' must be the first row of each of"),
        (set_table([3, 2], [0, 2]), "'ep_offset' must be the first row of each of the 2 episodes"),
        (set_table([3, 2], [-1, 3]), "'ep_offset' must be the first row of each of the 2 episodes"),
        (lambda f: replace(f, "pixels", np.zeros((5, 8, 8, 3), "f4")), "must be uint8"),
        (lambda f: replace(f, "pixels", np.zeros((5, 3, 8, 8), "u1")), r"\(5, 3, 8, 8\)"),
        (lambda f: f.attrs.__setitem__("format_version", 3), "version 3 of the episode format"),
        (external_link, "'state' is a link; copy what it links to"),
        (soft_link_out_of_the_file, "'state' is a link"),
        (dangling_link, "'more' is a link"),
        (virtual_dataset, "'state' is stored elsewhere; copy it into the file"),
        (external_storage, "'state' is stored elsewhere"),
        (frames_that_were_never_written, "the file holds less of 'pixels' than its shape"),
        (numbers_that_were_never_written, "the file holds less of 'state' than its shape"),
    ],
)
def test_an_inconsistent_file_is_refused_with_the_reason(
    tmp_path: Path, change: Callable[[Any], None], complaint: str
) -> None:
    part = write_parts(tmp_path, (5,))[0]
    edit(part, lambda file: file.attrs.pop("checksums"))  # as in a file of others
    edit(part, change)
    with pytest.raises(ValueError, match=rf"{part.name}.*{complaint}") as caught:
        open_episodes(part)
    assert "\n" not in str(caught.value)


def test_a_header_that_promises_more_than_the_disk_has_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:  # the oldest format: headers have no checksums
        file.create_dataset("ep_len", data=[5])
        file.create_dataset("state", data=np.ones((5, 7)))
    data = (tmp_path / "a.h5").read_bytes()
    for number, huge in ((7, 2**40), (5 * 7 * 8, 5 * 2**40 * 8)):
        assert struct.pack("<Q", number) in data
        data = data.replace(struct.pack("<Q", number), struct.pack("<Q", huge))
    (tmp_path / "a.h5").write_bytes(data)
    with pytest.raises(ValueError, match=r"a\.h5"):
        open_episodes(tmp_path / "a.h5")


def test_missing_truncated_and_other_files_are_named(tmp_path: Path) -> None:
    for name in ("none.h5", "none", "none.lance"):
        with pytest.raises(FileNotFoundError, match=f"{name} does not exist"):
            open_episodes(tmp_path / name)
    part = write_parts(tmp_path / "parts", (20,))[0]
    part.write_bytes(part.read_bytes()[:-100])
    with pytest.raises(ValueError, match=rf"{part.name} is cut short .*again"):
        open_episodes(part)
    for data in (b"", b"this is no HDF5 file"):
        part.write_bytes(data)
        with pytest.raises(ValueError, match=rf"{part.name} is not an HDF5 file"):
            open_episodes(part)
