"""Reading episode files: HDF5 in stable-worldmodel's column layout.

One HDF5 dataset per column, the rows of all episodes one after the other, plus `ep_len` and
`ep_offset` (one entry per episode). Shapes below use N rows and E episodes.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin  # noqa: F401 - registers the codecs with HDF5
import numpy as np

from goalward.checks import one_line
from goalward.data.episodes import Column, Episodes, Index
from goalward.types import Array

FORMAT = "goalward-episodes"
FORMAT_VERSION = 1
EPISODE_TABLES = ("ep_len", "ep_offset")  # one entry per episode, unlike every column

_SPAN_BYTES = 1 << 20  # read in one HDF5 call, unless a chunk is larger


class H5Episodes(Episodes):
    """An HDF5 episode file, opened when first read in each process (also after pickling)."""

    def __init__(self, path: Path) -> None:
        with open_h5(path) as file:
            items = dict(file.items())  # one lookup each: h5py takes its time over them
            lengths = _episode_lengths(path, items)
            columns, self._names = _find_columns(path, items, int(lengths.sum()))
            attributes = _text_attributes(path, file)
        super().__init__(path, lengths, columns, attributes)
        self._file: Any = None
        self._owner = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}

    @contextmanager
    def _dataset(self, column: str) -> Iterator[Any]:
        """The HDF5 dataset of a column, with an error that says what to do if it is damaged."""
        if self._file is None or self._owner != os.getpid():  # a fork must not share the handle
            self._file, self._owner = _open_alongside_others(self.path), os.getpid()
        try:
            yield self._file[self._names[column]]
        except OSError as error:
            raise ValueError(
                f"{self.path}: cannot read column '{column}' ({one_line(str(error))}); "
                "the file is damaged: copy, download or collect it again"
            ) from error

    def _read(self, column: str, start: int, stop: int) -> Array:
        # In blocks: HDF5 prepares a read chunk by chunk, and twice as fast for a few as for many.
        with self._dataset(column) as dataset:
            out = np.empty((stop - start, *dataset.shape[1:]), dtype=dataset.dtype)
            _, most = self._span_sizes(column, dataset)
            for low in range(start, stop, most):
                high = min(low + most, stop)
                out[low - start : high - start] = dataset[low:high]
        return out

    def _rows(self, column: str, index: Index) -> Array:
        # Contiguous slices only: HDF5 takes ~50x longer over strided or scattered selections.
        order = np.argsort(index, kind="stable")
        ordered = index[order]
        with self._dataset(column) as dataset:
            out = np.empty((len(index), *dataset.shape[1:]), dtype=dataset.dtype)
            for low, high in _spans(ordered, *self._span_sizes(column, dataset)):
                start = int(ordered[low])
                block = dataset[start : int(ordered[high - 1]) + 1]
                if high == low + 1:  # the usual case for images, worth its own faster copy
                    out[order[low]] = block[0]
                else:
                    out[order[low:high]] = block[ordered[low:high] - start]
        return out

    def _span_sizes(self, column: str, dataset: Any) -> tuple[int, int]:
        """Rows that cost one access (a chunk, else a 4 KiB page), and rows read at most at once."""
        row_bytes = max(self.columns[column].row_bytes, 1)
        near = dataset.chunks[0] if dataset.chunks else max(4096 // row_bytes, 1)
        return near, near * max(_SPAN_BYTES // (near * row_bytes), 1)

    def close(self) -> None:
        """Close the file; a later read opens it again."""
        if self._file is not None and self._owner == os.getpid():
            self._file.close()
        self._file = None


def open_h5(path: Path) -> Any:
    """Open an HDF5 file for reading, with errors that say what is wrong with it."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; check the path")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        if "truncated file" in str(error):
            reason = "is cut short (truncated HDF5); copy, download or collect it again"
        elif "signature not found" in str(error):
            reason = "is not an HDF5 file; give an .h5 episode file"
        else:
            reason = f"cannot be opened as HDF5: {one_line(str(error))}"
        raise ValueError(f"{path} {reason}") from error


def _open_alongside_others(path: Path) -> Any:
    """Open a file that others in this process may have open too, or may want to open later.

    stable-worldmodel opens in SWMR mode, which HDF5 refuses once the file is open without it, but
    not the other way round. Only the plain mode notices a file cut short, hence not everywhere.
    """
    try:
        return h5py.File(path, "r", swmr=True)
    except OSError:
        return open_h5(path)


def _episode_lengths(path: Path, items: Mapping[str, Any]) -> Index:
    """Read `ep_len` and check that with `ep_offset` the episodes follow one another: (E,)."""
    if not isinstance(items.get("ep_len"), h5py.Dataset):
        held = ", ".join(sorted(items)) or "nothing"
        raise ValueError(f"{path} is no episode file: it has no dataset 'ep_len', only {held}")
    lengths = np.asarray(items["ep_len"][()])
    if lengths.ndim != 1 or lengths.size == 0 or lengths.dtype.kind not in "iu":
        raise ValueError(f"{path}: 'ep_len' must hold at least one integer length in one dimension")
    lengths = lengths.astype(np.int64)
    if lengths.min() < 1:
        i = int(np.argmax(lengths < 1))
        raise ValueError(f"{path}: 'ep_len' says that episode {i} has {lengths[i]} rows")
    expected = np.cumsum(lengths) - lengths
    if not isinstance(items.get("ep_offset", items["ep_len"]), h5py.Dataset):
        raise ValueError(f"{path}: 'ep_offset' is no dataset; it must hold a row number an episode")
    offsets = np.asarray(items["ep_offset"][()]) if "ep_offset" in items else expected
    if offsets.shape != lengths.shape:
        raise ValueError(
            f"{path}: 'ep_offset' has shape {offsets.shape}, 'ep_len' {lengths.shape}; "
            "both need one entry per episode"
        )
    if (offsets != expected).any():
        i = int(np.argmax(offsets != expected))
        raise ValueError(
            f"{path}: 'ep_offset' and 'ep_len' disagree: episode {i} starts at row {offsets[i]}, "
            f"but the episodes before it end at row {expected[i]} of {lengths.sum()}"
        )
    return lengths


def _find_columns(
    path: Path, items: Mapping[str, Any], num_rows: int
) -> tuple[dict[str, Column], dict[str, str]]:
    """The columns and the datasets that hold them; text, scalars and groups are left out."""
    columns: dict[str, Column] = {}
    names: dict[str, str] = {}
    for stored in sorted(items):
        name = "episode_idx" if stored == "ep_idx" else stored
        item = items[stored]
        if stored in EPISODE_TABLES or not isinstance(item, h5py.Dataset):
            continue
        shape, dtype = item.shape, item.dtype
        if dtype.kind not in "biuf" or not shape:
            continue
        if shape[0] != num_rows:
            raise ValueError(
                f"{path}: column '{stored}' has {shape[0]} rows, "
                f"but the lengths in 'ep_len' add up to {num_rows}"
            )
        if name == "pixels":
            require_frames(path, shape, dtype)
        columns[name] = Column(name, shape[1:], dtype)
        names[name] = stored
    return columns, names


def require_frames(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse images that are not uint8 (N, H, W, 3)."""
    if dtype != np.uint8 or len(shape) != 4 or shape[-1] != 3 or 0 in shape[1:]:
        raise ValueError(f"{path}: 'pixels' must be uint8 (N, H, W, 3), but is {dtype} {shape}")


def _text_attributes(path: Path, file: Any) -> dict[str, str]:
    attributes = {
        name: value.decode() if isinstance(value, bytes) else str(value)
        for name, value in file.attrs.items()
    }
    version = attributes.get("format_version", "")
    if attributes.get("format") == FORMAT and version != str(FORMAT_VERSION):
        raise ValueError(
            f"{path} has version {version} of the episode format, but this goalward reads "
            f"version {FORMAT_VERSION}; install the goalward that wrote it"
        )
    return attributes


def _spans(rows: Index, near: int, most: int) -> Iterator[tuple[int, int]]:
    """Cut sorted rows into (low, high) spans that are each worth one contiguous read.

    Rows in the same or in neighbouring groups of `near` rows are read together; no span covers
    more than `most` rows, a multiple of `near`.
    """
    if len(rows) == 0:
        return
    apart = (np.diff(rows // near) > 1) | (np.diff(rows // most) > 0)
    edges = [0, *(np.flatnonzero(apart) + 1).tolist(), len(rows)]
    yield from itertools.pairwise(edges)
