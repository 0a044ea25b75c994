"""An exported controller as a method that an evaluation can compare."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch

from goalward.evaluate.cells import Method
from goalward.runtime.card import OnnxCard
from goalward.runtime.onnx_controller import OnnxController

NAME = "gc-idm-onnx"


def onnx_method(path: Path) -> tuple[Method, OnnxCard]:
    """The method of a file, with as many threads as the other methods have, and the file's card.

    Raises:
        ValueError: as `OnnxController` does.
    """
    card = OnnxController(path).card
    method = Method(
        name=NAME,
        config=card.horizon,
        model_id=hashlib.sha256(path.read_bytes()).hexdigest()[:16],
        make=lambda _: OnnxController(path, threads=torch.get_num_threads()),
    )
    return method, card
