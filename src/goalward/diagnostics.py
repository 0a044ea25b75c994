"""What this machine has, what it lacks, and the command that fixes it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from goalward.runtime.onnx import INSTALL
from goalward.tasks.gymnasium import INSTALL_SIM, PINNED_VERSION
from goalward.tasks.rendering import INSTALL_HINT, prepare_gl

OLDEST_PYTHON = (3, 10)
LEAST_DISK_GB = 5.0
SIMULATORS = {
    "stable-worldmodel": "stable_worldmodel",
    "gymnasium": "gymnasium",
    "mujoco": "mujoco",
    "dm_control": "dm_control",
    "ogbench": "ogbench",
    "pymunk": "pymunk",
    "pygame": "pygame",
    "opencv-python-headless": "cv2",
    "shapely": "shapely",
}
EXPORTERS = {"onnx": "onnx", "onnxscript": "onnxscript", "onnxruntime": "onnxruntime"}
SIMULATING, EXPORTING = "simulating the tasks", "exporting controllers to ONNX, and running those"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One line of the doctor's report."""

    name: str
    ok: bool
    found: str
    fix: str = ""  # the command that mends it
    needed_for: str = ""


def examine(folder: Path) -> Iterator[Finding]:
    """Examine the machine; `folder` is where results would be written."""
    yield _python()
    yield _torch()
    yield from (_package(name, SIMULATORS[name], SIMULATING, INSTALL_SIM) for name in SIMULATORS)
    yield from (_package(name, EXPORTERS[name], EXPORTING, INSTALL) for name in EXPORTERS)
    yield _gl()
    yield _disk(folder)


def _python() -> Finding:
    wanted = ".".join(map(str, OLDEST_PYTHON))
    return Finding(
        name="python",
        ok=sys.version_info >= OLDEST_PYTHON,
        found=platform.python_version(),
        fix=f"install Python {wanted} or newer",
    )


def _torch() -> Finding:
    """Torch and the device it would use; asked in a process of its own, since torch can crash."""
    fix = "pip install torch -c constraints.txt"
    code = (
        "import torch;"
        "d='cuda' if torch.cuda.is_available() else"
        " 'mps' if torch.backends.mps.is_available() else 'cpu';"
        "print(torch.__version__, 'on', d, f'({torch.get_num_threads()} threads)')"
    )
    installed = importlib.util.find_spec("torch") is not None
    answer = _ask_python(code) if installed else None
    problem = "installed, but fails at import" if installed else "not installed"
    return Finding(name="torch", ok=answer is not None, found=answer or problem, fix=fix)


def _package(distribution: str, module: str, needed_for: str, fix: str) -> Finding:
    try:
        version = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        version = ""
    if not version or importlib.util.find_spec(module) is None:
        found, ok = "not installed", False
    elif distribution == "stable-worldmodel" and version != PINNED_VERSION:
        found, ok = f"{version}, but goalward is made for {PINNED_VERSION}", False
    else:
        found, ok = version, True
    return Finding(name=distribution, ok=ok, found=found, fix=fix, needed_for=needed_for)


def _gl() -> Finding:
    """The GL back-end that would be used, tried: a library that loads may still lack a driver."""
    needed_for = "drawing cube and reacher"
    fix = f"{INSTALL_HINT}   (as root; Debian and Ubuntu)"
    try:
        backend = prepare_gl()
    except ValueError as error:
        return Finding(
            name="off-screen GL", ok=False, found=str(error), fix=fix, needed_for=needed_for
        )
    mujoco = importlib.util.find_spec("mujoco")
    code = "import mujoco; c = mujoco.GLContext(16, 16); c.make_current(); c.free(); print('ok')"
    works = mujoco is None or _ask_python(code) == "ok"
    found = backend if works else f"{backend} is installed, but gives no drawing context"
    return Finding(name="off-screen GL", ok=works, found=found, fix=fix, needed_for=needed_for)


def _disk(folder: Path) -> Finding:
    existing = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    free = shutil.disk_usage(existing).free / 1e9
    return Finding(
        name="disk",
        ok=free >= LEAST_DISK_GB,
        found=f"{free:.0f} GB free at {existing}",
        fix=f"free {LEAST_DISK_GB:.0f} GB, or write to another disk with --out",
    )


def _ask_python(code: str) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter and a constant, no shell
            [sys.executable, "-W", "ignore", "-c", code],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
