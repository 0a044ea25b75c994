"""THE timer: how long a controller takes for a decision, the same way for every method.

Times include everything from uint8 frames to actions: preprocessing, encoding and planning.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from goalward.controllers.base import Controller
from goalward.types import Array

WARM_UP = 3  # decisions


@dataclass(frozen=True, kw_only=True, slots=True)
class Latency:
    """Times of one controller with so many environments at once, in milliseconds.

    A planner decides once for many steps: most of its decisions only hand out what was planned.
    The mean spreads the planning over all of them; `longest` is one that plans.
    """

    environments: int
    decisions: int  # timed, for each environment
    mean: float  # per decision of one environment
    p50: float
    p99: float
    longest: float


def measure_latency(
    make: Callable[[], Controller], frames: Array, *, decisions: int, budget: int
) -> Latency:
    """Time a new controller's decisions on the same frames again and again.

    Args:
        make: Gives a controller.
        frames: uint8 (B, side, side, 3); they serve as goals, in another order, as well.
        decisions: How many to time; a multiple of a planner's committed actions is fair.
        budget: Steps that the controller is told.
    """
    controller = make()
    controller.reset(np.roll(frames, 1, axis=0), budget)
    for _ in range(WARM_UP):
        controller.act(frames, budget)
    controller.reset(np.roll(frames, 1, axis=0), budget)
    seconds = [_seconds(lambda: controller.act(frames, budget)) for _ in range(decisions)]
    shared = 1000 * np.array(seconds) / len(frames)
    return Latency(
        environments=len(frames),
        decisions=decisions,
        mean=float(shared.mean()),
        p50=float(np.percentile(shared, 50)),
        p99=float(np.percentile(shared, 99)),
        longest=float(shared.max()),
    )


def _seconds(call: Callable[[], object]) -> float:
    _synchronise()
    started = time.perf_counter()
    call()
    _synchronise()
    return time.perf_counter() - started


def _synchronise() -> None:
    """GPUs compute on their own: wait for them, or only the asking is timed."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
