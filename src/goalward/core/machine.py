"""The machine and the code: devices, threads, memory, and the provenance of measurements."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import resource
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from goalward import __version__
from goalward.core.checks import format_value

if TYPE_CHECKING:
    import torch

STATUS, RESTART = Path("/proc/self/status"), Path("/proc/self/clear_refs")
KINDS = ("cpu", "cuda", "mps")
MOST_THREADS = 2**15
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

    An installed package may lie in the repository of another project (in its venv), whose revision
    says nothing about goalward: so the root must hold this package.
    """
    package = Path(__file__).resolve().parents[1]
    answer = _git(package, "rev-parse", "--show-toplevel", "HEAD")
    if answer is None:
        return None
    root, revision = answer.rsplit("\n", 1)
    if Path(root, "src", "goalward").resolve() != package:
        return None
    status = _git(package, "status", "--porcelain")
    return None if status is None else revision + ("+dirty" if status else "")


def short_revision(revision: str) -> str:
    """A revision in few letters; "+dirty" stays."""
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


def peak_memory_mb() -> float:
    """The largest resident size that this process, or one of its children, has had."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    unit = 2**20 if sys.platform == "darwin" else 2**10  # ru_maxrss: bytes on macOS, else KiB
    return max(usage.ru_maxrss for usage in usages) / unit


def restart_peak() -> bool:
    """Forget the peak so far of this process alone; False where the system cannot (not Linux)."""
    try:
        RESTART.write_text("5")
    except OSError:
        return False
    return True


def peak_since_restart_mb() -> float:
    """The largest resident size of this process since `restart_peak`, which must be True."""
    found = re.search(r"^VmHWM:\s*(\d+) kB", STATUS.read_text(), flags=re.MULTILINE)
    assert found is not None, f"{STATUS} has no peak"
    return int(found[1]) / 2**10


def usable_cpus() -> int:
    """Number of CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def choose_device(name: str) -> torch.device:
    """A torch device that this machine has; `auto` takes a GPU where there is one."""
    import torch

    if name.partition(":")[0] not in ("auto", *KINDS):
        raise ValueError(f"device {format_value(name)} is not one of {', '.join(KINDS)}")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        name = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"  # torchrun: each process its own GPU
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device {format_value(name)} is not available here; use --device cpu"
        ) from error
    return device


def choose_devices(name: str) -> tuple[torch.device, ...]:
    """As `choose_device`, for work that can be shared: `auto` and `cuda` take every GPU."""
    import torch

    found = tuple(torch.device("cuda", k) for k in range(torch.cuda.device_count()))
    every = name in ("auto", "cuda") and "LOCAL_RANK" not in os.environ
    return found if every and found else (choose_device(name),)


def use_threads(number: int | None) -> None:
    """Compute with this number of CPU threads; None leaves torch's own choice."""
    import torch

    if number is not None:
        if not 1 <= number <= MOST_THREADS:
            raise ValueError(f"threads must be 1 to {MOST_THREADS}, got {number}")
        torch.set_num_threads(number)


def machine() -> str:
    """The CPUs and the GPU, for a table's caption."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return f"{processor()}, {gpu}"


def processor() -> str:
    """The CPUs, with the vector instructions that torch uses, which decide the speed."""
    import torch

    cpus, instructions = usable_cpus(), torch.backends.cpu.get_cpu_capability()
    return f"{platform.machine()} ({instructions}), {cpus} CPU{'s' if cpus > 1 else ''}"


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """The machine and the code that something was measured with."""

    machine: str
    git_revision: str | None
    versions: dict[str, str]  # of libraries


@cache
def this_provenance() -> Provenance:
    """That of this process at the first call: results may be written into the checkout later."""
    return Provenance(machine=machine(), git_revision=git_revision(), versions=library_versions())
