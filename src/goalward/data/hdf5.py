"""Writing HDF5 episode files: one small part an episode, merged into one file at the end.

Frames lie one to a compressed chunk, with HDF5's own checksum (Fletcher-32); each other column has
a checksum (XXH3) in an attribute of the file. Writes are atomic, and the bytes of a file depend
only on its content. Shapes below use T rows of one episode.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import xxhash

from goalward.core.arrays import Array, as_array
from goalward.core.checks import as_path, format_value
from goalward.core.config import canonical
from goalward.core.files import atomic_write, checksum
from goalward.data.episodes import Episodes, Index
from goalward.data.hdf5_reader import (
    CHECKSUMS,
    FORMAT,
    FORMAT_VERSION,
    H5Episodes,
    require_frames,
)

DERIVED = ("ep_len", "ep_offset", "episode_idx", "step_idx")  # what follows from the lengths
RESERVED = (*DERIVED, "ep_idx", "format", "format_version", CHECKSUMS)

# Frames of 64 x 64 from four simulators, one frame a chunk, one core: LZ4 takes 0.9-5.2 KB a frame
# (12.3 KB raw) and reads at 30-120k frames/s; Zstd 1-3 takes 0.6-3.9 KB, but reads at 12-35k and
# writes 2-3 times slower. Blosc with LZ4 is as fast and up to a tenth larger; Blosc2 writes 10
# times slower. A file is written once and read every epoch: LZ4.
CODEC = {**hdf5plugin.LZ4(), "fletcher32": True}

# The file format of HDF5 1.10, whatever HDF5 writes it: its index of fixed-size datasets finds a
# chunk about twice as fast as that of extensible ones, hence fixed shapes everywhere below.
LIBVER = ("v110", "v110")


def write_episodes(
    path: str | os.PathLike[str],
    episodes: Iterable[Mapping[str, Any]],
    *,
    attributes: Mapping[str, str] | None = None,
) -> Episodes:
    """Write an episode file from any iterator of episodes, atomically and one at a time.

    Args:
        path: The file to write; it is replaced if it exists.
        episodes: Columns of each episode by name: `pixels` (T, H, W, 3) uint8, `action` (T - 1, A)
            or (T, A) with NaN in the last row, since no action follows the last frame, and
            others (T, ...) finite numbers. All episodes have the same columns.
        attributes: What to note in the file, such as `{"task": "push-t"}`.

    Returns:
        The file, opened.
    """
    out = as_path(path)
    out.parent.mkdir(parents=True, exist_ok=True)
    parts: list[Path] = []
    with TemporaryDirectory(prefix=f".{out.name}.", suffix=".tmp", dir=out.parent) as folder:
        for k, columns in enumerate(episodes):
            parts.append(Path(folder) / f"episode {k}")
            try:
                write_episode(parts[-1], columns, attributes=attributes or {})
            except ValueError as error:
                raise ValueError(f"cannot write {out}: episode {k}: {error}") from error
        merge_episodes(parts, out)
    return H5Episodes(out)


def write_episode(path: Path, columns: Mapping[str, Any], *, attributes: Mapping[str, str]) -> None:
    """Write one episode as a file of its own, atomically, into a folder that exists."""
    arrays = _checked_columns(columns)
    _check_attributes(attributes)
    # In memory first: writing plain bytes keeps the system's own error when the disk is full.
    with h5py.File(str(path), "w", driver="core", backing_store=False, libver=LIBVER) as file:
        checksums: dict[str, str] = {}
        for name, values in sorted(arrays.items()):
            if values.dtype == np.uint8 and values.ndim == 4:  # one frame a chunk: random access
                file.create_dataset(name, data=values, chunks=(1, *values.shape[1:]), **CODEC)
            else:
                file.create_dataset(name, data=values)
                checksums[name] = checksum(np.ascontiguousarray(values).data)
        _finish(file, np.array([len(arrays["pixels"])]), checksums, attributes)
        file.flush()
        image = file.id.get_file_image()
    with _atomic_hdf5(path) as temporary:
        temporary.write_bytes(image)


def merge_episodes(parts: Sequence[Path], out: Path) -> None:
    """Merge files of this version of the format into one, in order, atomically.

    Compressed frames are copied as they are, with their checksums.

    Args:
        parts: Files that `write_episode` or `merge_episodes` wrote.
        out: The merged file, in a folder that exists; it is replaced if it exists.
    """
    if not parts:
        raise ValueError(f"cannot write {out}: there are no episodes")
    sources = [H5Episodes(part) for part in parts]
    for source in sources:
        _require_alike(out, source, sources[0])
    lengths = np.concatenate([source.lengths for source in sources])
    names = [name for name in sources[0].columns if name not in DERIVED]
    row, digests = 0, {name: xxhash.xxh3_64() for name in names}
    with _atomic_hdf5(out) as temporary, h5py.File(temporary, "w", libver=LIBVER) as target:
        for name in names:
            with sources[0].dataset(name) as rows:
                _create_like(rows, target, name, int(lengths.sum()))
        for source in sources:
            for name in names:
                with source.dataset(name) as rows:
                    _append(rows, target[name], row, digests[name])
            row += source.num_rows
            source.close()
        checksums = {n: d.hexdigest() for n, d in digests.items() if target[n].chunks is None}
        _finish(target, lengths, checksums, sources[0].attributes)


def _checked_columns(columns: Mapping[str, Any]) -> dict[str, Array]:
    """The columns as arrays, if they make an episode; `action` gets a last row where it lacks it.

    Its type becomes float32.
    """
    if not isinstance(columns, Mapping):
        raise ValueError(f"columns must be given by name, got {format_value(columns)}")
    for name in ("pixels", "action"):
        if name not in columns:
            raise ValueError(f"there is no column '{name}'")
    arrays = {name: as_array(values, f"column '{name}'") for name, values in columns.items()}
    require_frames("", arrays["pixels"].shape, arrays["pixels"].dtype)
    rows = len(arrays["pixels"])
    if rows < 2:
        raise ValueError(f"an episode needs at least 2 frames, not {rows}")
    arrays["action"] = _with_last_row(arrays["action"], rows)
    for name, values in arrays.items():
        _check_name("column", name)
        if not values.size or values.ndim == 0 or len(values) != rows:
            problem = f"has shape {values.shape}, but 'pixels' has {rows} rows"
            raise ValueError(f"column '{name}' {problem}")
        if values.dtype.kind not in "iuf":
            raise ValueError(f"column '{name}' is {values.dtype}, no number")
        finite = np.isfinite(values[:-1] if name == "action" else values)
        if not finite.all():
            raise ValueError(f"row {np.argwhere(~finite)[0, 0]} of column '{name}' is not finite")
    return arrays


def _with_last_row(action: Array, rows: int) -> Array:
    if action.ndim != 2 or action.dtype.kind not in "iuf":
        raise ValueError(f"'action' must be numbers (T, A), but is {action.dtype} {action.shape}")
    action = action.astype(np.float32)
    if len(action) == rows - 1:
        return np.concatenate([action, np.full((1, action.shape[1]), np.nan, np.float32)])
    if len(action) != rows or not np.isnan(action[-1:]).all():
        wanted = f"{rows - 1} rows, one for each frame but the last, or {rows} with NaN in the last"
        raise ValueError(f"'action' must have {wanted}, but is {action.dtype} {action.shape}")
    return action


def _check_attributes(attributes: Mapping[str, str]) -> None:
    for name, value in attributes.items():
        _check_name("attribute", name)
        if not isinstance(value, str):
            raise ValueError(f"attribute {name!r} must be a string, got {format_value(value)}")


def _check_name(what: str, name: object) -> None:
    """Refuse names that HDF5 takes for something else, and those that the format uses itself."""
    if not isinstance(name, str) or name in ("", ".") or "/" in name or "\0" in name:
        raise ValueError(f"no {what} can be named {format_value(name)}")
    if name in RESERVED:
        raise ValueError(f"no {what} can be named {name!r}: goalward writes that itself")


def _finish(
    file: Any, lengths: Index, checksums: Mapping[str, str], attributes: Mapping[str, str]
) -> None:
    """Write what follows from the lengths, and all attributes."""
    offsets = np.cumsum(lengths) - lengths
    steps = np.arange(lengths.sum()) - np.repeat(offsets, lengths)
    tables: dict[str, Array] = {
        "ep_len": lengths.astype(np.int32),
        "ep_offset": offsets.astype(np.int64),
        "episode_idx": np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
        "step_idx": steps.astype(np.int32),
    }
    for name, values in tables.items():
        file.create_dataset(name, data=values)
    every = {**checksums, **{name: checksum(values.data) for name, values in tables.items()}}
    own = {"format": FORMAT, "format_version": FORMAT_VERSION, CHECKSUMS: canonical(every)}
    # Of a fixed length, so that they lie in the header, whose checksum HDF5 checks.
    for name, text in sorted({**attributes, **own}.items()):
        data = text.encode()
        file.attrs.create(name, data, dtype=h5py.string_dtype("utf-8", max(len(data), 1)))


def _require_alike(out: Path, part: H5Episodes, first: H5Episodes) -> None:
    if not part.checksums:
        raise ValueError(f"{part.path} was not written by this goalward; only its files are merged")
    found, expected = _traits(part), _traits(first)
    for trait in sorted({*expected, *found}):
        here, there = found.get(trait, "missing"), expected.get(trait, "missing")
        if here != there:
            problem = f"{trait} is {here}, but {there} in {first.path.name}"
            raise ValueError(f"cannot write {out}: {part.path.name}: {problem}")


def _traits(part: Episodes) -> dict[str, str]:
    """What has to agree between episodes."""
    return {
        **{f"column '{name}'": f"{c.dtype} {c.shape} a row" for name, c in part.columns.items()},
        **{f"attribute '{name}'": text for name, text in part.attributes.items()},
    }


def _create_like(source: Any, target: Any, name: str, rows: int) -> None:
    """Create a column stored like `source`, with so many rows."""
    space = h5py.h5s.create_simple((rows, *source.shape[1:]))
    storage = source.id.get_create_plist()
    h5py.h5d.create(target.id, name.encode(), source.id.get_type(), space, dcpl=storage)


def _append(source: Any, target: Any, row: int, digest: Any) -> None:
    """Copy the rows of one part's column to the merged one, from `row` on."""
    if target.chunks is None:
        target[row : row + len(source)] = values = source[()]
        digest.update(values.data)
        return
    if source.id.get_create_plist() != target.id.get_create_plist():
        problem = "its frames are compressed in another way; write it again"
        raise ValueError(f"{source.file.filename}: {problem}")
    rest = (0,) * (source.ndim - 1)
    for k in range(len(source)):
        mask, frame = source.id.read_direct_chunk((k, *rest))
        target.id.write_direct_chunk((row + k, *rest), frame, mask)


@contextmanager
def _atomic_hdf5(path: Path) -> Iterator[Path]:
    """As `atomic_write`, with the system's own error where HDF5 hides it."""
    try:
        with atomic_write(path) as temporary:
            yield temporary
    except (OSError, RuntimeError) as error:
        # HDF5 buries the system's error number in its message, some under a RuntimeError.
        found = re.search(r"errno = (\d+)", str(error))
        if found is None:
            raise
        raise OSError(int(found[1]), os.strerror(int(found[1])), str(path)) from error
