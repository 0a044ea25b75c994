"""Errors, calibration, and the picture of a controller's training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from goalward.control.goals import Examples
from goalward.control.metrics import (
    ActionMetrics,
    ControllerMetrics,
    Coverage,
    TimeToGoMetrics,
    balanced_error,
    save_curves,
    time_to_go_metrics,
)
from goalward.control.networks import TimeToGo, TimeToGoConfig
from goalward.core import figures
from picture_helpers import pixels, titles

State = dict[str, float]
LOSSES = ("network", "time_to_go")


def history(*losses: str, rows: int = 100) -> list[State]:
    """Losses at every row, validation errors at every tenth row of their own."""
    made: list[State] = []
    for k in range(1, rows + 1):
        time = {"step": 50.0 * k, "seconds": 9.0 * k}
        made.append({**time, "lr": 1e-3, **dict.fromkeys(losses, 2.0 / k)})
        if k % 10 == 0:
            made.append({**time, **{f"validation/{name}": 3.0 / k for name in losses}})
    return made


def found(r2: Mapping[str, float], time_to_go: TimeToGoMetrics | None = None) -> ControllerMetrics:
    """Errors with these R², by horizons."""
    errors = [
        ActionMetrics(horizons=name, count=1000, mse=0.1, cosine=0.9, r2=value)
        for name, value in r2.items()
    ]
    return ControllerMetrics(errors=tuple(errors), time_to_go=time_to_go)


TIMES = TimeToGoMetrics(
    loss=2.0,
    median_error=3.0,
    mean_steps=25.0,
    coverage=(
        Coverage(quantile=0.1, expected=0.15, observed=0.17),
        Coverage(quantile=0.9, expected=0.92, observed=0.85),
    ),
)
BUCKETS = {"all": 0.75, "1": 0.95, "2-5": 0.8, "6-10": 0.6}
EVERYTHING = found(BUCKETS, TIMES)


def test_calibration_compares_with_what_the_head_itself_expects() -> None:
    torch.manual_seed(0)
    head = TimeToGo(TimeToGoConfig(hidden_dim=8, num_layers=1), 3, 4)
    torch.nn.init.zeros_(head.head.weight)  # it knows nothing: 4 horizons, equally likely
    steps = torch.arange(4000) % 4 + 1
    examples = Examples(
        z=torch.randn(4000, 3), z_goal=torch.randn(4000, 3), steps=steps, actions=steps[:, None]
    )
    metrics = time_to_go_metrics(head, examples)
    assert metrics.loss == pytest.approx(np.log(4), rel=1e-5)
    assert metrics.calibration_error < 1e-6
    assert [round(c.observed, 2) for c in metrics.coverage] == [0.25, 0.25, 0.5, 0.75, 1.0]
    late = replace(examples, steps=torch.full((4000,), 4))
    assert time_to_go_metrics(head, late).calibration_error == pytest.approx(0.75)


def test_half_the_error_counts_the_same_at_every_distance() -> None:
    def errors(*mse: float) -> list[ActionMetrics]:
        return [ActionMetrics(horizons="", count=1, mse=m, cosine=0, r2=0) for m in (9.0, *mse)]

    assert balanced_error(errors(0.01, 0.5)) == pytest.approx(balanced_error(errors(0.02, 0.25)))
    assert balanced_error(errors(0.005, 0.6)) < balanced_error(errors(0.01, 0.5))
    assert balanced_error(errors()) == pytest.approx(9.0)  # pairs of one distance


def test_the_picture_shows_losses_r2_by_horizon_and_calibration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(figures, "save_figure", lambda figure, path: drawn.append(figure))
    save_curves(Path("unused"), "a run", history(*LOSSES), EVERYTHING)
    (figure,) = drawn
    assert titles(figure) == [
        "action error (MSE)",
        "explained variance of actions (R²)",
        "time-to-go: cross-entropy (nats)",
        "time-to-go: calibration",
    ]
    losses, r2, _, calibration = figure.axes
    assert [len(line.get_xdata()) for line in losses.lines] == [100, 100, 10]
    assert [bar.get_height() for bar in r2.patches] == [0.95, 0.8, 0.6]
    assert list(r2.lines[0].get_ydata()) == [0.75, 0.75]  # of all horizons
    diagonal, points = calibration.lines
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    np.testing.assert_array_equal(points.get_xdata(), [0.15, 0.92])  # expected
    np.testing.assert_array_equal(points.get_ydata(), [0.17, 0.85])  # observed


@pytest.mark.parametrize("rows", [history("network"), [{"step": 1, "validation/network": 0.5}]])
def test_a_single_error_and_no_time_to_go_are_drawn_too(rows: list[State], tmp_path: Path) -> None:
    save_curves(tmp_path / "curves.png", "a run", rows, found({"all": 0.75}))
    assert pixels(tmp_path / "curves.png").std() > 1
