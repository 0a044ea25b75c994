"""The environments that a controller acts in: frames, goals and budgets, checked.

Shapes: B environments, M of them that begin anew or act.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalward.arrays import as_array
from goalward.checks import described
from goalward.data.episodes import Index
from goalward.types import Array

MOST_STEPS = 10**9  # a larger budget is a mistake
MOST_FRAMES = 2**16  # and so is a larger batch
MOST_BYTES = 2**32  # or one that takes more memory


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Frames of the environments that act."""

    frames: Array  # (M, height, width, 3) uint8
    environments: Index  # (M,)
    steps_left: Index  # (M,), at least 1


class Environments:
    """Counts the steps left in each environment, and refuses what cannot be meant.

    Attributes:
        single: Whether there is one environment, given without a batch axis.
    """

    def __init__(self) -> None:
        self.single = False
        self._steps_left_B: Index | None = None

    def reset(
        self, goals: Array, budget: npt.ArrayLike, environments: npt.ArrayLike | None
    ) -> tuple[Array, Index]:
        """Goals as a batch (M, height, width, 3), and the environments (M,) that they are for."""
        batch, single = as_batch(goals, "goals")
        frames = _writable(batch)
        budget_M = whole_numbers(budget, len(frames), "budget")
        if environments is None:
            self.single, self._steps_left_B = single, budget_M
            return frames, np.arange(len(frames))
        if self._steps_left_B is None:
            raise ValueError("there are no environments yet; reset all of them first")
        where_M = _indices(environments, len(frames), len(self._steps_left_B))
        self._steps_left_B[where_M] = budget_M
        return frames, where_M

    def observe(
        self,
        frames: Array,
        steps_left: npt.ArrayLike | None,
        environments: npt.ArrayLike | None = None,
    ) -> Observation:
        """What the environments that act show; counts one step for each."""
        if self._steps_left_B is None:
            raise ValueError("there is no goal yet; call reset(goals, budget) before act(frames)")
        batch, single = as_batch(frames, "frames")
        where_M = np.arange(len(self._steps_left_B))
        if environments is not None:
            where_M = _indices(environments, len(batch), len(self._steps_left_B))
        elif len(batch) != len(where_M) or single != self.single:
            expected = "one frame without a batch axis" if self.single else f"{len(where_M)} frames"
            raise ValueError(
                f"expected {expected}, as many as there are goals, got shape {np.shape(frames)}"
            )
        steps_M = self._steps_left_B[where_M]
        if steps_left is not None:
            steps_M = whole_numbers(steps_left, len(batch), "steps_left")
        self._steps_left_B[where_M] = steps_M - 1
        # A budget that is spent counts as one last step: whoever goes on has a reason to.
        steps_M = np.maximum(steps_M, 1)
        return Observation(frames=_writable(batch), environments=where_M, steps_left=steps_M)


def as_batch(frames: Array, name: str) -> tuple[Array, bool]:
    """uint8 frames with a batch axis, and whether it had to be added.

    Raises:
        ValueError: they are no uint8 frames.
    """
    if frames is None:
        raise ValueError(f"{name} are missing; give uint8 frames of shape (B, height, width, 3)")
    array = as_array(frames, name)
    single = array.ndim == 3
    batch = array[None] if single else array
    if array.dtype != np.uint8 or batch.ndim != 4 or batch.shape[-1] != 3 or not batch.size:
        hint = ""
        if array.dtype.kind == "f" and array.nbytes <= MOST_BYTES:
            hint = ", with NaN" if np.isnan(array).any() else "; scale them to 0 .. 255 first"
        raise ValueError(
            f"{name} must be uint8 of shape (B, height, width, 3) or (height, width, 3), got "
            f"{described(array)}{hint}"
        )
    if len(batch) > MOST_FRAMES or batch.nbytes > MOST_BYTES:
        raise ValueError(
            f"{name} must be at most {MOST_FRAMES} at once and {MOST_BYTES} bytes, got shape "
            f"{array.shape}"
        )
    return batch, single


def whole_numbers(values: npt.ArrayLike, number: int, name: str) -> Index:
    """Whole numbers of at least 1, one for each environment.

    Raises:
        ValueError: they are too few, too many, too small or no whole numbers.
    """
    array = as_array(values, name)
    whole = array.dtype.kind in "iu" or (
        array.dtype.kind == "f" and bool((np.isfinite(array) & (array == np.round(array))).all())
    )
    if not whole or array.shape not in ((), (number,)):
        raise ValueError(
            f"{name} must be one whole number up to {MOST_STEPS}, or {number} of them, got "
            f"{_shown(array)}"
        )
    if (array < 1).any():
        raise ValueError(f"{name} must be at least 1, got {array.min()}")
    if (array > MOST_STEPS).any():
        raise ValueError(f"{name} must be at most {MOST_STEPS}, got {array.max()}")
    return np.broadcast_to(array, (number,)).astype(np.int64)


def _indices(environments: npt.ArrayLike, number: int, limit: int) -> Index:
    array = as_array(environments, "environments")
    fits = array.shape == (number,) and array.dtype.kind in "iu"
    if not fits or (array < 0).any() or (array >= limit).any() or len(set(array.tolist())) < number:
        raise ValueError(
            f"environments must be {number} different numbers in 0 .. {limit - 1}, one for each "
            f"frame, got {_shown(array)}"
        )
    return array.astype(np.int64)


def _writable(frames: Array) -> Array:
    """The frames in one piece of memory that could be written, as torch asks."""
    return np.require(frames, requirements=["C", "W"])


def _shown(array: Array) -> str:
    few = array.size <= 4 and array.dtype.kind in "biuf"
    return str(array.tolist()) if few else described(array)
