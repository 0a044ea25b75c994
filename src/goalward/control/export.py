"""A trained controller as one ONNX graph, with the preprocessing inside.

uint8 frames, the goals' latents and the steps left go in, actions within the bounds and the frames'
latents come out. A goal's latent comes from the same graph, so that one file is all it takes.
"""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from goalward.control.act import ActionHead
from goalward.control.checkpoint import TrainedIDM, model_id
from goalward.control.horizon import HorizonConfig
from goalward.core.config import canonical, to_json
from goalward.core.files import atomic_write
from goalward.runtime.onnx import (
    ACTIONS,
    CARD,
    FRAMES,
    GOALS,
    INSTALL,
    LATENTS,
    STEPS,
    SUFFIX,
    OnnxMetadata,
)
from goalward.world.frozen import folded, normalise

EXAMPLES = 2  # of a batch, to trace the graph with: one might be taken for a fixed number
NEEDED = ("onnx", "onnxscript")


class Decision(nn.Module):
    """Everything from frames to actions."""

    low: Tensor
    high: Tensor

    def __init__(self, model: TrainedIDM, decider: ActionHead) -> None:
        super().__init__()
        self.encoder = folded(nn.Sequential(model.world.encoder, model.world.projector))
        self.decider = decider
        self.register_buffer("low", torch.tensor(model.metadata.action_low))
        self.register_buffer("high", torch.tensor(model.metadata.action_high))

    def forward(
        self, frames_NHWC: Tensor, goals_ND: Tensor, steps_left_N: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Actions (N, A) and latents (N, D)."""
        z_ND = self.encoder(normalise(frames_NHWC))
        actions_NA = self.decider(z_ND, goals_ND, steps_left_N)
        return actions_NA.clamp(self.low, self.high), z_ND


def export_onnx(
    model: TrainedIDM, path: Path, horizon: HorizonConfig | None = None
) -> OnnxMetadata:
    """Write a controller as an ONNX file; it appears whole or not at all.

    Args:
        model: A goal-conditioned model.
        path: Where to.
        horizon: What the network is told of the steps left (default: as the model's file says).

    Raises:
        ValueError: the model cannot act, or what exporting needs is not installed.
    """
    if path.suffix != SUFFIX:
        raise ValueError(f"{path}: an exported controller's name ends in {SUFFIX}")
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent}: no such folder; make it first")
    for name in NEEDED:
        if importlib.util.find_spec(name) is None:
            raise ValueError(f"exporting needs {name}, which is not installed; {INSTALL}")
    told = model.metadata.horizon if horizon is None else horizon
    decider = ActionHead(model.network, model.time_to_go, told)
    metadata = OnnxMetadata(
        task=model.metadata.task,
        model_id=model_id(model),
        world_id=model.metadata.world_id,
        image_size=model.metadata.world.encoder.image_size,
        latent_dim=model.metadata.world.latent_dim,
        action_dim=model.metadata.network.action_dim,
        horizon=decider.horizon,
        split=model.metadata.split,
    )
    graph = _graph(Decision(model, decider).cpu().eval(), metadata).model_proto
    entry = graph.metadata_props.add()
    entry.key, entry.value = CARD, canonical(to_json(metadata))
    with atomic_write(path) as temporary:
        temporary.write_bytes(graph.SerializeToString())
    return metadata


def _graph(decision: Decision, metadata: OnnxMetadata) -> torch.onnx.ONNXProgram:
    """Trace the decision for any number of environments."""
    frames = torch.zeros(EXAMPLES, metadata.image_size, metadata.image_size, 3, dtype=torch.uint8)
    goals = torch.zeros(EXAMPLES, metadata.latent_dim)
    steps = torch.ones(EXAMPLES, dtype=torch.int64)
    number = torch.export.Dim("environments", min=1)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of the exporter about itself
        program = torch.onnx.export(
            decision,
            (frames, goals, steps),
            input_names=[FRAMES, GOALS, STEPS],
            output_names=[ACTIONS, LATENTS],
            dynamic_shapes=({0: number}, {0: number}, {0: number}),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    return program
