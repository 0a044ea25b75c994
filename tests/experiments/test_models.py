"""Analyses of trained models, on numbers whose answer is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from evaluation_helpers import row
from goalward.control.metrics import ActionMetrics, ControllerMetrics
from goalward.control.networks import HorizonConfig
from goalward.data.episodes import open_episodes
from goalward.evaluation.statistics import success_rate
from goalward.experiments import models
from goalward.experiments.models import (
    HORIZONS,
    error_rows,
    horizon_name,
    length_row,
    pixel_baseline,
    quality_rows,
    success_columns,
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
    errors_of = {"error": 0.1, "of copying": 0.4, "ratio": pytest.approx(0.25)}
    assert dict(quality_rows(quality, [score("agent", 8.0)])) == {
        "agent, px": {"RMSE": 2.0, "median error": 0.5, "R²": 0.5, "RMSE from pixels": 8.0},
        "prediction over 1 model step": errors_of,
        "prediction over 5 model steps": errors_of,
    }


def test_a_length_of_training_is_one_row() -> None:
    values = {"minutes": 5.0, "RMSE of block, px": 2.0, "median error of block, px": 0.5}
    assert length_row(3_200, 5.0, [score("block", 2.0)]) == ("3,200", values)


def test_horizon_inputs_have_different_names() -> None:
    assert horizon_name(HorizonConfig(mode="budget")) == "horizon budget"
    assert horizon_name(HorizonConfig(mode="time-to-go", quantile=0.25)) == (
        "horizon time-to-go, quantile 0.25"
    )
    assert horizon_name(HorizonConfig(mode="fixed", fixed_steps=5)) == "horizon fixed, 5 steps"
    assert len({*map(horizon_name, HORIZONS)}) == len(HORIZONS)


def test_success_has_a_rate_for_every_subset() -> None:
    rows = [row(pair=k, success=k < 3, steps=10 * (k + 1)) for k in range(4)]
    found = success_columns(rows, {"all": {0, 1, 2, 3}, "moved": {2, 3}})
    assert found == {
        "success, %": success_rate(3, 4),
        "success of moved, %": success_rate(1, 2),
        "steps": 25.0,
    }


def test_the_errors_of_actions_are_by_distance_to_the_goal() -> None:
    errors = tuple(
        ActionMetrics(horizons=name, count=9, mse=0.1, cosine=0.9, r2=r2)
        for name, r2 in (("all", 0.75), ("1", 0.9), ("6-10", 0.5))
    )
    quality = ControllerMetrics(errors=errors, time_to_go=None, noise=())
    assert dict(error_rows(quality)) == {
        "all goals": {"R² of the actions": 0.75},
        "goals 1 steps away": {"R² of the actions": 0.9},
        "goals 6-10 steps away": {"R² of the actions": 0.5},
    }


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
