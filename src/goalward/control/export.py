"""A trained controller as one ONNX graph, with the preprocessing inside.

uint8 frames, the goals' latents and the remaining steps go in; actions within the bounds and the
frames' latents come out. A goal's latent comes from the same graph, so one file is enough.
"""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from goalward.control.act import ActionHead
from goalward.control.checkpoint import TrainedIDM, model_id
from goalward.control.networks import HorizonConfig
from goalward.core.config import canonical, to_json
from goalward.core.files import EMPTY_SEAL, atomic_write, sealed
from goalward.runtime import onnx as exported
from goalward.runtime.onnx import OnnxMetadata
from goalward.world.frozen import fuse_batchnorm, normalise

EXAMPLES = 2  # of a batch, to trace the graph with: one might be taken for a fixed number
NEEDED = ("onnx", "onnxscript")


class Decision(nn.Module):
    """Everything from frames to actions."""

    low: Tensor
    high: Tensor

    def __init__(self, model: TrainedIDM, head: ActionHead) -> None:
        super().__init__()
        world = model.world.model
        self.encoder = fuse_batchnorm(nn.Sequential(world.encoder, world.projector))
        self.head = head
        self.register_buffer("low", torch.tensor(model.metadata.action_low))
        self.register_buffer("high", torch.tensor(model.metadata.action_high))

    def forward(
        self, frames_NHWC: Tensor, goals_ND: Tensor, steps_left_N: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Actions (N, A) and latents (N, D)."""
        z_ND = self.encoder(normalise(frames_NHWC))
        actions_NA = self.head(z_ND, goals_ND, steps_left_N)
        return actions_NA.clamp(self.low, self.high), z_ND


def export_onnx(
    model: TrainedIDM, path: Path, horizon: HorizonConfig | None = None
) -> OnnxMetadata:
    """Write a goal-conditioned model as an ONNX file; `horizon` is by default as trained."""
    if path.suffix != exported.SUFFIX:
        raise ValueError(
            f"{path}: the name of an exported controller must end in {exported.SUFFIX}"
        )
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent}: no such folder; make it first")
    for name in NEEDED:
        if importlib.util.find_spec(name) is None:
            raise ValueError(f"exporting needs {name}, which is not installed: {exported.INSTALL}")
    about = model.metadata
    head = ActionHead(model.network, model.time_to_go, horizon or about.horizon)
    metadata = OnnxMetadata(
        task=about.task,
        model_id=model_id(model),
        world_id=about.world_id,
        image_size=model.world.image_size,
        latent_dim=model.world.latent_dim,
        action_dim=about.network.action_dim,
        horizon=to_json(head.horizon),
        split=to_json(about.split),
    )
    graph = _graph(Decision(model, head).cpu().eval(), metadata)
    facts = {exported.METADATA: canonical(asdict(metadata)), exported.CHECKSUM: EMPTY_SEAL}
    for key, value in facts.items():
        graph.metadata_props.add(key=key, value=value)
    content = sealed(graph.SerializeToString())
    assert exported.EXTERNAL not in content, "the file would be refused"
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)
    return metadata


def _graph(decision: Decision, metadata: OnnxMetadata) -> Any:
    """Trace the decision for any number of environments: an `onnx.ModelProto`."""
    frames = torch.zeros(EXAMPLES, metadata.image_size, metadata.image_size, 3, dtype=torch.uint8)
    goals = torch.zeros(EXAMPLES, metadata.latent_dim)
    steps = torch.ones(EXAMPLES, dtype=torch.int64)
    number = torch.export.Dim("environments", min=1)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of the exporter about itself
        program = torch.onnx.export(
            decision,
            (frames, goals, steps),
            input_names=[exported.FRAMES, exported.GOALS, exported.STEPS],
            output_names=[exported.ACTIONS, exported.LATENTS],
            dynamic_shapes=({0: number}, {0: number}, {0: number}),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    graph = program.model_proto
    # The exporter notes source lines and folders of this machine, which are nobody's business.
    for part in (graph.graph, *graph.graph.node, *graph.graph.value_info, *graph.graph.initializer):
        del part.metadata_props[:]
        part.ClearField("doc_string")
    return graph
