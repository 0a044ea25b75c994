"""Times of decisions, with a clock of known answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from goalward.control.controller import ControllerStats, ZeroController
from goalward.core.arrays import Array
from goalward.evaluation.latency import measure_latency

FRAMES = np.zeros((2, 16, 16, 3), dtype=np.uint8)


def test_latency_is_reported_for_one_environment() -> None:
    found = measure_latency(ZeroController(2), FRAMES, decisions=20, budget=50)
    assert (found.environments, found.decisions) == (2, 20)
    assert 0 < found.p50 <= found.p99 < 1000
    assert found.plan == found.p50  # it plans nothing ahead: every decision is one
    assert found.memory_mb is None or found.memory_mb > 50  # torch alone takes more


class Planner(ZeroController):
    """Plans every third decision, which takes a second; the others take a millisecond."""

    def __init__(self) -> None:
        super().__init__(2)
        self.plans, self.seconds, self._decisions = 0, 0.0, 0

    @property
    def stats(self) -> ControllerStats:
        return ControllerStats(plans=(self.plans,))

    def act(self, *arguments: Any, **more: Any) -> Array:
        plans = self._decisions % 3 == 0
        self.plans += plans
        self.seconds += 1.0 if plans else 0.001
        self._decisions += 1
        return super().act(*arguments, **more)


def test_a_plan_is_timed_alone_and_spread_over_its_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    planner = Planner()
    monkeypatch.setattr("goalward.evaluation.latency.time.perf_counter", lambda: planner.seconds)
    found = measure_latency(planner, FRAMES[:1], decisions=12, budget=50)
    assert found.plan == pytest.approx(1000) and found.p50 == pytest.approx(1)
    assert found.mean == pytest.approx((1000 + 1 + 1) / 3)
