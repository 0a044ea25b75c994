"""Atomic writes, checksums, and files that carry their own checksum: any changed byte shows."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import xxhash

CHECKSUM = "checksum"  # the field of a file that holds the file's own checksum
EMPTY_SEAL = "xxh3-0000000000000000"  # its text while the checksum is computed
SEAL = re.compile(rb"xxh3-[0-9a-f]{16}")
BLOCK = 2**22  # bytes read at a time
RESTORE = "restore it from a copy, or make it again"


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yields a temporary sibling to write; on normal exit it takes the place of `path`.

    After an exception `path` is as it was. Temporary names are hidden and end in `.tmp`, so that
    the leftover of a killed process is never taken for payload.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        fsync(temporary)
        temporary.replace(path)
        fsync(path.parent)
    except OSError as error:
        if error.filename is not None and os.fspath(error.filename) == str(temporary):
            error.filename = str(path)  # the name that the user knows
        raise
    finally:
        with suppress(OSError):  # HDF5 cannot close a file it failed to write: free its space
            os.truncate(temporary, 0)
        with suppress(OSError):
            temporary.unlink()


def fsync(path: Path) -> None:
    """Flushes a file or a folder to the disk: a rename lasts only once its folder is flushed."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksum(data: bytes | memoryview, *more: bytes | memoryview) -> str:
    """16 hex digits that change with any byte; not for secrets (XXH3, several GB/s)."""
    digest = xxhash.xxh3_64(data)
    for part in more:
        digest.update(part)
    return digest.hexdigest()


def file_checksum(path: Path) -> str:
    """The checksum of a file's content, read a block at a time."""
    digest, buffer = xxhash.xxh3_64(), bytearray(BLOCK)
    with path.open("rb", buffering=0) as stream:
        while size := stream.readinto(buffer):
            digest.update(memoryview(buffer)[:size])
    return digest.hexdigest()


_known_checksums: dict[tuple[int, int, int, int], str] = {}


def known_checksum(path: Path, *, is_new: bool = False) -> str:
    """The checksum of a file, which is read once a process unless its size, time or inode change.

    A rename keeps all three, so that a stage is not read again after it was written. A file that
    `is_new` is read, because it may have the inode of a deleted one.
    """
    found = path.stat()
    key = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
    if is_new or key not in _known_checksums:
        _known_checksums[key] = file_checksum(path)
    return _known_checksums[key]


def sealed(data: bytes) -> bytes:
    """The content of a file with its own checksum in place of `EMPTY_SEAL`, which it holds once."""
    found, empty = SEAL.search(data), EMPTY_SEAL.encode()
    assert found is not None and found[0] == empty, f"the first checksum must be {EMPTY_SEAL}"
    return data.replace(empty, f"xxh3-{checksum(data)}".encode(), 1)


def require_sealed(data: bytes, source: object, remedy: str = RESTORE) -> None:
    """Refuses content that is not as `sealed` made it.

    Args:
        data: The content.
        source: The file, named in the message.
        remedy: The command that makes the file again, or what else to do.
    """
    found = SEAL.search(data)
    if found is None:
        raise ValueError(
            f"{source}: has no checksum: it is damaged, or of an earlier version; {remedy}"
        )
    view, (start, end) = memoryview(data), found.span()
    expected = f"xxh3-{checksum(view[:start], EMPTY_SEAL.encode(), view[end:])}"
    if found[0].decode() != expected:
        raise ValueError(f"{source}: damaged: its checksum does not match its content; {remedy}")


def read_sealed(path: Path) -> bytes:
    """The content of a file that carries its own checksum."""
    data = path.read_bytes()
    require_sealed(data, path, how_to_remake(path))
    return data


def how_to_remake(path: Path) -> str:
    """The end of a message about a damaged file; names the command if a stage wrote the file."""
    for folder in (path, *path.absolute().parents[:3]):
        with suppress(OSError, ValueError, KeyError, TypeError):
            stage = json.loads((folder / "config.json").read_bytes())["stage"]
            if isinstance(stage, str) and stage.isprintable():
                return f"delete {folder} and make it again with `goalward {stage} ...`"
    return RESTORE
