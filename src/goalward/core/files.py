"""Atomic writes, and checksums that show a changed byte."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import xxhash

EMPTY_SEAL = "xxh3-0000000000000000"  # where a file's own checksum goes, as text in some field
SEAL = re.compile(rb"xxh3-[0-9a-f]{16}")
BLOCK = 2**22  # bytes read at a time


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yields a temporary sibling to write; on normal exit it takes the place of `path`.

    After an exception `path` is as it was. Temporary names are hidden and end in `.tmp`, so that
    what a killed process leaves is never taken for payload.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        fsync(temporary)
        temporary.replace(path)
        fsync(path.parent)
    except OSError as error:
        if error.filename is not None and os.fspath(error.filename) == str(temporary):
            error.filename = str(path)  # which is what the user knows
        raise
    finally:
        _discard(temporary)


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


def sealed(data: bytes) -> bytes:
    """The content of a file with its own checksum in place of `EMPTY_SEAL`, which it holds once."""
    empty = EMPTY_SEAL.encode()
    assert empty in data, "a field must hold EMPTY_SEAL"
    return data.replace(empty, f"xxh3-{checksum(data)}".encode(), 1)


def require_sealed(data: bytes, source: object, remedy: str) -> None:
    """Refuses content that is not as `sealed` made it: any changed byte shows.

    Args:
        data: The content.
        source: The file, named in the message.
        remedy: The command that makes the file again, or what else to do.
    """
    found = SEAL.search(data)
    if found is None:
        raise ValueError(f"{source}: has no checksum: damaged, or of an earlier version; {remedy}")
    view, (start, end) = memoryview(data), found.span()
    expected = f"xxh3-{checksum(view[:start], EMPTY_SEAL.encode(), view[end:])}"
    if found[0].decode() != expected:
        raise ValueError(f"{source}: damaged: its checksum does not match its content; {remedy}")


def fsync(path: Path) -> None:
    """Flushes a file or a folder to the disk: a rename lasts only once its folder is flushed."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _discard(temporary: Path) -> None:
    """Remove a temporary file, if it is still there.

    HDF5 cannot close a file it failed to write, so the space is given back by cutting the file.
    """
    with suppress(OSError):
        os.truncate(temporary, 0)
    with suppress(OSError):
        temporary.unlink()
