"""An exported controller in control: no torch, one call of ONNX Runtime a decision.

Shapes: B environments, D latent numbers, A numbers of an action.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from goalward.control.controller import Environments, as_batch
from goalward.control.horizon import HorizonConfig
from goalward.core.arrays import Array
from goalward.core.checks import one_line
from goalward.core.config import parse_config
from goalward.data.splits import SplitConfig

if TYPE_CHECKING:
    import onnxruntime


CARD = "goalward"  # the metadata's key
FRAMES, GOALS, STEPS = "frames", "goals", "steps_left"  # the graph's inputs
ACTIONS, LATENTS = "actions", "latents"  # and its outputs
SUFFIX = ".onnx"  # of the file's name
INSTALL = "pip install 'goalward[export]'"


@dataclass(frozen=True, kw_only=True, slots=True)
class OnnxMetadata:
    """What a file is, and what it was made from."""

    format: Literal["goalward-onnx"] = "goalward-onnx"
    version: Literal[1] = 1
    task: str | None
    model_id: str  # of the controller that it was made from
    world_id: str
    image_size: int
    latent_dim: int
    action_dim: int
    horizon: HorizonConfig
    split: SplitConfig  # which episodes its training held out


class OnnxController:
    """A `Controller` that gives an exported file's actions.

    Args:
        path: What `goalward export` wrote.
        threads: CPU threads (default: as many as there are cores).

    Raises:
        ValueError: the file is something else or damaged, or ONNX Runtime is not installed.
    """

    def __init__(self, path: str | Path, *, threads: int | None = None) -> None:
        self._session = _open(Path(path), threads)
        facts = self._session.get_modelmeta().custom_metadata_map
        if CARD not in facts:
            raise ValueError(f"{path}: not a controller; give a file that `goalward export` wrote")
        self.metadata = parse_config(OnnxMetadata, facts[CARD].encode(), path)
        self._environments = Environments()
        self._goals_BD = np.empty((0, self.metadata.latent_dim), dtype=np.float32)

    def reset(
        self, goals: Array, budget: npt.ArrayLike, *, environments: npt.ArrayLike | None = None
    ) -> None:
        """Take new goals; see `Controller.reset`. Each is encoded once, here."""
        self._require_size(goals)
        frames, where = self._environments.reset(goals, budget, environments)
        nowhere_BD = np.zeros((len(frames), self.metadata.latent_dim), dtype=np.float32)
        z_goal_BD = self._run(LATENTS, frames, nowhere_BD, np.ones(len(frames), dtype=np.int64))
        if environments is None:
            self._goals_BD = z_goal_BD
        else:
            self._goals_BD[where] = z_goal_BD

    def act(
        self,
        frames: Array,
        steps_left: npt.ArrayLike | None = None,
        *,
        environments: npt.ArrayLike | None = None,
    ) -> Array:
        """The next action of every environment; see `Controller.act`."""
        self._require_size(frames)
        seen = self._environments.observe(frames, steps_left, environments)
        goals_BD = self._goals_BD[seen.environments]
        actions = self._run(ACTIONS, seen.frames, goals_BD, seen.steps_left)
        return actions[0] if self._environments.single else actions

    def _require_size(self, frames: Array) -> None:
        """Refuse frames of another size before anything has changed."""
        batch, _ = as_batch(frames, "frames")
        side = self.metadata.image_size
        if batch.shape[1:3] != (side, side):
            raise ValueError(
                f"frames must be {side} pixels a side, as the file was exported for, got "
                f"{batch.shape[1]} x {batch.shape[2]}; resize them first"
            )

    def _run(self, output: str, frames: Array, goals_BD: Array, steps_B: Array) -> Array:
        (found,) = self._session.run([output], {FRAMES: frames, GOALS: goals_BD, STEPS: steps_B})
        return np.asarray(found)


def _open(path: Path, threads: int | None) -> onnxruntime.InferenceSession:
    if importlib.util.find_spec("onnxruntime") is None:
        raise ValueError(f"{path}: needs onnxruntime, which is not installed; {INSTALL}")
    import onnxruntime

    if not path.is_file():
        raise ValueError(f"{path}: no such file; give one that `goalward export` wrote")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    if threads is not None:
        if threads < 1:
            raise ValueError(f"threads must be at least 1, got {threads}")
        options.intra_op_num_threads = threads
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its own kinds derive from Exception alone
        raise ValueError(f"{path}: no ONNX file, or damaged ({one_line(str(error))})") from error
