"""How tests look at pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from goalward.core.arrays import Array


def pixels(path: Path) -> Array:
    """A PNG's pixels, (H, W, 3)."""
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB"))


def titles(figure: Any) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes]
