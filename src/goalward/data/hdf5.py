"""Writing episode files: one small part per episode, merged into one file at the end.

Every file appears under its name complete or not at all, and its bytes depend on its content only.
Shapes below use T rows of one episode and N rows of a merged file.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np

from goalward.core.arrays import Array, as_array
from goalward.core.checks import format_value, one_line
from goalward.core.files import atomic_write
from goalward.data.episodes import Column, Episodes, Index

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


# Frames of 64 x 64 from four simulators, one frame a chunk, one core: LZ4 takes 0.9-5.2 KB a frame
# (12.3 KB raw) and reads at 30-120k frames/s; Zstd 1-3 takes 0.6-3.9 KB, but reads at 12-35k and
# writes 2-3 times slower. Blosc with LZ4 is as fast and up to a tenth larger; Blosc2 writes 10
# times slower. A file is written once and read every epoch: LZ4.
_CODEC = hdf5plugin.LZ4()

# The file format of HDF5 1.10, whatever HDF5 writes it: its index of fixed-size datasets finds a
# chunk about twice as fast as that of extensible ones, hence fixed shapes everywhere below.
_LIBVER = ("v110", "v110")

_ROWS_GATHERED = 4096  # rows of small columns written in one HDF5 call when merging

_RESERVED_COLUMNS = (*EPISODE_TABLES, "ep_idx", "episode_idx", "step_idx")
_RESERVED_ATTRIBUTES = ("format", "format_version")


def write_episode(
    path: Path, columns: Mapping[str, Array], *, attributes: Mapping[str, str]
) -> None:
    """Write one episode as an episode file of its own, atomically.

    Args:
        path: The file, in a folder that exists; it is replaced if it exists.
        columns: Rows by name: `pixels` (T, H, W, 3) uint8, `action` (T, A) float32 whose last row
            is NaN since no action follows the last frame, others (T, ...) finite numbers.
        attributes: What to note in the file, such as the task.

    Raises:
        ValueError: The columns do not make an episode.
        OSError: The file cannot be written; nothing is left under `path`.
    """
    arrays = _checked_columns(path, columns)
    rows = len(arrays["pixels"])
    arrays["episode_idx"] = np.zeros(rows, dtype=np.int32)
    arrays["step_idx"] = np.arange(rows, dtype=np.int32)
    # In memory first: writing plain bytes keeps the system's own error when the disk is full.
    with h5py.File(str(path), "w", driver="core", backing_store=False, libver=_LIBVER) as file:
        _write_attributes(path, file, attributes)
        for name in sorted(arrays):
            _create_column(file, name, arrays[name])
        _write_lengths(file, np.array([rows], dtype=np.int64))
        file.flush()
        image = file.id.get_file_image()
    with _appearing(path) as temporary:
        temporary.write_bytes(image)


def merge_episodes(
    parts: Sequence[Path], out: Path, *, on_part: Callable[[int], None] | None = None
) -> None:
    """Merge episode files into one, in the order given, atomically.

    Compressed frames are copied as they are. Memory holds the small columns of a few parts.

    Args:
        parts: Files that `write_episode` or `merge_episodes` wrote.
        out: The merged file, in a folder that exists; it is replaced if it exists.
        on_part: Told how many parts are done after each.

    Raises:
        ValueError: A part cannot be read, or differs from the first in columns or attributes.
        OSError: The file cannot be written; nothing is left under `out`.
    """
    if not parts:
        raise ValueError(f"cannot write {out}: there are no episodes to merge")
    lengths = _agreed_lengths(parts)
    with _appearing(out) as temporary, h5py.File(temporary, "w", libver=_LIBVER) as target:
        merged = _MergedColumns(parts[0], target, sum(int(part.sum()) for part in lengths))
        for k, part in enumerate(parts):
            merged.append(part, lengths[k])
            if on_part is not None:
                on_part(k + 1)
        merged.flush()
        _write_lengths(target, np.concatenate(lengths))


def _checked_columns(path: Path, columns: Mapping[str, Array]) -> dict[str, Array]:
    """The columns as arrays, if they make an episode."""
    _require_names(path, "columns", columns)
    arrays = {name: as_array(values, f"column '{name}'") for name, values in columns.items()}
    for name in ("pixels", "action"):
        if name not in arrays:
            raise ValueError(f"cannot write {path}: there is no column '{name}'")
    for name in _RESERVED_COLUMNS:
        if name in arrays:
            raise ValueError(f"cannot write {path}: column '{name}' is written by itself")
    require_frames(path, arrays["pixels"].shape, arrays["pixels"].dtype)
    rows = len(arrays["pixels"])
    if rows < 2:
        raise ValueError(f"cannot write {path}: an episode needs at least 2 frames, not {rows}")
    for name, values in arrays.items():
        if values.ndim == 0 or len(values) != rows or not values.size:
            raise ValueError(
                f"cannot write {path}: column '{name}' has shape {values.shape}, "
                f"but 'pixels' has {rows} rows"
            )
        if values.dtype.kind not in "iuf":
            raise ValueError(f"cannot write {path}: column '{name}' is {values.dtype}, no number")
    _check_values(path, arrays)
    return arrays


def _check_values(path: Path, arrays: Mapping[str, Array]) -> None:
    action = arrays["action"]
    if action.dtype != np.float32 or action.ndim != 2 or action.shape[1] < 1:
        raise ValueError(
            f"cannot write {path}: 'action' must be float32 (T, A), "
            f"but is {action.dtype} {action.shape}"
        )
    if not np.isnan(action[-1]).all():
        raise ValueError(
            f"cannot write {path}: the last row of 'action' must be NaN, "
            "since no action follows the last frame"
        )
    for name, values in arrays.items():
        finite = np.isfinite(values[:-1] if name == "action" else values)
        if not finite.all():
            row = np.argwhere(~finite)[0, 0]
            raise ValueError(f"cannot write {path}: row {row} of column '{name}' is not finite")


def _require_names(path: Path, what: str, table: Mapping[str, Any]) -> None:
    """Refuse what has no names, or names that HDF5 takes for something else."""
    if not isinstance(table, Mapping):
        raise ValueError(
            f"cannot write {path}: {what} must be given by name, got {format_value(table)}"
        )
    for name in table:
        if not isinstance(name, str) or name in ("", ".") or "/" in name or "\0" in name:
            raise ValueError(f"cannot write {path}: {what} cannot be named {format_value(name)}")


def _write_attributes(path: Path, file: Any, attributes: Mapping[str, str]) -> None:
    _require_names(path, "attributes", attributes)
    file.attrs["format"] = FORMAT
    file.attrs["format_version"] = FORMAT_VERSION
    for name in sorted(attributes):
        if name in _RESERVED_ATTRIBUTES:
            raise ValueError(f"cannot write {path}: attribute '{name}' is written by itself")
        if not isinstance(attributes[name], str):
            raise ValueError(f"cannot write {path}: attribute '{name}' must be a text")
        file.attrs[name] = attributes[name]


def _create_column(file: Any, name: str, values: Array) -> None:
    """Frames go one to a compressed chunk, for random access; small rows stay contiguous."""
    frames = values.dtype == np.uint8 and values.ndim == 4
    options = {"chunks": (1, *values.shape[1:]), **_CODEC} if frames else {}
    file.create_dataset(name, data=values, **options)


def _write_lengths(file: Any, lengths: Index) -> None:
    file.create_dataset("ep_len", data=lengths.astype(np.int32))
    file.create_dataset("ep_offset", data=np.cumsum(lengths) - lengths)


def _agreed_lengths(parts: Sequence[Path]) -> list[Index]:
    """Episode lengths of each part, once every part is known to look like the first."""
    first = H5Episodes(parts[0])
    if first.attributes.get("format") != FORMAT:
        raise ValueError(f"{first.path} was not written by goalward; only its files are merged")
    lengths = []
    expected: dict[str, str] = {}
    for part in parts:
        with open_h5(part) as file:
            traits = _traits(file)
            expected = expected or traits
            _check_same(part, traits, first.path, expected)
            lengths.append(file["ep_len"][()].astype(np.int64))
    return lengths


def _traits(file: Any) -> dict[str, str]:
    """What has to agree between parts; low-level, so several times as fast as `H5Episodes`."""
    items = {name: h5py.h5o.open(file.id, name.encode()) for name in file}
    sets = {name: item for name, item in items.items() if isinstance(item, h5py.h5d.DatasetID)}
    traits = {f"attribute '{name}'": str(value) for name, value in file.attrs.items()}
    rows = sets["pixels"].shape[0] if "pixels" in sets else 0
    for name, item in sets.items():
        traits[f"column '{name}'"] = f"{item.dtype} {item.shape[1:]} a row"
        if item.shape[:1] != (rows,) and name not in EPISODE_TABLES:
            traits[f"column '{name}'"] += f" in shape {item.shape} beside {rows} frames"
    return traits


def _check_same(
    part: Path, traits: Mapping[str, str], first: Path, expected: Mapping[str, str]
) -> None:
    for what in sorted({*expected, *traits}):
        here, there = traits.get(what, "missing"), expected.get(what, "missing")
        if here != there:
            raise ValueError(
                f"cannot merge {part} with {first}: "
                f"{what} is {here} in the former, {there} in the latter"
            )


class _MergedColumns:
    """The row columns of a merged file, filled part by part.

    Small columns are gathered over several parts, since HDF5 takes longer over a call than over
    the few rows of one part. Low-level calls are used for the same reason.
    """

    def __init__(self, like: Path, target: Any, rows: int) -> None:
        with open_h5(like) as source:
            for name in sorted(source.attrs):
                target.attrs[name] = source.attrs[name]
            self._columns = {
                name: _create_like(source[name], target, name, rows)
                for name in sorted(set(source) - set(EPISODE_TABLES))
            }
        self._storage = {name: _storage(target[name].id) for name in self._columns}
        self._pending: dict[str, list[Array]] = {name: [] for name in self._columns}
        self._episode = self._row = self._flushed = 0

    def append(self, part: Path, lengths: Index) -> None:
        """Take over all rows of a part, whose episodes have these lengths."""
        with open_h5(part) as file:
            for name, target in self._columns.items():
                source = h5py.h5d.open(file.id, name.encode())
                if target.chunks is not None:
                    self._copy_frames(part, name, source)
                    continue
                values = np.empty(source.shape, dtype=target.dtype)
                source.read(h5py.h5s.ALL, h5py.h5s.ALL, values)
                if name == "episode_idx":
                    values += np.int32(self._episode)
                self._pending[name].append(values)
        self._episode += len(lengths)
        self._row += int(lengths.sum())
        if self._row - self._flushed >= _ROWS_GATHERED:
            self.flush()

    def flush(self) -> None:
        """Write the gathered rows of the small columns."""
        for name, gathered in self._pending.items():
            if gathered:
                self._columns[name][self._flushed : self._row] = np.concatenate(gathered)
            gathered.clear()
        self._flushed = self._row

    def _copy_frames(self, part: Path, name: str, source: Any) -> None:
        """Copy compressed frames as they are, one frame a chunk."""
        if _storage(source) != self._storage[name]:
            raise ValueError(
                f"cannot merge {part}: its frames are not compressed like those of the first "
                "part; write it again with this goalward"
            )
        target = self._columns[name].id
        rest = (0,) * (len(source.shape) - 1)
        for k in range(source.shape[0]):
            mask, frame = source.read_direct_chunk((k, *rest))
            target.write_direct_chunk((self._row + k, *rest), frame, mask)


def _create_like(source: Any, target: Any, name: str, rows: int) -> Any:
    """Create a column stored like `source`, with so many rows."""
    space = h5py.h5s.create_simple((rows, *source.shape[1:]))
    storage = source.id.get_create_plist()
    h5py.h5d.create(target.id, name.encode(), source.id.get_type(), space, dcpl=storage)
    return target[name]


def _storage(dataset: Any) -> list[Any]:
    """The layout, chunk shape and compression of a dataset (a low-level one)."""
    plist = dataset.get_create_plist()
    chunked = plist.get_layout() == h5py.h5d.CHUNKED
    filters = [plist.get_filter(k) for k in range(plist.get_nfilters())]
    return [plist.get_chunk() if chunked else None, *filters]


@contextmanager
def _appearing(path: Path) -> Iterator[Path]:
    """As `appearing`, with the system's own error where HDF5 hides it."""
    try:
        with atomic_write(path) as temporary:
            yield temporary
    except (OSError, RuntimeError) as error:
        # HDF5 buries the system's error number in its message, some under a RuntimeError.
        found = re.search(r"errno = (\d+)", str(error))
        if found is None:
            raise
        raise OSError(int(found[1]), os.strerror(int(found[1])), str(path)) from error
