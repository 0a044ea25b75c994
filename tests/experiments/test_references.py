"""References: baselines, recordings that replay, and GC-IDM on the true state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from goalward.data.episodes import open_episodes
from goalward.data.hdf5 import write_episodes
from goalward.evaluation.statistics import success_rate
from goalward.experiments.models import preset_run
from goalward.experiments.references import (
    CHECKED,
    baselines,
    check_exactness,
    state_features,
    state_latents,
    true_state,
    true_state_metric,
)
from goalward.experiments.runner import Runner
from goalward.tasks import get_task


def test_true_states_are_the_probe_targets_with_angles_as_sine_and_cosine() -> None:
    state = np.array([[1.0, 2.0, 3.0, 4.0, np.pi / 2]])
    features = state_features(get_task("push-t"), {"state": state})
    np.testing.assert_allclose(features, [[1, 2, 3, 4, 1, 0]], atol=1e-6)
    assert features.dtype == np.float32


def test_success_on_true_states_is_a_mean_over_seeds_of_every_pair() -> None:
    found = true_state_metric(
        "push-t", "budget", [[True, False, True, False], [True, False, False, False]], range(4)
    )
    rate = success_rate(1.5, 4)
    assert (found.row, found.column) == (
        *("GC-IDM on the true state, budget horizon", "success, %"),
    )
    assert found.value == 37.5 and found.count == 4
    assert (found.low, found.high) == pytest.approx((100 * rate.low, 100 * rate.high))
    wins = [[k < 10 for k in range(20)]]
    apart, together = (
        true_state_metric("push-t", "budget", wins, episodes)
        for episodes in (range(20), [k // 10 for k in range(20)])
    )
    assert together.low is not None and apart.low is not None
    assert together.low < apart.low  # pairs of one episode agree: they count for less


def test_replayed_demonstrations_reach_their_own_goals(smoke_runs: Path) -> None:
    runner = Runner(preset="smoke", runs=smoke_runs, pairs=2, device="cpu")
    found = list(baselines(runner, "two-room", smoke_runs))
    assert {metric.column for metric in found} == {
        f"{protocol}, %" for protocol in get_task("two-room").protocols
    }
    values = {(metric.row, metric.column): metric.value for metric in found}
    assert values["replay, goals of expert", "paper, %"] == 100
    assert {metric.count for metric in found} == {2}


def test_recordings_restore_and_replay_exactly(dataset: Callable[[str], Path]) -> None:
    assert check_exactness(("two-room", dataset("two-room"))) == (0, 0.0)


def test_frames_and_actions_that_were_not_recorded_so_are_found(
    dataset: Callable[[str], Path], tmp_path: Path
) -> None:
    names = ["pixels", "action", *get_task("two-room").state_columns]
    with open_episodes(dataset("two-room")) as episodes:
        recorded = [episodes.episode(number, names) for number in range(episodes.num_episodes)]
    turned = [{**one, "pixels": 255 - one["pixels"], "action": -one["action"]} for one in recorded]
    write_episodes(tmp_path / "turned.h5", turned, attributes={"task": "two-room"}).close()
    different, error = check_exactness(("two-room", tmp_path / "turned.h5"))
    assert different == CHECKED and error > 1  # pixel


def test_a_true_state_policy_is_trained_once_and_acts_on_states(smoke_runs: Path) -> None:
    runner = Runner(preset="smoke", runs=smoke_runs, pairs=2, device="cpu")
    latents = state_latents(runner.pipeline(preset_run("two-room")))
    assert latents.z.shape == (len(latents.actions), 2) and len(latents.metadata.mean) == 2
    train = latents.of_episodes(latents.split.train)
    np.testing.assert_allclose(latents.metadata.mean, train.mean(axis=0), rtol=1e-5)

    first = list(true_state(runner, "two-room", smoke_runs))
    assert [metric.row for metric in first] == [
        f"GC-IDM on the true state, {mode} horizon" for mode in ("budget", "time-to-go")
    ]
    assert all(metric.count == 2 and metric.value in (0, 50, 100) for metric in first)
    (folder,) = (smoke_runs / "smoke" / "two-room").glob("true-state-*")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert list(true_state(runner, "two-room", smoke_runs)) == first
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
