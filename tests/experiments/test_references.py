"""References: baselines, recordings that replay, and GC-IDM on the true state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from evaluation_helpers import row
from goalward.data.episodes import open_episodes
from goalward.data.hdf5 import write_episodes
from goalward.evaluation.results import summarise_method
from goalward.evaluation.statistics import Rate
from goalward.experiments.experiment import preset_run
from goalward.experiments.references import (
    CHECKED,
    baseline_name,
    baselines,
    check_exactness,
    state_features,
    state_latents,
    true_state,
)
from goalward.experiments.runner import Runner
from goalward.tasks import get_task


def test_true_states_are_the_probe_targets_with_angles_as_sine_and_cosine() -> None:
    state = np.array([[1.0, 2.0, 3.0, 4.0, np.pi / 2]])
    features = state_features(get_task("push-t"), {"state": state})
    np.testing.assert_allclose(features, [[1, 2, 3, 4, 1, 0]], atol=1e-6)
    assert features.dtype == np.float32


def test_a_baseline_is_named_with_its_pairs_and_whose_goals_they_are() -> None:
    one = summarise_method([row(method="random")])
    assert baseline_name("oracle", one) == "random, goals of oracle"
    moved = replace(one, subset="moved")
    assert baseline_name("oracle", moved) == "random, moved pairs, goals of oracle"


def test_replayed_demonstrations_reach_their_own_goals(smoke_runs: Path) -> None:
    runner = Runner(preset="smoke", runs=smoke_runs, pairs=2, device="cpu")
    found = list(baselines(runner, "two-room"))
    assert {column for _, values in found for column in values} == {
        f"{protocol}, %" for protocol in get_task("two-room").protocols
    }
    rates = {(row, column): rate for row, values in found for column, rate in values.items()}
    replayed = rates["replay, goals of expert", "paper, %"]
    assert isinstance(replayed, Rate) and replayed.mean == 1 and replayed.count == 2


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

    first = list(true_state(runner, "two-room"))
    assert [row for row, _ in first] == [
        f"GC-IDM on the true state, {mode} horizon" for mode in ("budget", "time-to-go")
    ]
    rates = [values["success, %"] for _, values in first]
    assert all(isinstance(r, Rate) and r.count == 2 and r.mean in (0, 0.5, 1) for r in rates)
    (folder,) = (smoke_runs / "smoke" / "two-room").glob("true-state-*")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert list(true_state(runner, "two-room")) == first
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
