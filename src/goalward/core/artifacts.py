"""Stage folders: each stage writes one folder `{config.json, manifest.json, payload}`.

`config.json` is the request (its hash is the stage's id); `manifest.json` is what happened, with
the checksum of every file. A stage is written into `<folder>.partial`, which gets its name once
everything is on the disk: a folder without that suffix is complete, and an interrupted stage can
be resumed.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goalward.core.config import (
    content_id,
    differences,
    read_config,
    read_json,
    to_json,
    write_json,
)
from goalward.core.files import fsync, how_to_remake, known_checksum
from goalward.core.machine import git_revision, library_versions, peak_memory_mb

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

CONFIG, MANIFEST, PROGRESS = "config.json", "manifest.json", ".progress.json"
IDENTITY = {"id", "stage", "version", "config", "inputs"}  # in `config.json`
LOCK_SECONDS = 1.0  # to wait for another process
READ_AT_OPEN = 2**33  # bytes; only `goalward verify` reads larger files completely
ANOTHER = "choose another folder"
REDO = "delete the folder or choose another one"


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """A file of a complete stage."""

    bytes: int
    xxh3: str  # see `files.checksum`


@dataclass(frozen=True, kw_only=True)
class _Record:
    """The content of `manifest.json`; the rest of a `Manifest` comes from `config.json`."""

    seconds: float  # wall clock of all sessions, but for one that ended in kill -9
    peak_memory_mb: float  # largest resident size of the process or of one child
    files: dict[str, FileRecord]  # `config.json` and payload; relative names with "/"
    created: str  # when the stage was completed: ISO 8601, UTC
    git_revision: str | None  # goalward's own checkout at the start of the last session
    versions: dict[str, str]  # Python, goalward and the installed libraries that bear on results
    machine: str  # platform and number of CPUs


@dataclass(frozen=True, kw_only=True)
class Manifest(_Record):
    """A complete stage: what was asked for and what happened."""

    folder: Path
    id: str
    stage: str
    version: int
    config: dict[str, Any]
    inputs: dict[str, str]

    def verify(self, *names: str) -> None:
        """Refuse files (by default, all) whose content is not as it was written.

        A file is read once a process; very large ones only by `goalward verify`.
        """
        for name in names or self.files:
            is_read = self.files[name].bytes <= READ_AT_OPEN
            self.require_same(name, known_checksum if is_read else None)

    def require_same(self, name: str, checksum: Callable[[Path], str] | None) -> None:
        """Refuse a file of another size or, given how to compute it, of another checksum."""
        path, record = self.folder / name, self.files[name]
        found = path.stat().st_size if path.is_file() else None
        if found is None:
            problem = "is missing"
        elif found != record.bytes:
            problem = f"has {found} bytes instead of {record.bytes}"
        elif checksum is not None and checksum(path) != record.xxh3:
            problem = f"damaged: its content does not match its checksum in {MANIFEST}"
        else:
            return
        raise ValueError(f"{path}: {problem}; {how_to_remake(path)}")


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage to be run: where it goes and everything its result depends on."""

    folder: Path
    name: str  # such as "collect"; also the command that makes it
    version: int  # raised by hand when the stage's code starts to give other results
    config: DataclassInstance  # the full config, seed included
    inputs: Mapping[str, str] = field(default_factory=dict)  # input name -> id of its stage

    def __post_init__(self) -> None:
        name = self.folder.name
        if name in ("", "..") or name.endswith((".partial", ".lock")):
            raise ValueError(f"folder: {str(self.folder)!r} cannot name a stage, choose another")

    @property
    def id(self) -> str:
        """The hash of stage name, version, config and inputs."""
        return str(self._identity()["id"])

    @property
    def partial(self) -> Path:
        """The sibling folder that holds the stage until it is complete."""
        return self.folder.with_name(self.folder.name + ".partial")

    def is_complete(self) -> bool:
        """Whether this stage is there to be reused; False if the folder is absent or empty.

        Refuses a folder with other content, and a damaged stage.
        """
        if not os.path.lexists(self.folder) or _is_empty(self.folder):
            return False
        load_manifest(self.folder, stage=self.name)
        self._check_same(self.folder)
        return True

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """Yields the partial folder to write payload into; completes the stage on normal exit.

        It still holds the files of an interrupted session. An exception leaves it to the next.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.folder):
            if self.is_complete():
                raise ValueError(f"{self.folder}: this stage is already complete")
            earlier, revision = self._open_partial(), git_revision()
            started = time.perf_counter()

            def effort() -> dict[str, float]:
                seconds = earlier["seconds"] + time.perf_counter() - started
                memory = max(earlier["peak_memory_mb"], peak_memory_mb())
                return {"seconds": seconds, "peak_memory_mb": memory}

            try:
                yield self.partial
                self._complete(effort(), revision)
            except BaseException:
                # An unwritten effort must not hide why the session ended (a full disk, say).
                with suppress(OSError):
                    write_json(self.partial / PROGRESS, effort())
                raise

    def _identity(self) -> dict[str, Any]:
        """The content of `config.json`."""
        config, inputs = to_json(self.config), dict(self.inputs)
        asked = {"stage": self.name, "version": self.version, "config": config, "inputs": inputs}
        return {"id": content_id(asked), **asked}

    def _check_same(self, folder: Path) -> None:
        found, asked = _read_identity(folder), self._identity()
        _check_name(folder, found["stage"], self.name)
        if found != asked:
            changes = differences(_by_key(found), _by_key(asked)) or "its id is damaged"
            raise ValueError(f"{folder}: holds another configuration ({changes}); {REDO}")

    def _open_partial(self) -> dict[str, float]:
        """Prepare the partial folder; returns what its earlier sessions took."""
        self.partial.mkdir(exist_ok=True)
        for leftover in self.partial.glob(".*.tmp"):  # of a writer that was killed
            leftover.unlink()
        if _is_empty(self.partial):
            write_json(self.partial / CONFIG, self._identity())
        self._check_same(self.partial)
        (self.partial / MANIFEST).unlink(missing_ok=True)  # if killed just before the rename
        progress, nothing = self.partial / PROGRESS, {"seconds": 0.0, "peak_memory_mb": 0.0}
        return read_json(progress) if progress.exists() else nothing

    def _complete(self, effort: dict[str, float], revision: str | None) -> None:
        assert not (self.partial / MANIFEST).exists(), f"{MANIFEST} is no name for payload"
        self._check_same(self.partial)  # nor is config.json
        for path in (*self.partial.rglob("*"), self.partial):
            fsync(path)
        record = _Record(
            **effort,
            files={name: _record(self.partial / name) for name in _files(self.partial)},
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            git_revision=revision,
            versions=library_versions(),
            machine=f"{platform.platform()}, {os.cpu_count()} CPUs",
        )
        write_json(self.partial / MANIFEST, to_json(record), seal=True)
        self.partial.rename(self.folder)
        fsync(self.folder.parent)
        (self.folder / PROGRESS).unlink(missing_ok=True)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a complete stage; no payload is checked."""
    if not os.path.lexists(folder):
        raise ValueError(f"{folder}: no complete stage here; run the stage that writes it first")
    if not (folder / MANIFEST).is_file():
        raise ValueError(f"{folder}: not a complete stage (no {MANIFEST}); {ANOTHER}")
    identity = _read_identity(folder)
    record = read_config(_Record, folder / MANIFEST, seal=True)
    manifest = Manifest(folder=folder, **vars(record), **identity)
    manifest.verify(CONFIG)
    return manifest


def load_manifest(folder: Path, *, stage: str | None = None) -> Manifest:
    """A complete stage, whose files all exist and have the right size; see `Manifest.verify`."""
    manifest = read_manifest(folder)
    _check_name(manifest.folder, manifest.stage, stage or manifest.stage)
    for name in manifest.files:
        manifest.require_same(name, None)
    return manifest


def open_stage(folder: Path, stage: str) -> Manifest:
    """As `load_manifest`, and the content of every file is as it was written."""
    manifest = load_manifest(folder, stage=stage)
    manifest.verify()
    return manifest


def _read_identity(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not path.is_file():
        raise ValueError(f"{folder}: not a goalward stage (no {CONFIG}); {ANOTHER}")
    try:
        found: dict[str, Any] = read_json(path)
    except ValueError as error:
        raise ValueError(f"{error}; {REDO}") from error
    if not isinstance(found, dict) or found.keys() != IDENTITY:
        raise ValueError(f"{path}: not the config of a goalward stage; {REDO}")
    return found


def _check_name(folder: Path, found: str, wanted: str) -> None:
    if found != wanted:
        raise ValueError(f"{folder}: holds stage {found!r}, not {wanted!r}; {ANOTHER}")


def _by_key(identity: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of an identity, with config keys as their user knows them: without a prefix."""
    return {
        "stage version": identity["version"],
        "input": identity["inputs"],
        **identity["config"],
    }


def _record(path: Path) -> FileRecord:
    """That of a file that was just written."""
    return FileRecord(bytes=path.stat().st_size, xxh3=known_checksum(path, is_new=True))


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def _files(folder: Path) -> list[str]:
    """`config.json` and payload; hidden and temporary files are neither."""
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(
        file.as_posix()
        for file in files
        if not any(part.startswith(".") or part.endswith(".tmp") for part in file.parts)
    )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keeps other processes out; the kernel drops the lock with its process, however that ends.

    The lock lies beside the folders, because those are renamed.
    """
    from filelock import FileLock, Timeout

    path = folder.with_name(folder.name + ".lock")
    lock = FileLock(path, timeout=LOCK_SECONDS)
    try:
        lock.acquire()
    except Timeout as error:
        raise ValueError(f"{folder}: another process is writing this stage; wait for it") from error
    try:
        yield
    finally:
        if lock.is_locked:  # not in a forked child
            path.unlink(missing_ok=True)
            lock.release()
