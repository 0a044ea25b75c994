"""What an exported controller says about itself, in the file's metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from goalward.controllers.horizon import HorizonConfig
from goalward.data.splits import SplitConfig

CARD = "goalward"  # the metadata's key
FRAMES, GOALS, STEPS = "frames", "goals", "steps_left"  # the graph's inputs
ACTIONS, LATENTS = "actions", "latents"  # and its outputs
SUFFIX = ".onnx"  # of the file's name
INSTALL = "pip install 'goalward[onnx]'"


@dataclass(frozen=True, kw_only=True, slots=True)
class OnnxCard:
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
