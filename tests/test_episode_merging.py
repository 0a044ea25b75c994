"""Merging episodes into one file: what it holds, and which parts do not go together."""

from __future__ import annotations

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
    content_fixture,  # noqa: F401
    edit,
    having,
    make_episode,
    merged_fixture,  # noqa: F401
    replace,
    without,
    write_parts,
)
from goalward.core.arrays import Array
from goalward.data import hdf5 as episode_writer
from goalward.data.episodes import open_episodes
from goalward.data.hdf5 import merge_episodes, write_episode


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


def test_a_merged_file_can_be_merged_again(tmp_path: Path, merged: Path) -> None:
    merge_episodes([merged, merged], tmp_path / "twice.h5")
    with open_episodes(tmp_path / "twice.h5") as twice:
        assert twice.lengths.tolist() == [*LENGTHS, *LENGTHS]
        ends = twice.rows("episode_idx", twice.offsets + twice.lengths - 1)
        assert ends.tolist() == list(range(8))


def test_merging_copies_the_compressed_frames_as_they_are(tmp_path: Path) -> None:
    parts = write_parts(tmp_path / "parts")
    merge_episodes(parts, tmp_path / "m.h5")
    with h5py.File(tmp_path / "m.h5") as whole:
        row = 0
        for part in parts:
            with h5py.File(part) as file:
                for k in range(len(file["pixels"])):
                    chunk = file["pixels"].id.read_direct_chunk((k, 0, 0, 0))
                    assert whole["pixels"].id.read_direct_chunk((row, 0, 0, 0)) == chunk
                    row += 1


def test_merging_never_runs_the_codec(tmp_path: Path) -> None:
    part = write_parts(tmp_path / "parts", (5,))[0]
    edit(part, lambda f: f["pixels"].id.write_direct_chunk((0, 0, 0, 0), b"not LZ4 at all"))
    merge_episodes([part], tmp_path / "m.h5")
    with h5py.File(tmp_path / "m.h5") as file:
        assert file["pixels"].id.read_direct_chunk((0, 0, 0, 0))[1] == b"not LZ4 at all"


def test_small_columns_survive_being_gathered_in_several_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merged: Path
) -> None:
    monkeypatch.setattr(episode_writer, "_ROWS_GATHERED", 10)
    merge_episodes(write_parts(tmp_path / "parts"), tmp_path / "m.h5")
    with open_episodes(tmp_path / "m.h5") as ours, open_episodes(merged) as theirs:
        for name in theirs.columns:
            np.testing.assert_array_equal(ours.read(name, 0, 44), theirs.read(name, 0, 44))


def test_merging_tells_how_many_parts_are_done(tmp_path: Path) -> None:
    told: list[int] = []
    merge_episodes(write_parts(tmp_path / "parts"), tmp_path / "m.h5", on_part=told.append)
    assert told == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("columns", "attributes", "complaint"),
    [
        (without("state"), TASK, "column 'state' is missing in the former, float64"),
        (having("extra", np.zeros(5)), TASK, r"column 'extra' is float64 \(\) .*missing in the la"),
        (having("state", np.zeros((5, 9))), TASK, r"'state' is float64 \(9,\) a row.* \(4,\)"),
        (having("state", np.zeros((5, 4), np.float32)), TASK, "'state' is float32"),
        (having("pixels", np.zeros((5, 9, 9, 3), np.uint8)), TASK, "column 'pixels'"),
        (dict, {"task": "maze"}, "attribute 'task' is maze in the former, two-room in the latter"),
        (dict, {}, "attribute 'task' is missing"),
    ],
)
def test_parts_that_differ_are_refused_by_name(
    tmp_path: Path,
    columns: ColumnsChange,
    attributes: dict[str, str],
    complaint: str,
) -> None:
    parts = write_parts(tmp_path / "parts")
    write_episode(parts[2], columns(make_episode(0, 5)), attributes=attributes)
    with pytest.raises(ValueError, match=rf"{parts[2].name} with .*{parts[0].name}: .*{complaint}"):
        merge_episodes(parts, tmp_path / "m.h5")
    assert not (tmp_path / "m.h5").exists()


def test_parts_compressed_in_another_way_are_refused(tmp_path: Path) -> None:
    parts = write_parts(tmp_path / "parts")

    def recompress(file: Any) -> None:
        pixels = file["pixels"][()]
        del file["pixels"]
        file.create_dataset("pixels", data=pixels, chunks=(1, 8, 8, 3), **hdf5plugin.Zstd())

    edit(parts[1], recompress)
    with pytest.raises(ValueError, match=f"{parts[1].name}: its frames are not compressed like"):
        merge_episodes(parts, tmp_path / "m.h5")


def test_a_part_with_a_short_column_is_refused(tmp_path: Path) -> None:
    parts = write_parts(tmp_path / "parts")
    edit(parts[1], lambda file: replace(file, "state", np.zeros((3, 4))))
    with pytest.raises(ValueError, match=r"column 'state' .* in shape \(3, 4\) beside 12 frames"):
        merge_episodes(parts, tmp_path / "m.h5")


def test_merging_nothing_or_foreign_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no episodes to merge"):
        merge_episodes([], tmp_path / "m.h5")
    part = write_parts(tmp_path / "parts", (5,))[0]
    edit(part, lambda file: file.attrs.pop("format"))
    with pytest.raises(ValueError, match="not written by goalward"):
        merge_episodes([part], tmp_path / "m.h5")
