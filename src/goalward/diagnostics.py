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

LEAST_DISK_GB = 5.0
SIMULATORS = (
    *("stable-worldmodel", "gymnasium", "mujoco", "dm_control", "ogbench", "pymunk", "pygame"),
    *("opencv-python-headless", "shapely"),
)
EXPORTERS = ("onnx", "onnxscript", "onnxruntime")
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
    yield Finding(name="python", ok=True, found=platform.python_version())
    yield _torch()
    yield from (_package(name, SIMULATING, INSTALL_SIM) for name in SIMULATORS)
    yield from (_package(name, EXPORTING, INSTALL) for name in EXPORTERS)
    yield _gl()
    yield _disk(folder)


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


def _package(name: str, needed_for: str, fix: str) -> Finding:
    try:
        found, ok = importlib.metadata.version(name), True
    except importlib.metadata.PackageNotFoundError:
        found, ok = "not installed", False
    if ok and name == "stable-worldmodel" and found != PINNED_VERSION:
        found, ok = f"{found}, but goalward is made for {PINNED_VERSION}", False
    return Finding(name=name, ok=ok, found=found, fix=fix, needed_for=needed_for)


def _gl() -> Finding:
    """The GL back-end that would be used, tried: a library that loads may still lack a driver."""
    code = "import mujoco; c = mujoco.GLContext(16, 16); c.make_current(); c.free(); print('ok')"
    try:
        found = prepare_gl()
        works = importlib.util.find_spec("mujoco") is None or _ask_python(code) == "ok"
        found += "" if works else " is installed, but gives no drawing context"
    except ValueError as error:
        works, found = False, str(error)
    fix, needed_for = f"{INSTALL_HINT}   (as root; Debian and Ubuntu)", "drawing cube and reacher"
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
    command = [sys.executable, "-W", "ignore", "-c", code]
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter and a constant, no shell
            command, capture_output=True, text=True, timeout=120, check=True
        )
    except subprocess.SubprocessError:
        return None
    return done.stdout.strip()
