"""Episodes stored one after the other as rows: reading, windows, memory, and their id.

Shapes use E episodes, N rows of all of them, M rows asked for, and B windows.
"""

from __future__ import annotations

import hashlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from goalward.core.arrays import Array, indices
from goalward.core.artifacts import MANIFEST, load_manifest
from goalward.core.checks import as_path, format_value
from goalward.core.config import canonical
from goalward.core.config_errors import did_you_mean

Index = npt.NDArray[np.int64]

SUFFIXES = (".h5", ".hdf5", ".lance")
SAMPLED_FRAMES = 64  # that the id of a foreign file depends on


@dataclass(frozen=True)
class Column:
    """What one row of a column holds; `shape` leaves the row axis out."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row once it is decoded."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class Episodes(ABC):
    """Episodes of one file or dataset; what every reader offers.

    Attributes:
        path: The file, folder or dataset id that was opened.
        lengths: (E,) int64, rows of each episode, all at least 1.
        offsets: (E,) int64, first row of each episode; episodes are contiguous and in order.
        columns: The numeric columns, by name.
        attributes: The text attributes of the file.
    """

    def __init__(
        self,
        path: Path,
        lengths: Index,
        columns: Mapping[str, Column],
        attributes: Mapping[str, str],
    ) -> None:
        self.path = path
        self.lengths = np.asarray(lengths, dtype=np.int64)
        self.offsets = np.cumsum(self.lengths) - self.lengths
        self.columns = dict(columns)
        self.attributes = dict(attributes)

    @abstractmethod
    def _rows(self, column: str, index: Index) -> Array:
        """Rows at `index` (M,) of a column that exists, within the bounds, in any order."""

    def _read(self, column: str, start: int, stop: int) -> Array:
        """Rows [start, stop) of a column that exists, within the bounds."""
        return self._rows(column, np.arange(start, stop, dtype=np.int64))

    @abstractmethod
    def close(self) -> None:
        """Let go of the file; a later read opens it again."""

    def __enter__(self) -> Episodes:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def num_episodes(self) -> int:
        """E, the number of episodes."""
        return len(self.lengths)

    @property
    def num_rows(self) -> int:
        """N, the number of rows of all episodes."""
        return int(self.lengths.sum())

    def read(self, column: str, start: int = 0, stop: int | None = None) -> Array:
        """Rows [start, stop) of `column`, counted over all episodes: (stop - start, ...)."""
        (name,), end = self._names([column]), self.num_rows if stop is None else stop
        if not 0 <= start <= end <= self.num_rows:
            held = f"holds rows 0 to {self.num_rows - 1}"
            raise ValueError(f"{self.path}: {held}, got start {start} and stop {end}")
        return self._read(name, start, end)

    def rows(self, column: str, index: npt.ArrayLike) -> Array:
        """Rows at `index` (M,), counted over all episodes, any order, repeats allowed: (M, ...)."""
        return self._rows(self._names([column])[0], indices(index, "rows", self.num_rows))

    def episode(self, i: int, columns: Sequence[str] | None = None) -> dict[str, Array]:
        """All rows of episode `i`, for the named columns (default: every column)."""
        (k,) = indices([i], "episodes", self.num_episodes)
        start, stop = int(self.offsets[k]), int(self.offsets[k] + self.lengths[k])
        return {name: self._read(name, start, stop) for name in self._names(columns)}

    def windows(
        self, starts: npt.ArrayLike, length: int, *, columns: Sequence[str], stride: int = 1
    ) -> dict[str, Array]:
        """Rows start, start + stride, ... of each window: (B, length, ...) for each column.

        Each window must lie within one episode.
        """
        if length < 1 or stride < 1:
            raise ValueError(f"length and stride must be at least 1, got {length} and {stride}")
        names, first = self._names(columns), indices(starts, "starts", self.num_rows)
        self._require_within_episodes(first, (length - 1) * stride + 1)
        index = (first[:, None] + np.arange(length) * stride).reshape(-1)
        found = {name: self._rows(name, index) for name in names}
        return {k: rows.reshape(len(first), length, *rows.shape[1:]) for k, rows in found.items()}

    def window_starts(self, span: int, episodes: npt.ArrayLike | None = None) -> Index:
        """All rows s such that s .. s + span - 1 lie in one (of the given) episode(s): (M,)."""
        if span < 1:
            raise ValueError(f"span must be at least 1, got {span}")
        chosen: Any = slice(None)
        if episodes is not None:
            chosen = indices(episodes, "episodes", self.num_episodes)
        counts = np.maximum(self.lengths[chosen] - span + 1, 0)
        shift = self.offsets[chosen] - (np.cumsum(counts) - counts)
        return np.repeat(shift, counts) + np.arange(counts.sum(), dtype=np.int64)

    def has_action(self) -> npt.NDArray[np.bool_]:
        """(N,) False where the action row holds NaN: the last frame of an episode has no action."""
        action = self.read("action")
        return np.logical_not(np.isnan(action.reshape(len(action), -1)).any(axis=1))

    def in_memory(
        self, columns: Sequence[str] | None = None, limit_bytes: int | None = None
    ) -> Episodes:
        """A reader that holds the columns in RAM as far as they fit; the rest is still streamed.

        Smaller columns go first, so that the many small columns never wait for the images.

        Args:
            columns: Columns wanted in memory; every column by default.
            limit_bytes: Bytes they may take; half of the available memory by default.
        """
        wanted = [self.columns[name] for name in self._names(columns)]
        room = available_memory() // 2 if limit_bytes is None else limit_bytes
        held: dict[str, Array] = {}
        for column in sorted(wanted, key=lambda column: column.row_bytes):
            room -= column.row_bytes * self.num_rows
            if room < 0:
                break
            held[column.name] = self.read(column.name)
        return _HeldEpisodes(self, held)

    def _names(self, columns: Sequence[str] | None) -> list[str]:
        """The names of columns that are asked for, all of which exist; by default, of every one."""
        if columns is None:
            return list(self.columns)
        if isinstance(columns, str):
            raise ValueError(f"columns must be a list of names, got {format_value(columns)}")
        for name in columns:
            if name not in self.columns:
                near = did_you_mean(name, self.columns)
                hint = near or f"; it has: {', '.join(self.columns) or 'none'}"
                raise ValueError(f"{self.path} has no numeric column {format_value(name)}{hint}")
        return list(columns)

    def _require_within_episodes(self, first: Index, span: int) -> None:
        episode = np.searchsorted(self.offsets, first, side="right") - 1
        end = self.offsets[episode] + self.lengths[episode]
        outside = np.flatnonzero(first + span > end)
        if outside.size:
            k = outside[0]
            raise ValueError(
                f"{self.path}: window {k} takes rows {first[k]} to {first[k] + span - 1}, but "
                f"episode {episode[k]} ends at row {end[k] - 1}; take starts from window_starts"
            )


class _HeldEpisodes(Episodes):
    """A reader with some columns in RAM; a pickled copy leaves them behind and streams instead."""

    def __init__(self, source: Episodes, held: dict[str, Array]) -> None:
        super().__init__(source.path, source.lengths, source.columns, source.attributes)
        self._source = source
        self._held = held

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_held": {}}

    def _read(self, column: str, start: int, stop: int) -> Array:
        if column in self._held:
            return self._held[column][start:stop].copy()
        return self._source.read(column, start, stop)

    def _rows(self, column: str, index: Index) -> Array:
        if column in self._held:
            return np.take(self._held[column], index, axis=0, mode="clip")
        return self._source.rows(column, index)

    def close(self) -> None:
        self._source.close()


def open_episodes(path: str | Path) -> Episodes:
    """Open an .h5 file, a folder with exactly one, a `.lance` folder or a `lerobot://` id."""
    from goalward.data.foreign import ForeignEpisodes  # both import this module
    from goalward.data.hdf5_reader import H5Episodes

    as_path(path)
    remote = re.fullmatch(r"lerobot:/+(.+)", str(path))  # a Path folds the two slashes into one
    found = Path(path) if remote else _locate(Path(path).absolute())
    if (found.parent / MANIFEST).is_file():
        load_manifest(found.parent)  # of the content, what is read is checked when it is read
    if remote or found.suffix == ".lance":
        return ForeignEpisodes(f"lerobot://{remote[1]}" if remote else str(found))
    return H5Episodes(found)


def available_memory() -> int:
    """Bytes this process may still take: the machine's, or its control group's if less."""
    page = os.sysconf("SC_PAGE_SIZE")
    meminfo, group = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")
    free = os.sysconf("SC_PHYS_PAGES") * page
    if meminfo.exists() and (found := re.search(r"MemAvailable:\s*(\d+) kB", meminfo.read_text())):
        free = int(found[1]) * 1024
    if group.exists() and (limit := group.read_text().strip()).isdigit():
        used = int(Path("/proc/self/statm").read_text().split()[1]) * page
        free = min(free, max(int(limit) - used, 0))
    return free


def _locate(path: Path) -> Path:
    """The one dataset a path stands for: itself, or the only one in a folder."""
    if not path.is_dir() or path.suffix == ".lance":
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist; check the path")
        return path
    names = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES)
    if len(names) != 1:
        held = ", ".join(p.name for p in names) or "none"
        raise ValueError(f"{path} must hold exactly one .h5 file, but holds {held}; give the file")
    return names[0]


def episodes_id(episodes: Episodes) -> str:
    """The id of the stage that wrote the file or, for a foreign file, a digest of its content.

    The digest covers the columns, the episodes' lengths, all actions and some of the frames:
    hashing gigabytes of frames at every start would cost more than it protects.
    """
    if (episodes.path.parent / MANIFEST).is_file():
        manifest = load_manifest(episodes.path.parent)
        if episodes.path.name in manifest.files:
            return manifest.id
    digest = hashlib.sha256()
    columns = [[c.name, list(c.shape), str(c.dtype)] for c in episodes.columns.values()]
    digest.update(canonical(sorted(columns)).encode())
    digest.update(episodes.lengths.tobytes())
    if "action" in episodes.columns:
        digest.update(np.ascontiguousarray(episodes.read("action")).tobytes())
    if "pixels" in episodes.columns:
        rows = np.linspace(0, episodes.num_rows - 1, SAMPLED_FRAMES).astype(np.int64)
        digest.update(np.ascontiguousarray(episodes.rows("pixels", rows)).tobytes())
    return digest.hexdigest()[:16]
