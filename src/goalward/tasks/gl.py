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
MACOS_BACKEND = "cgl"


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def available_backends() -> list[str]:
    """Off-screen back-ends whose libraries can be loaded here, the preferred one first."""
    if sys.platform == "darwin":
        return [MACOS_BACKEND]
    return [name for name, needed in LIBRARIES.items() if all(map(_loads, needed))]


def prepare_gl() -> str:
    """Set MUJOCO_GL where the user has not, and return the back-end in force.

    Raises:
        ValueError: no off-screen GL library is installed, or the environment asks for another.
    """
    # Mesa's software renderer starts a thread for every core; simulators already run one process
    # for every core, and small frames gain nothing from threads.
    os.environ.setdefault("LP_NUM_THREADS", "1")
    backends = available_backends()
    wanted = os.environ.get("MUJOCO_GL", "").lower()
    if not wanted and not backends:
        raise ValueError(
            "no off-screen OpenGL library found, and this task is drawn by MuJoCo; "
            f"install one (Debian/Ubuntu: {INSTALL_HINT}) and run again"
        )
    chosen = wanted or backends[0]
    if chosen not in (*backends, "glfw"):
        raise ValueError(
            f"MUJOCO_GL={chosen!r} cannot be used here (can be: {', '.join(backends) or 'none'}); "
            f"unset it, or install its library (Debian/Ubuntu: {INSTALL_HINT})"
        )
    if os.environ.get("PYOPENGL_PLATFORM", chosen).lower() != chosen:
        platform = os.environ["PYOPENGL_PLATFORM"]
        raise ValueError(f"PYOPENGL_PLATFORM={platform!r} contradicts {chosen!r}; unset it")
    if chosen != MACOS_BACKEND:  # MuJoCo finds that by itself, and dm_control knows no such name
        os.environ["MUJOCO_GL"] = chosen
    return chosen


def no_gl_context(error: BaseException) -> ValueError:
    """What to tell a user whose back-end is there but gives no drawing context."""
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return ValueError(
        f"MuJoCo cannot draw with MUJOCO_GL={os.environ.get('MUJOCO_GL', '')!r} ({reason}); "
        f"unset MUJOCO_GL or install another back-end (Debian/Ubuntu: {INSTALL_HINT})"
    )
