"""Reading episodes: rows, windows, columns held in memory, and readers in other processes."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from episode_helpers import TASK, make_episode, write_parts
from goalward.core.arrays import Array
from goalward.data.episodes import Episodes, open_episodes
from goalward.data.hdf5 import merge_episodes, write_episode


def test_rows_come_in_any_order_and_with_repeats(merged: Path, content: dict[str, Array]) -> None:
    index = np.array([40, 3, 3, 0, 43, 12, 11, 40])
    with open_episodes(merged) as episodes:
        for name in ("pixels", "state"):
            np.testing.assert_array_equal(episodes.rows(name, index), content[name][index])
        assert episodes.rows("pixels", np.array([], np.int64)).shape == (0, 8, 8, 3)


def test_reads_larger_than_one_block_are_put_together(
    merged: Path, content: dict[str, Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goalward.data.hdf5_reader.BLOCK_BYTES", 1000)  # 5 frames
    with open_episodes(merged) as episodes:
        np.testing.assert_array_equal(episodes.read("pixels", 1, 40), content["pixels"][1:40])
        np.testing.assert_array_equal(episodes.rows("pixels", np.arange(44)), content["pixels"])
        np.testing.assert_array_equal(episodes.read("state", 1, 40), content["state"][1:40])


@pytest.mark.parametrize("memory", [False, True])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_windows_are_slices_of_the_rows(
    merged: Path, content: dict[str, Array], memory: bool, data: st.DataObject
) -> None:
    length, stride = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    span = (length - 1) * stride + 1
    with open_episodes(merged) as streamed:
        episodes = streamed.in_memory() if memory else streamed
        possible = episodes.window_starts(span).tolist()
        starts = data.draw(st.lists(st.sampled_from(possible), max_size=8))
        got = episodes.windows(starts, length, columns=["pixels", "action"], stride=stride)
        for name in ("pixels", "action"):
            assert got[name].shape == (len(starts), length, *content[name].shape[1:])
            for window, s in zip(got[name], starts, strict=True):
                np.testing.assert_array_equal(window, content[name][s : s + span : stride])


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 10), st.data())
def test_window_starts_are_all_the_rows_whose_span_stays_in_one_episode(
    lengths: list[int], span: int, data: st.DataObject
) -> None:
    episodes = _LengthsOnly(lengths)
    chosen = data.draw(st.none() | st.lists(st.sampled_from(range(len(lengths))), unique=True))
    expected = [
        int(episodes.offsets[e]) + k
        for e in (range(len(lengths)) if chosen is None else chosen)
        for k in range(lengths[e] - span + 1)
    ]
    assert episodes.window_starts(span, chosen).tolist() == expected


class _LengthsOnly(Episodes):
    def __init__(self, lengths: list[int]) -> None:
        super().__init__(Path("none"), np.array(lengths, np.int64), {}, {})

    def _rows(self, column: str, index: Array) -> Array:
        raise NotImplementedError

    def close(self) -> None:
        pass


@pytest.mark.parametrize("memory", [False, True])
def test_a_window_across_two_episodes_is_refused(merged: Path, memory: bool) -> None:
    with open_episodes(merged) as streamed:
        episodes = streamed.in_memory() if memory else streamed
        episodes.windows([0, 2], 3, columns=["state"], stride=2)
        complaint = "window 1 takes rows 3 to 7, but episode 0 ends at row 6"
        with pytest.raises(ValueError, match=complaint):
            episodes.windows([0, 3], 3, columns=["state"], stride=2)
        with pytest.raises(ValueError, match="window 0 takes rows 43 to 44"):
            episodes.windows([43], 2, columns=["state"])


# Memory


def test_what_is_read_from_memory_is_a_copy(merged: Path, content: dict[str, Array]) -> None:
    with open_episodes(merged) as episodes:
        held = episodes.in_memory(["pixels"])
        held.read("pixels", 0, 5)[:] = 0
        held.episode(0, ["pixels"])["pixels"][:] = 0
        np.testing.assert_array_equal(held.read("pixels", 0, 5), content["pixels"][:5])


def test_the_memory_limit_is_kept_by_streaming_the_large_columns(
    tmp_path: Path, content: dict[str, Array]
) -> None:
    merge_episodes(write_parts(tmp_path / "parts"), tmp_path / "m.h5")
    with open_episodes(tmp_path / "m.h5") as episodes:
        held = episodes.in_memory(["pixels", "action"], limit_bytes=content["pixels"].nbytes)
        np.testing.assert_array_equal(held.rows("pixels", [5, 1]), content["pixels"][[5, 1]])
    (tmp_path / "m.h5").unlink()
    np.testing.assert_array_equal(held.rows("action", [5, 1]), content["action"][[5, 1]])
    with pytest.raises(FileNotFoundError):
        held.rows("pixels", [0])


# Files and processes


def test_a_folder_stands_for_the_one_file_in_it(tmp_path: Path) -> None:
    write_episode(tmp_path / "episodes.h5", make_episode(0, 5), attributes=TASK)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / ".other.h5.12-ab.tmp").write_bytes(b"half a file")
    with open_episodes(tmp_path) as episodes:
        assert episodes.path == tmp_path / "episodes.h5"
    write_episode(tmp_path / "more.hdf5", make_episode(0, 5), attributes=TASK)
    with pytest.raises(ValueError, match=r"exactly one .h5 file, but holds episodes.h5, more.hdf5"):
        open_episodes(tmp_path)


@pytest.mark.parametrize("memory", [False, True])
def test_a_pickled_reader_opens_the_file_again(
    merged: Path, content: dict[str, Array], memory: bool
) -> None:
    with open_episodes(merged) as streamed:
        episodes = streamed.in_memory() if memory else streamed
        episodes.read("pixels", 0, 1)
        data = pickle.dumps(episodes)
        assert len(data) < 5000  # neither the file's content nor that of the memory
        copy = pickle.loads(data)
    with copy:
        np.testing.assert_array_equal(copy.read("pixels", 2, 5), content["pixels"][2:5])


def test_importing_the_reader_imports_neither_torch_nor_the_simulators() -> None:
    program = (
        "import sys, goalward.data.episodes, goalward.data.hdf5, goalward.data.foreign\n"
        "sys.exit('torch' in sys.modules or 'stable_worldmodel' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("ask", "complaint"),
    [
        (lambda e: e.read("stat", 0, 1), "no numeric column 'stat'; did you mean 'state'"),
        (lambda e: e.rows("zzzz", [0]), "it has: action, episode_idx"),
        (lambda e: e.windows([0], 1, columns=["pixel"]), "did you mean 'pixels'"),
        (lambda e: e.in_memory("pixels"), "columns must be a list of names, got 'pixels'"),
        (lambda e: e.read("state", 0, 45), "holds rows 0 to 43, got start 0 and stop 45"),
        (lambda e: e.read("state", 3, 2), "holds rows 0 to 43, got start 3 and stop 2"),
        (lambda e: e.rows("state", [44]), r"rows must lie in 0 .. 43, got 44"),
        (lambda e: e.rows("state", [-1]), r"rows must lie in 0 .. 43, got -1"),
        (lambda e: e.rows("state", [0.5]), "rows must be a 1-D integer array"),
        (lambda e: e.episode(4), r"episodes must lie in 0 .. 3, got 4"),
        (
            lambda e: e.windows([0], 0, columns=["state"]),
            "length and stride must be at least 1, got 0 and",
        ),
        (
            lambda e: e.windows([0], 1, columns=["state"], stride=0),
            "must be at least 1, got 1 and 0",
        ),
        (lambda e: e.window_starts(0), "span must be at least 1"),
        (lambda e: e.window_starts(1, [4]), r"episodes must lie in 0 .. 3, got 4"),
    ],
)
def test_impossible_questions_are_refused(
    merged: Path, ask: Callable[[Episodes], Any], complaint: str
) -> None:
    with open_episodes(merged) as episodes, pytest.raises(ValueError, match=complaint):
        ask(episodes)
