"""Pairs: spread over episodes, admitted by their protocol, and the same when read back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from goalward.core.arrays import Array
from goalward.data.episodes import open_episodes
from goalward.data.splits import split_episodes
from goalward.evaluation.pairs import (
    Pairs,
    PairsConfig,
    draw_pairs,
    draw_starts,
    load_pairs,
    save_pairs,
    state_rows,
)
from goalward.tasks import get_task

pytest.importorskip("stable_worldmodel")

Dataset = Callable[[str], Path]
CONFIG = PairsConfig(task="two-room", count=5, goal_offset=10, split="all")


@pytest.fixture(name="pairs", scope="module")
def pairs_fixture(dataset: Dataset) -> Pairs:
    return draw_pairs(dataset("two-room"), CONFIG)


def drawn_starts(dataset: Dataset, task: str = "two-room", **wanted: Any) -> Array:
    with open_episodes(dataset(task)) as episodes:
        return draw_starts(episodes, PairsConfig(task=task, **{"split": "all", **wanted}))


def test_every_pair_lies_in_one_episode_and_is_drawn_once(dataset: Dataset) -> None:
    number = 8 * (101 - 25)  # of all that there are
    starts = drawn_starts(dataset, count=number)
    assert len(np.unique(starts)) == number
    assert (starts // 101 == (starts + 25) // 101).all()
    with pytest.raises(ValueError, match="asked for 609 pairs, but 608 of the 608 pairs"):
        drawn_starts(dataset, count=number + 1)


def test_pairs_are_spread_over_the_episodes_and_seeded(dataset: Dataset) -> None:
    assert sorted(drawn_starts(dataset, count=8) // 101) == [*range(8)]
    assert np.bincount(drawn_starts(dataset, count=80, seed=1) // 101).tolist() == [10] * 8
    once, again, other = (drawn_starts(dataset, count=20, seed=s).tolist() for s in (7, 7, 8))
    assert once == again != other


def test_a_protocol_admits_only_its_own_pairs(dataset: Dataset) -> None:
    task = get_task("cube")
    starts = drawn_starts(dataset, "cube", protocol="moderate", count=40)
    with open_episodes(dataset("cube")) as episodes:
        start, goal = (state_rows(episodes, task, starts + k) for k in (0, 25))
        assert not task.protocols["moderate"].solved(start, goal).any()


def test_pairs_come_from_the_part_of_the_split_that_is_asked_for(dataset: Dataset) -> None:
    split = split_episodes(8)
    assert len(split.validation) == 1 and len(split.test) == 0
    found = draw_pairs(dataset("two-room"), replace(CONFIG, split="validation"))
    assert {pair.episode for pair in found.pairs} == set(split.validation)
    with pytest.raises(ValueError, match="asked for 5 pairs, but 0"):
        draw_pairs(dataset("two-room"), replace(CONFIG, split="test"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state": np.full((31, 2), np.nan)}, "row 0 of column 'state' holds NaN or infinity"),
        ({"state": np.zeros((31, 7))}, r"'state' has shape \(7,\), but task two-room needs \(2,\)"),
    ],
)
def test_impossible_states_are_refused(
    change: dict[str, Array], message: str, tmp_path: Path
) -> None:
    columns = {
        "pixels": np.zeros((31, 16, 16, 3), np.uint8),
        "action": np.full((31, 2), np.nan, np.float32),
        "state": np.zeros((31, 2)),
    }
    with h5py.File(tmp_path / "bad.h5", "w") as file:
        for name, values in {**columns, **change, "ep_len": np.array([31])}.items():
            file[name] = values
    with open_episodes(tmp_path / "bad.h5") as episodes, pytest.raises(ValueError, match=message):
        draw_starts(episodes, CONFIG)


def test_pairs_are_read_back_the_same(pairs: Pairs, tmp_path: Path) -> None:
    save_pairs(tmp_path / "pairs.safetensors", pairs)
    again = load_pairs(tmp_path / "pairs.safetensors")
    assert again.id == pairs.id and again.metadata == pairs.metadata and len(again) == 5
    for ours, theirs in zip(pairs.pairs, again.pairs, strict=True):
        assert (ours.number, ours.episode) == (theirs.number, theirs.episode)
        np.testing.assert_array_equal(ours.goal_frame, theirs.goal_frame)
        np.testing.assert_array_equal(ours.recorded, theirs.recorded)
        for name in ours.start:
            np.testing.assert_array_equal(ours.start[name], theirs.start[name])


def test_the_id_changes_with_any_bit(pairs: Pairs) -> None:
    first, *rest = pairs.pairs
    frame = first.goal_frame.copy()
    frame[0, 0, 0] ^= 1
    changed = replace(pairs, pairs=(replace(first, goal_frame=frame), *rest))
    assert changed.id != pairs.id
    metadata = replace(pairs.metadata, config=replace(CONFIG, seed=1))
    assert replace(pairs, metadata=metadata).id != pairs.id


def test_a_changed_byte_anywhere_is_refused(pairs: Pairs, tmp_path: Path) -> None:
    path = tmp_path / "pairs.safetensors"
    save_pairs(path, pairs)
    content = path.read_bytes()
    for at in np.linspace(0, len(content) - 1, 200).astype(int):
        path.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        with pytest.raises(ValueError, match=r"pairs\.safetensors: .*damaged"):
            load_pairs(path)
    for bad in (content[:-50], b"hello", b""):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match="damaged"):
            load_pairs(path)


def test_frames_of_an_earlier_renderer_are_refused(dataset: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "episodes.h5"
    shutil.copy(dataset("two-room") / "episodes.h5", path)
    draw_pairs(path, CONFIG)
    with h5py.File(path, "a") as file:
        file.attrs["renderer"] = "0"
    with pytest.raises(ValueError, match=r"by version 0 .* has version 1; collect them again"):
        draw_pairs(path, CONFIG)
