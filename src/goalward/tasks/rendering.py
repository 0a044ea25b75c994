"""Fast off-screen rendering of MuJoCo scenes on a CPU.

The camera and the scene are the environment's own. What costs time but hardly changes a small
image is left out: multisampling, shadows, reflections, and most of the arm's mesh faces.
Instead, small frames are drawn at twice the size and averaged, so that a sub-pixel motion still
changes them. Physics never sees the render-only copy of the model.
"""

from __future__ import annotations

import atexit
import copy
import ctypes
import functools
import os
import sys
import warnings
import weakref
from typing import Any

import numpy as np

from goalward.core.arrays import Array


def resized(frame: Array, image_size: int) -> Array:
    """A uint8 frame of shape (image_size, image_size, 3), never a view of the input.

    Shrinking averages areas: point-sampled shrinking would drop sub-pixel motion, exactly what
    a small frame must still show.
    """
    import cv2

    if frame.shape[:2] == (image_size, image_size):
        return frame.copy()
    how = cv2.INTER_AREA if image_size < max(frame.shape[:2]) else cv2.INTER_LINEAR
    small: Array = cv2.resize(frame, (image_size, image_size), interpolation=how)
    return small


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
    """Set MUJOCO_GL where the user has not, and return the back-end in force."""
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


SUPERSAMPLE_UP_TO = 128  # larger frames are drawn at their own size
SHADOW_MAP_SIZE = 512

_OPEN: weakref.WeakSet[FastRenderer] = weakref.WeakSet()


def decimated_faces(vertices_V3: Array, faces_F3: Array, cell: float) -> tuple[Array, Array]:
    """Merge the vertices of each cubic cell and return the faces that keep an area.

    Args:
        vertices_V3: vertex positions.
        faces_F3: vertex indices of each triangle.
        cell: edge of the cells, in the unit of the vertices.

    Returns:
        Triangles (K, 3), each once, that index into the same vertices; and which of the F faces
        each of them comes from (K,).
    """
    cells = np.floor(vertices_V3 / cell).astype(np.int64)
    _, first, inverse = np.unique(cells, axis=0, return_index=True, return_inverse=True)
    merged = first[inverse.reshape(-1)][faces_F3]
    a, b, c = merged.T
    whole = np.flatnonzero((a != b) & (b != c) & (a != c))
    faces, kept = np.unique(merged[whole], axis=0, return_index=True)
    return faces, whole[kept]


def render_model(model: Any, *, image_size: int, mesh_cell: float | None = None) -> Any:
    """A copy of an `MjModel` for drawing only.

    Meshes shrink in place (fewer faces, same vertex buffer), which spares a second compilation.
    """
    drawn = copy.copy(model)
    drawn.vis.quality.offsamples = 0
    drawn.vis.quality.shadowsize = SHADOW_MAP_SIZE
    drawn.vis.global_.offwidth = drawn.vis.global_.offheight = image_size
    if mesh_cell is None:
        return drawn
    for mesh in range(drawn.nmesh):
        at, num = drawn.mesh_vertadr[mesh], drawn.mesh_vertnum[mesh]
        face, num_faces = drawn.mesh_faceadr[mesh], drawn.mesh_facenum[mesh]
        faces, kept = decimated_faces(
            drawn.mesh_vert[at : at + num], drawn.mesh_face[face : face + num_faces], mesh_cell
        )
        here, count = slice(face, face + len(faces)), len(faces)
        # Light and texture are looked up by face, so they move along with the faces.
        drawn.mesh_facenormal[here] = drawn.mesh_facenormal[face + kept]
        drawn.mesh_facetexcoord[here] = drawn.mesh_facetexcoord[face + kept]
        drawn.mesh_face[here], drawn.mesh_facenum[mesh] = faces, count
    return drawn


class FastRenderer:
    """Draws one camera of one model; the GL context lives as long as the renderer."""

    def __init__(
        self, model: Any, camera: str | int, image_size: int, *, mesh_cell: float | None = None
    ) -> None:
        import mujoco

        self._scale = 2 if image_size <= SUPERSAMPLE_UP_TO else 1
        drawn_size = image_size * self._scale
        self._camera = camera
        drawn = render_model(model, image_size=drawn_size, mesh_cell=mesh_cell)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the error that follows says it better
                self._renderer: Any = mujoco.Renderer(drawn, drawn_size, drawn_size)
        except (RuntimeError, OSError, AttributeError, mujoco.FatalError) as error:
            raise no_gl_context(error) from error
        self._renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = 0
        self._renderer.scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = 0
        _OPEN.add(self)
        _close_all_at_exit()

    def __call__(self, data: Any) -> Array:
        """The frame of `data`: uint8 of shape (image_size, image_size, 3)."""
        self._renderer.update_scene(data, camera=self._camera)
        frame: Array = self._renderer.render()
        return frame.copy() if self._scale == 1 else halve(frame)

    def close(self) -> None:
        """Free the GL context.

        MuJoCo frees its GL objects in whichever context is current; without the first line that
        would be another renderer's, whose frames would be garbage from then on.
        """
        if self._renderer is not None:
            self._renderer._gl_context.make_current()
            self._renderer.close()
            self._renderer = None

    def __del__(self) -> None:
        if getattr(self, "_renderer", None) is not None:
            self.close()


@functools.cache
def _close_all_at_exit() -> None:
    """Have what is still open freed before MuJoCo's own exit hook, which is registered by then."""

    def close_all() -> None:
        for renderer in list(_OPEN):
            renderer.close()

    atexit.register(close_all)


def halve(frame: Array) -> Array:
    """Average 2 x 2 blocks of a uint8 image of shape (2H, 2W, 3), rounding to nearest."""
    wide = frame.astype(np.uint16)
    total = wide[0::2, 0::2] + wide[1::2, 0::2] + wide[0::2, 1::2] + wide[1::2, 1::2]
    return ((total + 2) >> 2).astype(np.uint8)
