"""THE timer: how long a controller takes for a decision, the same way for every method.

Times include everything from uint8 frames to actions: preprocessing, encoding and planning.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from goalward.control.controller import Controller
from goalward.core.arrays import Array
from goalward.core.machine import peak_since_restart_mb, restart_peak

WARM_UP = 3  # decisions


@dataclass(frozen=True, kw_only=True, slots=True)
class Latency:
    """Times of one controller with so many environments at once, in milliseconds.

    A planner decides once for many steps: most of its decisions only hand out what was planned.
    The mean spreads the planning over all of them; `plan` is the median of those that planned.
    """

    environments: int
    decisions: int  # timed, for each environment
    mean: float  # per decision of one environment
    p50: float
    p99: float
    plan: float  # for a method that plans nothing ahead, every decision is one
    memory_mb: float | None  # peak of the whole process meanwhile; None where it is not told

    def episode(self, steps: float, plans: float | None) -> float:
        """Milliseconds for so many decisions; a plan that was begun is paid in full.

        Args:
            steps: Decisions.
            plans: How many of them planned; None for a method that plans nothing ahead.
        """
        if plans is None:
            return self.mean * steps
        return self.plan * plans + self.p50 * (steps - plans)


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedUp:
    """How many times less time a method takes than another."""

    decision: float  # planning spread over the actions that it commits to
    plan: float  # one planning call

    @classmethod
    def of(cls, ours: Latency, theirs: Latency) -> SpeedUp:
        """Of one method over another."""
        return cls(decision=theirs.mean / ours.mean, plan=theirs.plan / ours.plan)


def measure_latency(
    make: Callable[[], Controller],
    frames: Array,
    *,
    decisions: int,
    budget: int,
    warm_up: int = WARM_UP,
) -> Latency:
    """Time a new controller's decisions on the same frames again and again.

    Args:
        make: Gives a controller.
        frames: uint8 (B, side, side, 3); they serve as goals, in another order, as well.
        decisions: How many to time; a multiple of a planner's committed actions is fair.
        budget: Steps that the controller is told.
        warm_up: Decisions before those, not timed.
    """
    controller = make()
    controller.reset(np.roll(frames, 1, axis=0), budget)
    for _ in range(warm_up):
        controller.act(frames, budget)
    controller.reset(np.roll(frames, 1, axis=0), budget)
    told = restart_peak()
    seconds, planned = [], []
    for _ in range(decisions):
        before = _plans(controller)
        seconds.append(_seconds(lambda: controller.act(frames, budget)))
        planned.append(before is None or _plans(controller) != before)
    shared = 1000 * np.array(seconds) / len(frames)
    return Latency(
        environments=len(frames),
        decisions=decisions,
        mean=float(shared.mean()),
        p50=float(np.percentile(shared, 50)),
        p99=float(np.percentile(shared, 99)),
        plan=float(np.median(shared[planned])),
        memory_mb=peak_since_restart_mb() if told else None,
    )


def _plans(controller: Controller) -> object | None:
    """Plans made so far, of a controller that commits to several actions at once; else None."""
    return getattr(controller, "plans", None)


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
