"""Small episodes to write and merge, the files made of them, and ways to spoil both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import h5py
import numpy as np
import pytest

from goalward.core.arrays import Array
from goalward.data.hdf5 import merge_episodes, write_episode

LENGTHS = (7, 12, 5, 20)
TASK = {"task": "two-room"}

ColumnsChange: TypeAlias = "Callable[[dict[str, Array]], dict[str, Array]]"


def make_episode(seed: int, rows: int, side: int = 8) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    action = rng.normal(size=(rows, 2)).astype(np.float32)
    action[-1] = np.nan
    return {
        "pixels": rng.integers(0, 256, (rows, side, side, 3), dtype=np.uint8),
        "action": action,
        "state": rng.normal(size=(rows, 4)),
        "proprio": rng.normal(size=(rows, 3)).astype(np.float32),
    }


def all_rows(episodes: list[dict[str, Array]]) -> dict[str, Array]:
    return {name: np.concatenate([e[name] for e in episodes]) for name in episodes[0]}


def write_parts(folder: Path, lengths: tuple[int, ...] = LENGTHS) -> list[Path]:
    folder.mkdir(exist_ok=True)
    parts = [folder / f"{k:06d}.h5" for k in range(len(lengths))]
    for k, (part, rows) in enumerate(zip(parts, lengths, strict=True)):
        write_episode(part, make_episode(k, rows), attributes=TASK)
    return parts


@pytest.fixture(name="merged", scope="module")
def merged_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("merged")
    out = folder / "episodes.h5"
    merge_episodes(write_parts(folder / "parts"), out)
    return out


@pytest.fixture(name="content", scope="module")
def content_fixture() -> dict[str, Array]:
    return all_rows([make_episode(k, rows) for k, rows in enumerate(LENGTHS)])


def without(name: str) -> ColumnsChange:
    return lambda columns: {k: v for k, v in columns.items() if k != name}


def having(name: str, values: Any) -> ColumnsChange:
    return lambda columns: {**columns, name: np.asarray(values)}


def edit(path: Path, change: Callable[[Any], None]) -> Path:
    with h5py.File(path, "r+") as file:
        change(file)
    return path


def replace(file: Any, name: str, values: Any) -> None:
    if name in file:
        del file[name]
    file.create_dataset(name, data=values)
