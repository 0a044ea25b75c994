"""What is said about files that are no good and about questions that have no answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from episode_helpers import (
    edit,
    merged_fixture,  # noqa: F401
    replace,
    write_parts,
)
from goalward.data.episodes import Episodes, open_episodes


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for name in ("none.h5", "none", "none.lance"):
        with pytest.raises(FileNotFoundError, match=f"{name} does not exist"):
            open_episodes(tmp_path / name)


def test_a_file_cut_short_is_named(tmp_path: Path) -> None:
    part = write_parts(tmp_path, (20,))[0]
    part.write_bytes(part.read_bytes()[:-100])
    with pytest.raises(ValueError, match=rf"{part.name} is cut short .*again") as caught:
        open_episodes(part)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"this is no HDF5 file"])
def test_a_file_that_is_not_hdf5_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.h5").write_bytes(data)
    with pytest.raises(ValueError, match=r"a\.h5 is not an HDF5 file"):
        open_episodes(tmp_path / "a.h5")


def test_a_damaged_frame_is_found_when_it_is_read(tmp_path: Path) -> None:
    part = write_parts(tmp_path, (5,))[0]
    edit(part, lambda f: f["pixels"].id.write_direct_chunk((2, 0, 0, 0), b"\x00" * 30))
    with open_episodes(part) as episodes:
        assert episodes.read("pixels", 0, 2).shape == (2, 8, 8, 3)
        with pytest.raises(ValueError, match=r"cannot read column 'pixels' .*damaged"):
            episodes.read("pixels", 1, 4)
        with pytest.raises(ValueError, match=r"cannot read column 'pixels' .*damaged"):
            episodes.rows("pixels", [2])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda f: f.pop("ep_len"), "no episode file: it has no dataset 'ep_len', only action, "),
        (lambda f: replace(f, "ep_len", np.zeros(0, int)), "at least one integer length"),
        (lambda f: replace(f, "ep_len", [5.0]), "at least one integer length"),
        (lambda f: replace(f, "ep_len", [6]), "has 5 rows, but the lengths in 'ep_len' add up to"),
        (lambda f: replace(f, "state", np.zeros((4, 4))), "'state' has 4 rows, but"),
        (lambda f: replace(f, "ep_len", [6, -1]), "episode 1 has -1 rows"),
        (lambda f: replace(f, "ep_len", [3, 2]), r"'ep_offset' has shape \(1,\), 'ep_len' \(2,\)"),
        (lambda f: set_table(f, [3, 2], [0, 2]), "episode 1 starts at row 2, but .* end at row 3"),
        (lambda f: set_table(f, [3, 2], [0, 9]), "episode 1 starts at row 9, but .* end at row 3"),
        (lambda f: set_table(f, [3, 2], [-1, 3]), "episode 0 starts at row -1"),
        (lambda f: replace(f, "pixels", np.zeros((5, 8, 8, 3), "f4")), "must be uint8"),
        (lambda f: replace(f, "pixels", np.zeros((5, 3, 8, 8), "u1")), r"\(5, 3, 8, 8\)"),
        (lambda f: f.attrs.__setitem__("format_version", 2), "version 2 of the episode format"),
    ],
)
def test_an_inconsistent_file_is_refused_with_the_reason(
    tmp_path: Path, change: Callable[[Any], None], complaint: str
) -> None:
    part = edit(write_parts(tmp_path, (5,))[0], change)
    with pytest.raises(ValueError, match=rf"{part.name}.*{complaint}") as caught:
        open_episodes(part)
    assert "\n" not in str(caught.value)


def set_table(file: Any, lengths: list[int], offsets: list[int]) -> None:
    replace(file, "ep_len", lengths)
    replace(file, "ep_offset", offsets)


@pytest.mark.parametrize(
    ("ask", "complaint"),
    [
        (lambda e: e.read("stat", 0, 1), "no numeric column 'stat'; did you mean: state"),
        (lambda e: e.rows("zzzz", [0]), "did you mean: action, episode_idx"),
        (lambda e: e.windows([0], 1, columns=["pixel"]), "did you mean: pixels"),
        (lambda e: e.in_memory(["pixel"]), "did you mean: pixels"),
        (lambda e: e.read("state", 0, 45), "there are 44 rows"),
        (lambda e: e.read("state", -1, 2), "rows -1 to 2"),
        (lambda e: e.rows("state", [44]), "row 44 is outside"),
        (lambda e: e.rows("state", [-1]), "row -1 is outside"),
        (lambda e: e.rows("state", [0.5]), "1-D integer"),
        (lambda e: e.rows("state", [[1]]), "1-D integer"),
        (lambda e: e.episode(4), "episode 4 asked for, but there are 4"),
        (lambda e: e.windows([0], 0, columns=["state"]), "length must be at least 1"),
        (lambda e: e.windows([0], 1, columns=["state"], stride=0), "stride must be at least 1"),
        (lambda e: e.window_starts(0), "span must be at least 1"),
    ],
)
def test_impossible_questions_are_refused(
    merged: Path, ask: Callable[[Episodes], Any], complaint: str
) -> None:
    with open_episodes(merged) as episodes, pytest.raises(ValueError, match=complaint):
        ask(episodes)
