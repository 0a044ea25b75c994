"""An exported controller as a method that an evaluation can compare."""

from __future__ import annotations

from pathlib import Path

from goalward.evaluate.cells import Method
from goalward.runtime.onnx_controller import OnnxController

NAME, SUFFIX = "gc-idm-onnx", ".onnx"


def onnx_method(path: Path) -> Method:
    """The method of a file.

    Raises:
        ValueError: as `OnnxController` does.
    """
    card = OnnxController(path).card
    return Method(
        name=NAME,
        config=card.horizon,
        model_id=card.model_id,
        make=lambda _: OnnxController(path),
    )
