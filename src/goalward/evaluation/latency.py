"""The one timer: how long a controller takes for a decision, measured alike for all of them.

Times include everything from uint8 frames to actions: preprocessing, encoding and planning.
"""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import torch

from goalward.control.controller import Controller, stats_of
from goalward.core.arrays import Array
from goalward.core.config import config
from goalward.core.machine import peak_since_restart_mb, restart_peak

WARM_UP = 3  # decisions


@config
class Latency:
    """Times of one controller with so many environments at once, in milliseconds.

    A planner decides once for many steps: most of its decisions only execute what was planned.
    The mean spreads the planning over all of them; `plan` is the median of those that planned.
    """

    environments: int
    decisions: int  # timed, for each environment
    mean: float  # per decision of one environment
    p50: float
    p99: float
    plan: float  # for a controller that plans nothing ahead, every decision is one
    memory_mb: float | None  # peak of the whole process meanwhile; None where it is unknown


@config
class SpeedUp:
    """How many times less time a controller takes than another."""

    decision: float  # planning spread over the actions that it commits to
    plan: float  # one planning call

    @classmethod
    def of(cls, ours: Latency, theirs: Latency) -> SpeedUp:
        """Of one controller over another."""
        return cls(decision=theirs.mean / ours.mean, plan=theirs.plan / ours.plan)


def measure_latency(
    controller: Controller, frames: Array, *, decisions: int, budget: int, warm_up: int = WARM_UP
) -> Latency:
    """Time a controller's decisions on the same frames again and again.

    Args:
        controller: A new one.
        frames: uint8 (B, side, side, 3); they serve as goals, in another order, as well.
        decisions: How many to time; a multiple of a planner's committed actions is fair.
        budget: Steps until the goal must be reached.
        warm_up: Decisions before those, not timed.
    """
    goals = np.roll(frames, 1, axis=0)
    controller.reset(goals, budget)
    for _ in range(warm_up):
        controller.act(frames, budget)
    controller.reset(goals, budget)
    can_measure_memory = restart_peak()
    seconds, plans = [], [stats_of(controller).plans]
    for _ in range(decisions):
        _synchronise()
        started = time.perf_counter()
        controller.act(frames, budget)
        _synchronise()
        seconds.append(time.perf_counter() - started)
        plans.append(stats_of(controller).plans)
    planned = [after is None or after != before for before, after in pairwise(plans)]
    shared = 1000 * np.array(seconds) / len(frames)
    return Latency(
        environments=len(frames),
        decisions=decisions,
        mean=float(shared.mean()),
        p50=float(np.percentile(shared, 50)),
        p99=float(np.percentile(shared, 99)),
        plan=float(np.median(shared[planned])),
        memory_mb=peak_since_restart_mb() if can_measure_memory else None,
    )


def _synchronise() -> None:
    """GPUs compute on their own: wait for them, or only the call is timed."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
