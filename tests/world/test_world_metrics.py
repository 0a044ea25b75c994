"""Probes recover what latents hold, and report errors in the right units."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from world_helpers import write_dots

from episode_helpers import LENGTHS
from goalward.core.arrays import Array
from goalward.data.episodes import open_episodes
from goalward.tasks import TASKS, get_task
from goalward.tasks.task import ProbeTarget
from goalward.world.metrics import (
    ProbeData,
    ProbeScore,
    linear_probe,
    mlp_probe,
    probe_outputs,
    probe_rows,
    probe_targets,
)

PLACE = ProbeTarget(name="place", column="state", index=(0, 2), unit="px")
ANGLE = ProbeTarget(
    name="angle", column="state", index=(1,), unit="deg", scale=180 / np.pi, angle=True
)


@pytest.fixture(autouse=True)
def small_mlp(monkeypatch: pytest.MonkeyPatch) -> None:
    """An MLP probe that is trained in a moment."""
    for name, value in (("HIDDEN", 64), ("STEPS", 300), ("BATCH", 128)):
        monkeypatch.setattr(f"goalward.world.metrics.MLP_{name}", value)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sample(
    seed: int, state_of: Callable[[Array], Array], rows: int = 2000, shift: float = 0.0
) -> ProbeData:
    latents = np.random.default_rng(seed).normal(shift, 1.0, size=(rows, 8))
    return ProbeData(latents.astype(np.float32), {"state": state_of(latents.astype(np.float32))})


def constant(value: float, rows: int = 10) -> ProbeData:
    latents = np.random.default_rng(0).normal(size=(rows, 4))
    return ProbeData(latents, {"state": np.full((rows, 3), value)})


def linear_state(latents: Array) -> Array:
    weights = np.random.default_rng(9).normal(size=(8, 3))
    return 100 * latents.astype(np.float64) @ weights + 250


def curved_state(latents: Array) -> Array:
    x, y = latents[:, 0], latents[:, 1]
    return np.stack([np.abs(x), np.zeros_like(x), x * y], axis=1)


def test_the_linear_probe_recovers_a_linear_map_even_on_shifted_data() -> None:
    far = sample(2, linear_state, shift=3.0)
    (score,) = linear_probe([PLACE], sample(1, linear_state), far)
    assert score.target == "place" and score.unit == "px"
    assert score.rmse < 1e-2  # of a spread of some 250
    assert score.median <= score.rmse
    assert score.r2 == pytest.approx(1.0, abs=1e-6)


def test_a_curved_map_is_read_by_the_mlp_alone() -> None:
    train, held_out = sample(1, curved_state), sample(2, curved_state)
    (linear,) = linear_probe([PLACE], train, held_out)
    (mlp,) = mlp_probe([PLACE], train, held_out, seeded())
    assert linear.r2 < 0.05
    assert mlp.r2 > 0.9
    assert mlp.rmse < linear.rmse / 3


def test_the_mlp_reads_several_measures_of_unlike_scales_at_once() -> None:
    def state(latents: Array) -> Array:
        turn = np.arctan2(latents[:, 1], latents[:, 0])
        return np.stack([1e-3 * latents[:, 2], turn, 1e3 * latents[:, 3]], axis=1)

    measures = [
        ProbeTarget(name="near", column="state", index=(0,), unit="cm"),
        ANGLE,
        ProbeTarget(name="far", column="state", index=(2,), unit="cm"),
    ]
    scores = mlp_probe(measures, sample(1, state), sample(2, state), seeded())
    assert [score.target for score in scores] == ["near", "angle", "far"]
    assert all(score.r2 > 0.85 for score in scores)


def test_an_angle_that_crosses_the_seam_is_read_as_well_as_any_other() -> None:
    angle = np.random.default_rng(0).uniform(np.pi - 0.5, np.pi + 0.5, size=2000)
    latents = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    wrapped = (angle + np.pi) % (2 * np.pi) - np.pi
    data = ProbeData(latents, {"state": np.stack([angle, wrapped, angle], axis=1)})
    (score,) = linear_probe([ANGLE], data, data)
    assert score.rmse < 0.01
    assert score.r2 == pytest.approx(1.0)


def test_targets_stand_side_by_side_in_their_units_with_angles_as_cosine_and_sine() -> None:
    metres = ProbeTarget(name="cm", column="pos", index=(2,), unit="cm", scale=100.0)
    columns = {"state": np.array([[1.0, np.pi / 2, 3.0]]), "pos": np.array([[0.1, 0.2, 0.3]])}
    found = probe_outputs([PLACE, ANGLE, metres], columns)
    np.testing.assert_allclose(found, [[1.0, 3.0, 0.0, 1.0, 30.0]], atol=1e-12)


def test_scores_of_a_probe_that_always_says_zero_are_known() -> None:
    state = np.array([[3.0, 0.1, 4.0], [-3.0, -0.1, -4.0]])
    held_out = ProbeData(np.ones((2, 4)), {"state": state})
    place, angle = linear_probe([PLACE, ANGLE], constant(0.0), held_out)
    assert place.rmse == pytest.approx(np.sqrt(12.5))
    assert place.median == pytest.approx(3.5)
    assert place.r2 == pytest.approx(0.0)  # no better than the mean
    assert angle.rmse == angle.median == pytest.approx(np.rad2deg(0.1))


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6])
def test_a_target_that_never_changes_has_an_r2_of_zero(value: float) -> None:
    linear = linear_probe([PLACE, ANGLE], constant(value), constant(value))
    mlp = mlp_probe([PLACE, ANGLE], constant(value), constant(value), seeded())
    for score in (*linear, *mlp):
        assert score.r2 == 0.0
        assert np.isfinite([score.rmse, score.median]).all()


def test_collapsed_latents_tell_nothing_and_break_nothing() -> None:
    state = np.random.default_rng(0).normal(size=(500, 3))
    data = ProbeData(np.full((500, 8), 0.1, dtype=np.float32), {"state": state})
    (score,) = linear_probe([PLACE], data, data)
    assert score.rmse == pytest.approx(state[:, [0, 2]].std(), rel=0.01)
    assert score.r2 == pytest.approx(0.0, abs=1e-9)


def test_the_seed_decides_the_mlp_and_the_global_generator_nothing() -> None:
    train, held_out = sample(1, curved_state, rows=300), sample(2, curved_state, rows=300)

    def probe(seed: int) -> tuple[ProbeScore, ...]:
        return mlp_probe([PLACE], train, held_out, seeded(seed))

    before = torch.get_rng_state()
    assert probe(1) == probe(1)
    assert probe(1) != probe(2)
    assert torch.equal(torch.get_rng_state(), before)


def test_rows_are_drawn_once_each_from_the_chosen_episodes_and_sorted(merged: Path) -> None:
    with open_episodes(merged) as episodes:
        rows = probe_rows(episodes, np.array([3, 1]), 10, np.random.default_rng(0))
        again = probe_rows(episodes, np.array([3, 1]), 10, np.random.default_rng(0))
        other = probe_rows(episodes, np.array([3, 1]), 10, np.random.default_rng(1))
        every = probe_rows(episodes, np.array([3, 1, 1]), 1000, np.random.default_rng(0))
    starts = np.cumsum(LENGTHS) - LENGTHS
    allowed = [*range(starts[1], starts[2]), *range(starts[3], sum(LENGTHS))]
    assert len(set(rows)) == 10 and set(rows) <= set(allowed)
    assert rows.tolist() == sorted(rows) == again.tolist() != other.tolist()
    assert every.tolist() == allowed


def test_a_target_that_the_file_cannot_answer_is_left_out(dots: Path, tmp_path: Path) -> None:
    path = write_dots(tmp_path / "states", states=True)
    with open_episodes(path) as episodes, open_episodes(dots) as stateless:
        assert [target.name for target in probe_targets(episodes, "two-room")] == ["agent"]
        assert not probe_targets(stateless, "two-room") and not probe_targets(episodes, "own")
    with h5py.File(path, "r+") as file:
        file["state"][3] = np.nan
        del file.attrs["checksums"]  # as in a file of others
    with open_episodes(path) as episodes:
        assert not probe_targets(episodes, "two-room")


@pytest.mark.parametrize("name", list(TASKS.names()))
def test_every_measure_of_a_task_lies_within_its_declared_state(name: str) -> None:
    task = get_task(name)
    names = [measure.name for measure in task.probe_targets]
    assert len(names) == len(set(names)) > 0
    for measure in task.probe_targets:
        assert set(measure.index) <= set(range(task.state_columns[measure.column]))
        assert len(set(measure.index)) == len(measure.index) > 0
        assert measure.angle == (measure.unit in ("deg", "rad"))
