"""Read every byte of stored files again, and compare it with the checksums."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from goalward.core.artifacts import MANIFEST, read_manifest
from goalward.core.checks import as_path
from goalward.core.files import file_checksum, how_to_remake, read_sealed, require_sealed

Check = tuple[Path, Callable[[], object]]  # what refuses a damaged file
SEALED = (".safetensors", ".onnx", ".json", ".jsonl")  # files that carry their own checksum


@dataclass(frozen=True)
class FileCheck:
    """The result for one file."""

    path: Path
    problem: str | None  # None: every byte is as it was written


def verify(path: str | os.PathLike[str]) -> list[FileCheck]:
    """Check a stage's folder, a folder that contains such folders, or one file.

    Every file of a stage is compared with the stage's manifest; outside of stages, those files are
    checked that carry their own checksum. Unfinished stages and hidden files are left out.
    """
    path = as_path(path)
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder")
    if found := [_check(*one) for one in [*_in_stage(path)] or [*_everything_in(path)]]:
        return found
    raise ValueError(f"{path}: nothing to verify: no file in it has a checksum")


def _check(path: Path, require: Callable[[], object]) -> FileCheck:
    try:
        require()
    except ValueError as error:
        return FileCheck(path, str(error).removeprefix(f"{path}: "))
    return FileCheck(path, None)


def _in_stage(path: Path) -> Iterator[Check]:
    """The check of a file by the manifest of its stage, where it has one."""
    for folder in path.parents:
        if path.is_file() and path.name != MANIFEST and (folder / MANIFEST).is_file():
            manifest = read_manifest(folder)
            if (name := path.relative_to(folder).as_posix()) in manifest.files:
                yield path, partial(manifest.require_same, name, file_checksum)
                return


def _everything_in(path: Path) -> Iterator[Check]:
    if (path / MANIFEST).is_file():
        yield path / MANIFEST, partial(read_manifest, path)
        with suppress(ValueError):  # which that check reports
            manifest = read_manifest(path)
            for name in manifest.files:
                yield path / name, partial(manifest.require_same, name, file_checksum)
    elif path.is_dir():
        for entry in sorted(path.iterdir()):
            if not entry.name.startswith(".") and not entry.name.endswith(".partial"):
                yield from _everything_in(entry)
    elif path.suffix in SEALED:
        yield path, partial(_require_sealed, path)


def _require_sealed(path: Path) -> None:
    """Refuse a damaged file with one checksum, or JSON lines with one in each."""
    if path.suffix != ".jsonl":
        read_sealed(path)
        return
    for number, line in enumerate(path.read_bytes().removesuffix(b"\n").split(b"\n"), start=1):
        require_sealed(line, f"line {number}", how_to_remake(path))
