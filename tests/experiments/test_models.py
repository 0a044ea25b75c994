"""Analyses of trained models, on numbers whose answer is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from evaluation_helpers import row
from goalward.control.networks import HorizonConfig
from goalward.data.episodes import open_episodes
from goalward.experiments import models
from goalward.experiments.experiment import Metric
from goalward.experiments.models import (
    horizon_metrics,
    pixel_baseline,
    probe_metrics,
    undisturbed_seconds,
)
from goalward.tasks.task import ProbeTarget
from goalward.world.metrics import (
    PredictionError,
    ProbeData,
    Probes,
    ProbeScore,
    WorldMetrics,
    linear_probe,
    probe_targets,
)

Targets = tuple[ProbeTarget, ...]
Scores = tuple[ProbeScore, ...]


def values(metrics: list[Metric]) -> dict[tuple[str, str], float | None]:
    return {(metric.row, metric.column): metric.value for metric in metrics}


def score(target: str, rmse: float) -> ProbeScore:
    return ProbeScore(target=target, unit="px", rmse=rmse, median=rmse / 4, r2=0.5)


def test_the_undisturbed_time_of_a_training_leaves_out_pauses() -> None:
    paces = [1.0, 1.0, 1.0, 9.0, 2.0]  # seconds a step, of 20 steps each
    clock = 20 * np.cumsum(paces)
    history = [{"step": 20 * (k + 1), "seconds": s, "loss": 0.0} for k, s in enumerate(clock)]
    history.insert(2, {"step": 40, "seconds": 41.0, "held_out_loss": 0.0})
    assert undisturbed_seconds(history) == pytest.approx(100.0)


def test_a_probe_is_beside_the_one_on_pixels_and_a_prediction_beside_copying() -> None:
    errors = [PredictionError(steps=steps, model=0.1, copy_last=0.4, windows=9) for steps in (1, 5)]
    quality = WorldMetrics(
        prediction=tuple(errors),
        probes=Probes(linear=(score("agent", 9.0),), mlp=(score("agent", 2.0),)),
    )
    found = values(list(probe_metrics("two-room", quality, [score("agent", 8.0)])))
    assert found == {
        ("agent, px", "RMSE"): 2.0,
        ("agent, px", "median error"): 0.5,
        ("agent, px", "R²"): 0.5,
        ("agent, px", "RMSE from pixels"): 8.0,
        ("prediction over 1 model step", "error"): 0.1,
        ("prediction over 1 model step", "of copying"): 0.4,
        ("prediction over 1 model step", "ratio"): pytest.approx(0.25),
        ("prediction over 5 model steps", "error"): 0.1,
        ("prediction over 5 model steps", "of copying"): 0.4,
        ("prediction over 5 model steps", "ratio"): pytest.approx(0.25),
    }


def test_a_horizon_input_has_a_rate_for_every_subset() -> None:
    rows = [row(pair=k, success=k < 3, steps=10 * (k + 1)) for k in range(4)]
    subsets = {"all": {0, 1, 2, 3}, "moved": {2, 3}}
    metrics = list(horizon_metrics("cube", HorizonConfig(mode="budget"), rows, subsets))
    assert values(metrics) == {
        ("horizon budget", "success, %"): 75.0,
        ("horizon budget", "success of moved, %"): 50.0,
        ("horizon budget", "steps"): 25.0,
    }
    assert [metric.count for metric in metrics] == [4, 2, None]
    assert metrics[0].low is not None and 0 < metrics[0].low < 75 < (metrics[0].high or 0)


def test_principal_components_of_frames_show_where_a_dot_is(
    dataset: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def probe(targets: Targets, fit: ProbeData, held_out: ProbeData, _: object) -> Scores:
        return linear_probe(targets, fit, held_out)  # the network takes a minute

    monkeypatch.setattr(models, "mlp_probe", probe)
    with open_episodes(dataset("two-room")) as episodes:
        targets = probe_targets(episodes, "two-room")
        wide, narrow, again = (pixel_baseline(episodes, targets, size) for size in (32, 1, 32))
    assert [found.target for found in wide] == [target.name for target in targets]
    assert wide == again  # no draw is left to chance
    assert wide[0].rmse < narrow[0].rmse and wide[0].r2 > 0.5
