"""Run folders: each stage writes one folder `{config.json, manifest.json, payload}`, whole or not.

`config.json` says what was asked for (its hash is the stage's id), `manifest.json` what happened.
A stage is written into `<folder>.partial` and renamed once everything is on the disk, so that a
folder under its own name is complete, and an interrupted stage can be taken up again.
"""

from __future__ import annotations

import fcntl
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from goalward.core.config import (
    content_id,
    differences,
    read_config,
    read_json,
    to_json,
    write_json,
)
from goalward.core.files import fsync
from goalward.core.machine import git_revision, library_versions, peak_memory_mb

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


CONFIG, MANIFEST, PROGRESS = "config.json", "manifest.json", ".progress.json"
IDENTITY = ("stage", "version", "config", "inputs")  # what a stage's id is computed from
LOCK_PATIENCE = 1.0  # seconds
REDO = "delete the folder or choose another one"


@dataclass(frozen=True, kw_only=True)
class _Effort:
    """What a stage took so far; carried from one sitting to the next in `.progress.json`."""

    seconds: float = 0.0  # wall clock of all sittings, but for one that ended in kill -9
    peak_memory_mb: float = 0.0  # largest resident size of the process or of one child


@dataclass(frozen=True, kw_only=True)
class _Record(_Effort):
    """The content of `manifest.json`; the rest of a `Manifest` comes from `config.json`."""

    id: str
    files: dict[str, int]  # payload file, relative with "/" -> size in bytes
    created: str  # when the stage was completed: ISO 8601, UTC
    git_revision: str | None  # goalward's own checkout at the start of the last sitting
    versions: dict[str, str]  # Python, goalward and the installed libraries that bear on results
    machine: str  # platform and number of CPUs


@dataclass(frozen=True, kw_only=True)
class Manifest(_Record):
    """A complete, verified stage: what was asked for and what happened."""

    stage: str
    version: int
    config: dict[str, Any]
    inputs: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage to be run: where it goes and everything its result depends on."""

    folder: Path
    name: str  # such as "collect"
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
        return content_id(self._identity())

    @property
    def partial(self) -> Path:
        """The sibling folder that holds the stage until it is complete."""
        return self.folder.with_name(self.folder.name + ".partial")

    def is_complete(self) -> bool:
        """Whether this very stage is there to be reused; False if the folder is absent or empty.

        Raises:
            ValueError: the folder holds something else, or a damaged stage.
        """
        if not os.path.lexists(self.folder) or _is_empty(self.folder):
            return False
        load_manifest(self.folder, stage=self.name)
        self._check_same(self.folder)
        return True

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """Yields the partial folder to write payload into; completes the stage on normal exit.

        Files left by an interrupted sitting are still in it. An exception leaves it to the next.

        Raises:
            ValueError: the stage is complete already, another process is writing it, or one of
                its folders holds something else.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.folder):
            if self.is_complete():
                raise ValueError(f"{self.folder}: this stage is already complete")
            earlier, revision = self._open_partial(), git_revision()
            started = time.perf_counter()
            try:
                yield self.partial
                self._complete(_effort(earlier, started), revision)
            except BaseException:
                # Losing the time of a sitting must not hide why it ended (a full disk, say).
                with suppress(OSError):
                    write_json(self.partial / PROGRESS, to_json(_effort(earlier, started)))
                raise

    def _identity(self) -> dict[str, Any]:
        values = (self.name, self.version, to_json(self.config), dict(self.inputs))
        return dict(zip(IDENTITY, values, strict=True))

    def _check_same(self, folder: Path) -> None:
        found = _read_identity(folder)
        _check_name(folder, found["stage"], self.name)
        if found["id"] != self.id:
            changes = differences(_by_key(found), _by_key(self._identity()))
            raise ValueError(f"{folder}: holds another configuration ({changes}); {REDO}")

    def _open_partial(self) -> _Effort:
        self.partial.mkdir(exist_ok=True)
        for leftover in self.partial.glob(".*.tmp"):  # of a writer that was killed
            leftover.unlink()
        if _is_empty(self.partial):
            write_json(self.partial / CONFIG, {"id": self.id, **self._identity()})
        self._check_same(self.partial)
        (self.partial / MANIFEST).unlink(missing_ok=True)  # if killed just before the rename
        progress = self.partial / PROGRESS
        return read_config(_Effort, progress) if progress.exists() else _Effort()

    def _complete(self, effort: _Effort, revision: str | None) -> None:
        assert not (self.partial / MANIFEST).exists(), f"{MANIFEST} is no name for payload"
        self._check_same(self.partial)  # nor is config.json
        files = _payload(self.partial)
        for name in files:
            fsync(self.partial / name)
        for folder, _, _ in os.walk(self.partial, topdown=False):
            fsync(Path(folder))
        record = _Record(
            id=self.id,
            files=files,
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            git_revision=revision,
            versions=library_versions(),
            machine=f"{platform.platform()}, {os.cpu_count()} CPUs",
            **vars(effort),
        )
        write_json(self.partial / MANIFEST, to_json(record))
        self.partial.rename(self.folder)
        fsync(self.folder.parent)
        (self.folder / PROGRESS).unlink(missing_ok=True)


def load_manifest(folder: str | os.PathLike[str], *, stage: str | None = None) -> Manifest:
    """Reads and verifies a complete stage: its id, and the presence and size of its payload.

    Raises:
        ValueError: the stage is missing, half-written, damaged, or not a `stage` stage.
    """
    folder = Path(folder)
    if not os.path.lexists(folder):
        raise ValueError(f"{folder}: no complete stage here; run the stage that writes it first")
    if not (folder / MANIFEST).is_file():
        raise ValueError(f"{folder}: not a complete stage (no {MANIFEST}); choose another folder")
    found = _read_identity(folder)
    _check_name(folder, found["stage"], stage or found["stage"])
    with _remedy():
        record = read_config(_Record, folder / MANIFEST)
        if record.id != found.pop("id"):
            raise ValueError(f"{folder / MANIFEST}: belongs to another {CONFIG}")
        _check_payload(folder, record.files)
    return Manifest(**vars(record), **found)


def _read_identity(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not path.is_file():
        raise ValueError(f"{folder}: not a goalward stage (no {CONFIG}); choose another folder")
    with _remedy():
        found = read_json(path)
        if not isinstance(found, dict) or found.keys() != {"id", *IDENTITY}:
            raise ValueError(f"{path}: not the config of a goalward stage")
        if found["id"] != content_id({key: found[key] for key in IDENTITY}):
            raise ValueError(f"{path}: changed after it was written")
    return found


@contextmanager
def _remedy() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{error}; restore it, or {REDO}") from error


def _check_name(folder: Path, found: str, wanted: str) -> None:
    if found != wanted:
        raise ValueError(f"{folder}: holds stage {found!r}, not {wanted!r}; choose another folder")


def _check_payload(folder: Path, files: Mapping[str, int]) -> None:
    for path, size in ((folder / name, size) for name, size in files.items()):
        if not path.is_file():
            raise ValueError(f"{path}: payload is missing")
        if (found := path.stat().st_size) != size:
            raise ValueError(f"{path}: payload has {found} bytes instead of {size}")


def _by_key(identity: Mapping[str, Any]) -> dict[str, Any]:
    # Config keys bear the names that their user knows, without a prefix.
    outer = {"stage version": identity["version"], "input": identity["inputs"]}
    return {**outer, **identity["config"]}


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def _payload(folder: Path) -> dict[str, int]:
    files = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    return {
        name.as_posix(): path.stat().st_size
        for name, path in sorted(files.items())
        if name.as_posix() != CONFIG
        and not any(part.startswith(".") or part.endswith(".tmp") for part in name.parts)
    }


_locks: set[IO[str]] = set()  # the open lock files of this process


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keeps other processes out; the lock lies beside the folders because those are renamed.

    The kernel drops a flock with its process, however that ends. The file is unlinked only while
    locked, and who locks it checks that it still has its name: a file that its owner was just
    removing keeps nobody else out. A child that a killed process had just forked may hold the
    lock for an instant longer, hence the patience.
    """
    path = folder.with_name(folder.name + ".lock")
    end = time.monotonic() + LOCK_PATIENCE
    with path.open("a") as stream:
        _locks.add(stream)
        try:
            while not (locked := _lock(stream.fileno(), path)) and time.monotonic() < end:
                time.sleep(0.05)
            if not locked:
                raise ValueError(f"{folder}: another process is writing this stage; wait for it")
            try:
                yield
            finally:
                if not stream.closed:  # as it is in a forked child
                    path.unlink(missing_ok=True)
        finally:
            _locks.discard(stream)


def _lock(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except (BlockingIOError, FileNotFoundError):
        return False


def _close_locks_in_child() -> None:
    # A forked worker shares the lock and would keep it after the parent's death; closing the
    # copy does not unlock the parent. (A program that is executed does not inherit it.)
    while _locks:
        _locks.pop().close()


os.register_at_fork(after_in_child=_close_locks_in_child)


def _effort(earlier: _Effort, started: float) -> _Effort:
    return _Effort(
        seconds=earlier.seconds + time.perf_counter() - started,
        peak_memory_mb=max(earlier.peak_memory_mb, peak_memory_mb()),
    )
