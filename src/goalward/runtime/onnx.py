"""An exported controller: ONNX Runtime computes its actions, without torch.

Shapes: M environments that are asked, D latent numbers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from goalward.control.controller import BatchController, Index
from goalward.core.arrays import Array
from goalward.core.checks import as_path, one_line
from goalward.core.files import require_sealed

if TYPE_CHECKING:
    import onnxruntime

METADATA, CHECKSUM = "goalward", "checksum"  # keys of the file's metadata
FRAMES, GOALS, STEPS = "frames", "goals", "steps_left"  # the graph's inputs
ACTIONS, LATENTS = "actions", "latents"  # and its outputs
FORMAT, VERSION = "goalward-onnx", 1
SUFFIX = ".onnx"  # of the file's name
INSTALL = "pip install 'goalward[export]'"
REMEDY = "write it again with `goalward export`"
MOST_BYTES = 2**31  # of an ONNX file
# The key under which a tensor names another file, where its numbers are. Any spelling of the
# format has these bytes, and our files have them nowhere else.
EXTERNAL = b"location"


@dataclass(frozen=True, kw_only=True)
class OnnxMetadata:
    """What a file is, and what it was made from."""

    format: str = FORMAT
    version: int = VERSION
    task: str | None
    model_id: str  # of the controller that it was made from
    world_id: str
    image_size: int
    latent_dim: int
    action_dim: int
    horizon: dict[str, Any]  # a `HorizonConfig`
    split: dict[str, Any]  # a `SplitConfig`: which episodes its training held out

    def __post_init__(self) -> None:
        if (self.format, self.version) != (FORMAT, VERSION):
            raise ValueError(f"expected format {FORMAT} {VERSION}")


class OnnxController(BatchController[Array]):
    """A `Controller` that gives an exported file's actions; its states are the goals' latents.

    Args:
        path: The file that `goalward export` wrote.
        threads: CPU threads (default: one for each core).

    Raises:
        ValueError: the file is damaged or something else; the message says what to do.
    """

    def __init__(self, path: str | Path, *, threads: int | None = None) -> None:
        super().__init__()
        path = as_path(path)
        self._session = _session(_content(path), path, threads or 0)
        facts = self._session.get_modelmeta().custom_metadata_map
        self.metadata = _parse(facts.get(METADATA, ""), path)
        _require_sizes(self._session, self.metadata, path)
        self.image_size = self.metadata.image_size

    def start(self, goals: Array) -> Sequence[Array]:
        """Encode each goal once."""
        none_MD = np.zeros((len(goals), self.metadata.latent_dim), dtype=np.float32)
        return [*self._run(LATENTS, goals, none_MD, np.ones(len(goals), dtype=np.int64))]

    def decide(self, frames: Array, states: Sequence[Array], steps_left: Index) -> Array:
        """One call of the graph."""
        return self._run(ACTIONS, frames, np.stack(states), steps_left)

    def _run(self, output: str, frames: Array, goals_MD: Array, steps_M: Index) -> Array:
        (found,) = self._session.run([output], {FRAMES: frames, GOALS: goals_MD, STEPS: steps_M})
        return np.asarray(found)


def _content(path: Path) -> bytes:
    """The bytes of an exported file that is as it was written."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file: give one that `goalward export` wrote")
    if (size := path.stat().st_size) > MOST_BYTES:
        raise ValueError(f"{path}: has {size} bytes, an ONNX file at most {MOST_BYTES}; {REMEDY}")
    content = path.read_bytes()
    require_sealed(content, path, REMEDY)
    if EXTERNAL in content:
        raise ValueError(f"{path}: refers to other files, which are never read; {REMEDY}")
    return content


def _session(content: bytes, path: Path, threads: int) -> onnxruntime.InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    options.intra_op_num_threads = threads
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its own kinds derive from Exception alone
        raise ValueError(f"{path}: no ONNX file ({one_line(str(error))}); {REMEDY}") from error


def _parse(text: str, path: Path) -> OnnxMetadata:
    try:
        return OnnxMetadata(**json.loads(text))
    except (TypeError, ValueError) as error:  # other names, or other values
        reason = one_line(str(error))
        message = f"{path}: not a controller of this version ({reason}); {REMEDY}"
        raise ValueError(message) from error


def _require_sizes(
    session: onnxruntime.InferenceSession, metadata: OnnxMetadata, path: Path
) -> None:
    """Refuse a graph of other sizes than its metadata promise."""
    side, dim = metadata.image_size, metadata.latent_dim
    promised = {FRAMES: [side, side, 3], GOALS: [dim], STEPS: []}
    promised |= {ACTIONS: [metadata.action_dim], LATENTS: [dim]}
    parts = (*session.get_inputs(), *session.get_outputs())
    found = {part.name: part.shape[1:] for part in parts}
    if found != promised:
        raise ValueError(f"{path}: has sizes {found}, its metadata promise {promised}; {REMEDY}")
