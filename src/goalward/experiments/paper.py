"""The paper's own figures, as data."""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files
from typing import Any

from goalward.config import read_json


@cache
def paper_tables() -> dict[str, Any]:
    """Every table by its name; success is in percent, times are of the authors' GPUs."""
    with as_file(files("goalward.experiments") / "paper.json") as path:
        tables: dict[str, Any] = read_json(path)
    return tables
