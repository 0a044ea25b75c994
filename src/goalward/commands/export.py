"""The command that makes a controller ready for machines without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from goalward.commands.base import AsJson
from goalward.core import console


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write a controller as one ONNX file: uint8 frames in, actions out, no torch needed."""

    controller: Annotated[Positional[Path], arg(metavar="CONTROLLER")]
    """A controller's file, or the folder that `goalward train` wrote."""
    out: Path
    """The file to write, such as controller.onnx."""
    weights: Literal["best", "last"] = "best"
    """Which of the folder's weights."""
    as_json: AsJson = False
    """Print one JSON document."""

    def run(self) -> int:
        """Export and print what was written."""
        from goalward.control.checkpoint import load_trained_idm
        from goalward.control.export import export_onnx
        from goalward.core.config import to_json

        metadata = export_onnx(load_trained_idm(self.controller, weights=self.weights), self.out)
        size = self.out.stat().st_size
        if self.as_json:
            console.show_json({"file": str(self.out), "bytes": size, "card": to_json(metadata)})
            return 0
        side = metadata.image_size
        rows = [
            ("file", f"{self.out}, {size / 1e6:.1f} MB"),
            ("frames", f"uint8 (B, {side}, {side}, 3)"),
            (
                "goals",
                f"float32 (B, {metadata.latent_dim}): the latents that the graph gives of frames",
            ),
            ("steps_left", "int64 (B,)"),
            ("actions", f"float32 (B, {metadata.action_dim}), within the task's bounds"),
        ]
        console.show_facts("Exported", rows)
        return 0
