"""Which code and which libraries a result came from."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from contextlib import suppress
from pathlib import Path

from goalward import __version__

LIBRARIES = (
    *("numpy", "h5py", "hdf5plugin", "torch", "stable-worldmodel", "gymnasium"),
    *("mujoco", "dm_control", "ogbench", "pymunk", "pygame", "opencv-python-headless"),
)


def library_versions() -> dict[str, str]:
    """Versions of Python, goalward and the installed libraries, without importing any."""
    versions = {"python": platform.python_version(), "goalward": __version__}
    for name in LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def git_revision() -> str | None:
    """The revision of the checkout that this package runs from; None if it is installed.

    An installed package may lie in the repository of somebody's project (in its venv), whose
    revision says nothing about goalward: so the root must hold this very package.
    """
    package = Path(__file__).resolve().parent
    answer = _git(package, "rev-parse", "--show-toplevel", "HEAD")
    if answer is None:
        return None
    root, revision = answer.rsplit("\n", 1)
    if Path(root, "src", "goalward").resolve() != package:
        return None
    status = _git(package, "status", "--porcelain")
    return None if status is None else revision + ("+dirty" if status else "")


def short_revision(revision: str) -> str:
    """A revision in few letters; whether something was changed since stays."""
    number, plus, dirty = revision.partition("+")
    return number[:7] + plus + dirty


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    # A git hook exports these, and they would point git at the hook's repository.
    hook = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
    outside = {key: value for key, value in os.environ.items() if key not in hook}
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command, no shell
            command, env=outside, capture_output=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None  # no git, no repository, no commit yet, or a very slow disk
    return done.stdout.decode(errors="surrogateescape").removesuffix("\n")
