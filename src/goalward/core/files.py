"""Files that appear whole or not at all, and are on the disk when they appear."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


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
