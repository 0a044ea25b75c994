"""The paper's numbers: `paper.json` has them by experiment, task, controller and point."""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files
from typing import Any

from goalward.core.config import read_json


@cache
def paper_numbers() -> dict[str, Any]:
    """Everything; success is in percent, times are of the authors' GPUs."""
    with as_file(files("goalward.experiments") / "paper.json") as path:
        numbers: dict[str, Any] = read_json(path)
    return numbers


def paper_success(experiment: str, task: str, controller: str, point: str) -> float | None:
    """A success rate in percent; None where the paper has none."""
    found = paper_numbers()["success"].get(experiment, {}).get(task, {})
    success: float | None = found.get(controller, {}).get(point)
    return success


def paper_trajectory(task: str, controller: str) -> dict[str, float]:
    """Action jerk, and monotonicity in percent (Table 4); empty where the paper has none."""
    found: dict[str, float] = paper_numbers()["trajectories"].get(task, {}).get(controller, {})
    return found
