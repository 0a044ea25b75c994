"""What an episode file is known by, so that results can name what they came from."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from goalward.core.arrays import Array, as_array
from goalward.core.artifacts import Manifest, load_manifest
from goalward.core.checks import MOST, as_path, format_value, whole_number
from goalward.core.config import canonical

Index = npt.NDArray[np.int64]


_SUFFIXES = (".h5", ".hdf5", ".lance")


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
    """Episodes stored one after the other as rows; what every reader offers.

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
    def _read(self, column: str, start: int, stop: int) -> Array:
        """Rows [start, stop) of a column that exists, within the bounds."""

    @abstractmethod
    def _rows(self, column: str, index: Index) -> Array:
        """Rows at `index` (M,) of a column that exists, within the bounds, in any order."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the file; a later read opens it again."""

    def __enter__(self) -> Episodes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def num_episodes(self) -> int:
        """E, the number of episodes."""
        return len(self.lengths)

    @property
    def num_rows(self) -> int:
        """N, the number of rows of all episodes."""
        return int(self.lengths.sum())

    def read(self, column: str, start: int, stop: int) -> Array:
        """Rows [start, stop) of `column`, counted over all episodes: (stop - start, ...)."""
        self._require(column)
        for name, row in (("start", start), ("stop", stop)):
            whole_number(row, name, least=-MOST)
        if not 0 <= start <= stop <= self.num_rows:
            raise ValueError(
                f"{self.path}: rows {start} to {stop} asked for, but there are {self.num_rows} rows"
            )
        return self._read(column, start, stop)

    def rows(self, column: str, index: npt.ArrayLike) -> Array:
        """Rows at `index` (M,), counted over all episodes, any order, repeats allowed: (M, ...)."""
        self._require(column)
        return self._rows(column, self._row_index(index))

    def episode(self, i: int, columns: Sequence[str] | None = None) -> dict[str, Array]:
        """All rows of episode `i`, for the named columns (default: every column)."""
        if not whole_number(i, "episode", least=0) < self.num_episodes:
            raise ValueError(
                f"{self.path}: episode {i} asked for, but there are {self.num_episodes} episodes"
            )
        start = int(self.offsets[i])
        stop = start + int(self.lengths[i])
        return {name: self.read(name, start, stop) for name in self._named(columns)}

    def windows(
        self, starts: npt.ArrayLike, length: int, *, columns: Sequence[str], stride: int = 1
    ) -> dict[str, Array]:
        """Rows start, start + stride, ... of each window: (B, length, ...) for each column.

        Raises:
            ValueError: A window does not lie within one episode: the message names the first.
        """
        span = (whole_number(length, "length") - 1) * whole_number(stride, "stride") + 1
        if span > self.num_rows:
            raise ValueError(f"{self.path}: windows of {span} rows, but it has {self.num_rows}")
        names, first = self._named(columns), self._row_index(starts)
        self._require_within_episodes(first, span)
        index = (first[:, None] + np.arange(length) * stride).reshape(-1)
        shape = (len(first), length)
        return {
            name: (rows := self.rows(name, index)).reshape(shape + rows.shape[1:]) for name in names
        }

    def window_starts(self, span: int, episodes: npt.ArrayLike | None = None) -> Index:
        """All rows s such that s .. s + span - 1 lie in one (of the given) episode(s): (M,)."""
        whole_number(span, "span")
        chosen = slice(None) if episodes is None else self._episode_index(episodes)
        counts = np.maximum(self.lengths[chosen] - min(span, self.num_rows + 1) + 1, 0)
        shift = self.offsets[chosen] - (np.cumsum(counts) - counts)
        return np.repeat(shift, counts) + np.arange(counts.sum(), dtype=np.int64)

    def has_action(self) -> npt.NDArray[np.bool_]:
        """(N,) False where the action row holds NaN: the last frame of an episode has no action."""
        action = self.read("action", 0, self.num_rows)
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
        wanted = [self._require(name) for name in self._named(columns)]
        room = available_memory() // 2
        if limit_bytes is not None:
            room = whole_number(limit_bytes, "limit_bytes", least=0)
        held: dict[str, Array] = {}
        for column in sorted(wanted, key=lambda column: column.row_bytes):
            size = column.row_bytes * self.num_rows
            if size > room:
                break
            held[column.name] = self.read(column.name, 0, self.num_rows)
            room -= size
        return _HeldEpisodes(self, held)

    def _named(self, columns: Sequence[str] | None) -> Sequence[str]:
        """The names of columns that are asked for, or all."""
        if columns is None:
            return list(self.columns)
        if isinstance(columns, str | bytes) or not isinstance(columns, Sequence):
            raise ValueError(f"columns must be a list of names, got {format_value(columns)}")
        return columns

    def _require(self, column: str) -> Column:
        if not isinstance(column, str):
            raise ValueError(f"a column must be a name, got {format_value(column)}")
        if column not in self.columns:
            near = difflib.get_close_matches(column, self.columns, n=3) or sorted(self.columns)
            hint = f"did you mean: {', '.join(near)}?"
            raise ValueError(f"{self.path} has no numeric column {format_value(column)}; {hint}")
        return self.columns[column]

    def _row_index(self, index: npt.ArrayLike) -> Index:
        return self._index(index, "row", self.num_rows)

    def _episode_index(self, index: npt.ArrayLike) -> Index:
        return self._index(index, "episode", self.num_episodes)

    def _index(self, index: npt.ArrayLike, name: str, number: int) -> Index:
        given = as_array(index, f"{name} indices")
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise ValueError(
                f"{name} indices are a 1-D integer array, not {given.dtype}{given.shape}"
            )
        found = given.astype(np.int64)
        bad = found[(found < 0) | (found >= number)]
        if bad.size:
            raise ValueError(f"{self.path}: {name} {bad[0]} is outside its {number} {name}s")
        return found

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
    """Open an .h5 file, a folder with exactly one, a `.lance` folder or a `lerobot://` id.

    Raises:
        FileNotFoundError: There is nothing at `path`.
        ValueError: What is there cannot be read as episodes; the message says why.
    """
    from goalward.data.foreign import ForeignEpisodes  # both import this module
    from goalward.data.hdf5 import H5Episodes

    as_path(path)
    remote = re.fullmatch(r"lerobot:/+(.+)", str(path))  # a Path folds the two slashes into one
    found = Path(path) if remote else _locate(Path(path).absolute())
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
    names = sorted(p for p in path.iterdir() if p.suffix in _SUFFIXES)
    if len(names) != 1:
        held = ", ".join(p.name for p in names) or "none"
        raise ValueError(f"{path} must hold exactly one .h5 file, but holds {held}; give the file")
    return names[0]


SAMPLED_FRAMES = 64


def episodes_id(episodes: Episodes) -> str:
    """The id of the stage that wrote the file or, for a foreign file, a digest of its content.

    The digest covers the columns, the episodes' lengths, all actions and some of the frames:
    hashing gigabytes of frames at every start would cost more than it protects.
    """
    if (manifest := _manifest(episodes)) is not None:
        return manifest.id
    digest = hashlib.sha256()
    columns = [[c.name, list(c.shape), str(c.dtype)] for c in episodes.columns.values()]
    digest.update(canonical(sorted(columns)).encode())
    digest.update(episodes.lengths.tobytes())
    if "action" in episodes.columns:
        digest.update(np.ascontiguousarray(episodes.read("action", 0, episodes.num_rows)).tobytes())
    if "pixels" in episodes.columns:
        rows = np.linspace(0, episodes.num_rows - 1, SAMPLED_FRAMES).astype(np.int64)
        digest.update(np.ascontiguousarray(episodes.rows("pixels", rows)).tobytes())
    return digest.hexdigest()[:16]


def _manifest(episodes: Episodes) -> Manifest | None:
    """The manifest of the stage that the file is payload of, if it is."""
    try:
        manifest = load_manifest(episodes.path.parent)
    except ValueError:
        return None  # some other folder
    return manifest if episodes.path.name in manifest.files else None
