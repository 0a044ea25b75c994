"""Choosing the OpenGL back-end for MuJoCo's off-screen rendering.

MuJoCo reads MUJOCO_GL when it is imported and fails late and obscurely when the library is
missing, so the choice is made and checked here, before MuJoCo is imported.
"""

from __future__ import annotations

import ctypes
import os
import sys

LIBRARIES = {"osmesa": ("libOSMesa.so.8",), "egl": ("libEGL.so.1", "libOpenGL.so.0")}
INSTALL_HINT = "apt-get install libosmesa6"


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def available_backends() -> list[str]:
    """Off-screen back-ends whose libraries can be loaded here, the preferred one first."""
    if sys.platform == "darwin":
        return ["cgl"]
    return [name for name, needed in LIBRARIES.items() if all(map(_loads, needed))]


def prepare_gl() -> str:
    """Set MUJOCO_GL where the user has not, and return the back-end in force.

    Raises:
        ValueError: no off-screen GL library is installed, or MUJOCO_GL names none.
    """
    # Mesa's software renderer starts a thread for every core; simulators already run one process
    # for every core, and small frames gain nothing from threads.
    os.environ.setdefault("LP_NUM_THREADS", "1")
    backends = available_backends()
    chosen = os.environ.get("MUJOCO_GL", "").lower()
    if chosen and chosen not in (*backends, "glfw"):
        raise ValueError(
            f"MUJOCO_GL={chosen!r} cannot be used here (can be: {', '.join(backends) or 'none'}); "
            f"unset it, or install its library (Debian/Ubuntu: {INSTALL_HINT})"
        )
    if not chosen and not backends:
        raise ValueError(
            "no off-screen OpenGL library found, and this task is drawn by MuJoCo; "
            f"install one (Debian/Ubuntu: {INSTALL_HINT}) and run again"
        )
    os.environ["MUJOCO_GL"] = chosen or backends[0]
    return os.environ["MUJOCO_GL"]


def no_gl_context(error: BaseException) -> ValueError:
    """What to tell a user whose back-end is there but gives no drawing context."""
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return ValueError(
        f"MuJoCo cannot draw with MUJOCO_GL={os.environ.get('MUJOCO_GL', '')!r} ({reason}); "
        f"unset MUJOCO_GL or install another back-end (Debian/Ubuntu: {INSTALL_HINT})"
    )
