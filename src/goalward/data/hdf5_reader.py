"""Reading HDF5 episode files, and refusing those that are damaged or that need other files.

No flipped byte is used: HDF5 checks the checksum of a frame when it reads the frame, and those of
headers, attributes and indices. The checksums of the other columns are an attribute of the file;
they are checked when the file is opened. Files without checksums (version 1, public ones) are read.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin  # noqa: F401 - HDF5 finds its codecs once this is imported
import numpy as np
import xxhash

from goalward.core.arrays import Array
from goalward.core.checks import one_line
from goalward.data.episodes import Column, Episodes, Index

FORMAT, FORMAT_VERSION, READABLE = "goalward-episodes", "2", ("1", "2")
CHECKSUMS = "checksums"  # attribute: JSON, column -> XXH3
REDO = "copy, download or collect it again"
DAMAGED = f"is damaged; {REDO}"
BLOCK_BYTES = 1 << 20  # read in one HDF5 call, unless a chunk is larger

# What HDF5 raises for damaged files.
HDF5_ERRORS = (OSError, RuntimeError, KeyError, TypeError, ValueError, MemoryError, OverflowError)


class H5Episodes(Episodes):
    """An HDF5 episode file, opened when first read in each process (also after pickling).

    Attributes:
        checksums: Those that the file holds, by dataset; none in a file of others.
    """

    def __init__(self, path: Path) -> None:
        with open_h5(path) as file, damage_named(path):
            attributes = _text_attributes(path, file)
            datasets = _datasets(path, file)
            lengths = _episode_lengths(path, datasets)
            self.checksums: dict[str, str] = json.loads(attributes.pop(CHECKSUMS, "{}"))
            for name in self.checksums.keys() & datasets.keys():
                if _checksum(datasets[name]) != self.checksums[name]:
                    problem = f"does not match its checksum, so the file {DAMAGED}"
                    raise ValueError(f"{path}: '{name}' {problem}")
            columns = _columns(path, datasets, int(lengths.sum()))
        self._stored = {column.name: stored for stored, column in columns.items()}
        super().__init__(path, lengths, {c.name: c for c in columns.values()}, attributes)
        self._file: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}

    @contextmanager
    def dataset(self, column: str) -> Iterator[Any]:
        """The HDF5 dataset of a column."""
        if self._file is None:
            self._file = _open_alongside_others(self.path)
        with damage_named(self.path, f"column '{column}'"):
            yield self._file[self._stored[column]]

    def _read(self, column: str, start: int, stop: int) -> Array:
        with self.dataset(column) as dataset:
            out = np.empty((stop - start, *dataset.shape[1:]), dtype=dataset.dtype)
            for low, block in _blocks(dataset, start, stop):
                out[low - start : low - start + len(block)] = block
        return out

    def _rows(self, column: str, index: Index) -> Array:
        # Contiguous slices only: HDF5 takes ~50x longer over strided or scattered selections.
        order = np.argsort(index, kind="stable")
        ordered = index[order]
        with self.dataset(column) as dataset:
            out = np.empty((len(index), *dataset.shape[1:]), dtype=dataset.dtype)
            for low, high in _spans(ordered, *_block_rows(dataset)):
                start = int(ordered[low])
                block = dataset[start : int(ordered[high - 1]) + 1]
                if high == low + 1:  # the usual case for images, worth its own faster copy
                    out[order[low]] = block[0]
                else:
                    out[order[low:high]] = block[ordered[low:high] - start]
        return out

    def close(self) -> None:
        """Close the file; a later read opens it again."""
        if self._file is not None:
            self._file.close()
        self._file = None


def open_h5(path: Path) -> Any:
    """Open an HDF5 file for reading, with errors that say what is wrong with it."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; check the path")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        reason = f"cannot be opened as HDF5: {one_line(str(error))}; {REDO}"
        if "truncated file" in str(error):
            reason = f"is cut short (truncated HDF5); {REDO}"
        elif "signature not found" in str(error):
            reason = "is not an HDF5 file; give an .h5 episode file"
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


@contextmanager
def damage_named(path: Path, what: str = "its content") -> Iterator[None]:
    """Errors of HDF5 say which file is damaged; our own refusals pass."""
    try:
        yield
    except HDF5_ERRORS as error:
        if isinstance(error, ValueError) and str(error).startswith(str(path)):
            raise
        reason = one_line(str(error))
        raise ValueError(f"{path}: cannot read {what} ({reason}): the file {DAMAGED}") from error


def _text_attributes(path: Path, file: Any) -> dict[str, str]:
    """The attributes of a file as text, if its format is one that is read here."""
    attributes = {
        name: value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        for name, value in file.attrs.items()
    }
    version = attributes.get("format_version", "")
    if attributes.get("format") == FORMAT and version not in READABLE:
        raise ValueError(
            f"{path} has version {version} of the episode format, but this goalward reads "
            f"versions {' and '.join(READABLE)}; install the goalward that wrote it"
        )
    return attributes


def _datasets(path: Path, file: Any) -> dict[str, Any]:
    """The datasets at the top of a file, once all their content is known to be in the file."""
    for name in file:  # before any link is followed
        if file.id.links.get_info(name.encode()).type != h5py.h5l.TYPE_HARD:
            raise ValueError(f"{path}: '{name}' is a link; copy what it links to into the file")
    items = {name: file[name] for name in file}
    datasets = {name: item for name, item in items.items() if isinstance(item, h5py.Dataset)}
    for name, dataset in datasets.items():
        if dataset.is_virtual or dataset.external:
            raise ValueError(f"{path}: '{name}' is stored elsewhere; copy it into the file")
        if not _is_stored(dataset, path.stat().st_size):
            raise ValueError(
                f"{path}: the file holds less of '{name}' than its shape {dataset.shape}; {REDO}"
            )
    return datasets


def _is_stored(dataset: Any, file_size: int) -> bool:
    """Whether a file holds as much of a dataset as its shape promises, in bytes or in chunks."""
    if dataset.chunks is None:
        return bool(dataset.nbytes <= min(dataset.id.get_storage_size(), file_size))
    promised = prod(-(-n // c) for n, c in zip(dataset.shape, dataset.chunks, strict=True))
    return bool(dataset.id.get_num_chunks() >= promised)


def _checksum(dataset: Any) -> str:
    digest = xxhash.xxh3_64()
    for _, block in _blocks(dataset, 0, len(dataset)):
        digest.update(block.data)
    return digest.hexdigest()


def _episode_lengths(path: Path, datasets: Mapping[str, Any]) -> Index:
    """Read `ep_len` and check that with `ep_offset` the episodes follow one another: (E,)."""
    if "ep_len" not in datasets:
        held = ", ".join(sorted(datasets)) or "nothing"
        raise ValueError(
            f"{path} is no episode file: it has no dataset 'ep_len', only {held}; write one with "
            "goalward.write_episodes"
        )
    found = np.asarray(datasets["ep_len"][()])
    if found.ndim != 1 or not found.size or found.dtype.kind not in "iu" or min(found) < 1:
        raise ValueError(f"{path}: 'ep_len' must hold a length of at least 1 for each episode")
    lengths = found.astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    if "ep_offset" in datasets and not np.array_equal(datasets["ep_offset"][()], starts):
        raise ValueError(
            f"{path}: 'ep_offset' must be the first row of each of the {len(starts)} episodes, "
            "which follow one another with the lengths in 'ep_len'"
        )
    return lengths


def _columns(path: Path, datasets: Mapping[str, Any], num_rows: int) -> dict[str, Column]:
    """The columns by the names of their datasets; text and scalars are left out."""
    columns: dict[str, Column] = {}
    for name, dataset in sorted(datasets.items()):
        shape, dtype = dataset.shape, dataset.dtype
        if name in ("ep_len", "ep_offset") or dtype.kind not in "biuf" or not shape:
            continue
        if shape[0] != num_rows:
            sizes = f"has {shape[0]} rows, but the lengths in 'ep_len' add up to {num_rows}"
            raise ValueError(f"{path}: column '{name}' {sizes}")
        if name == "pixels":
            require_frames(f"{path}: ", shape, dtype)
        columns[name] = Column("episode_idx" if name == "ep_idx" else name, shape[1:], dtype)
    return columns


def require_frames(where: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse images that are not uint8 (N, H, W, 3)."""
    if dtype != np.uint8 or len(shape) != 4 or shape[-1] != 3 or 0 in shape[1:]:
        raise ValueError(f"{where}'pixels' must be uint8 (N, H, W, 3), but is {dtype} {shape}")


def _block_rows(dataset: Any) -> tuple[int, int]:
    """Rows that cost one access (a chunk, else a 4 KiB page), and rows read at most at once."""
    row_bytes = max(prod(dataset.shape[1:]) * dataset.dtype.itemsize, 1)
    near = dataset.chunks[0] if dataset.chunks else max(4096 // row_bytes, 1)
    return near, near * max(BLOCK_BYTES // (near * row_bytes), 1)


def _blocks(dataset: Any, start: int, stop: int) -> Iterator[tuple[int, Array]]:
    """Rows [start, stop) in pieces, each with its first row.

    HDF5 prepares a read chunk by chunk, and twice as fast for a few as for many.
    """
    _, most = _block_rows(dataset)
    for low in range(start, stop, most):
        yield low, dataset[low : min(low + most, stop)]


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
