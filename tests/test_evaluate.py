"""Pairs, rates and floors."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import h5py
import numpy as np
import pytest

from goalward import cli
from goalward.core.arrays import Array
from goalward.core.machine import usable_cpus
from goalward.core.random import generator
from goalward.data.collect import CollectConfig, collect
from goalward.data.episodes import open_episodes
from goalward.data.splits import split_episodes
from goalward.evaluation.baselines import (
    FloorsConfig,
    floor_policies,
    make_jobs,
    measure_floors,
    num_episodes,
)
from goalward.evaluation.pairs import candidate_pairs, draw_pair_index, state_rows
from goalward.evaluation.statistics import success_rate
from goalward.tasks import get_task

pytest.importorskip("stable_worldmodel")

Dataset = Callable[[str], Path]
TWO_ROOM = get_task("two-room")
PAPER = TWO_ROOM.protocols["paper"]


@pytest.mark.parametrize(
    ("successes", "count", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (50, 100, 0.4038, 0.5962), (1, 1, 0.2065, 1.0)],
)
def test_the_wilson_interval_has_its_known_values(
    successes: int, count: int, low: float, high: float
) -> None:
    rate = success_rate(successes, count)
    assert rate.mean == successes / count
    assert rate.low == pytest.approx(low, abs=1e-4)
    assert rate.high == pytest.approx(high, abs=1e-4)


def test_a_mean_never_lies_outside_its_interval() -> None:
    for count in range(1, 400):
        for successes in (0, count / 3, count):
            rate = success_rate(successes, count, design=1 + count / 7)
            assert 0 <= rate.low <= rate.mean <= rate.high <= 1


@pytest.mark.parametrize(("successes", "count"), [(-1, 5), (6, 5), (0, 0)])
def test_an_impossible_rate_is_refused(successes: int, count: int) -> None:
    with pytest.raises(ValueError, match="need 0 <= successes <= count"):
        success_rate(successes, count)


def test_every_pair_lies_in_one_episode(dataset: Dataset) -> None:
    with open_episodes(dataset("two-room")) as episodes:
        pairs = candidate_pairs(episodes)
        first = np.searchsorted(episodes.offsets, pairs.start_rows, side="right")
        last = np.searchsorted(episodes.offsets, pairs.goal_rows, side="right")
        assert len(pairs) == 8 * (101 - 25)
        assert (first == last).all()
        assert (pairs.goal_rows - pairs.start_rows == 25).all()


def test_pairs_are_spread_over_the_chosen_episodes_and_seeded(dataset: Dataset) -> None:
    with open_episodes(dataset("two-room")) as episodes:
        among = np.array([1, 4, 6])

        def owners(count: int, seed: int) -> list[int]:
            pairs = draw_pair_index(episodes, TWO_ROOM, PAPER, count, seed=seed, among=among)
            assert len(np.unique(pairs.start_rows)) == count
            return (np.searchsorted(episodes.offsets, pairs.start_rows, side="right") - 1).tolist()

        assert sorted(owners(3, 0)) == [1, 4, 6]
        assert np.bincount(owners(30, 1))[among].tolist() == [10, 10, 10]
        once = draw_pair_index(episodes, TWO_ROOM, PAPER, 20, seed=7)
        again = draw_pair_index(episodes, TWO_ROOM, PAPER, 20, seed=7)
        other = draw_pair_index(episodes, TWO_ROOM, PAPER, 20, seed=8)
        assert once.start_rows.tolist() == again.start_rows.tolist()
        assert once.start_rows.tolist() != other.start_rows.tolist()


def test_a_protocol_admits_only_its_own_pairs(dataset: Dataset) -> None:
    task = get_task("cube")
    moderate = task.protocols["moderate"]
    with open_episodes(dataset("cube")) as episodes:
        pairs = draw_pair_index(episodes, task, moderate, 40, seed=0)
        start = state_rows(episodes, task, pairs.start_rows)
        goal = state_rows(episodes, task, pairs.goal_rows)
        assert not moderate.solved(start, goal).any()


def test_more_pairs_than_there_are_is_refused(dataset: Dataset) -> None:
    with (
        open_episodes(dataset("two-room")) as episodes,
        pytest.raises(ValueError, match="asked for 10000 pairs, but 608 of the 608 pairs"),
    ):
        draw_pair_index(episodes, TWO_ROOM, PAPER, 10_000, seed=0)


@pytest.mark.slow
def test_floors_of_push_t_hold_together(dataset: Dataset) -> None:
    task = get_task("push-t")
    config = FloorsConfig(pairs=12, budget=40, held_out=False)
    ticks: list[int] = []
    floors = measure_floors(
        task, dataset("push-t"), config, workers=2, on_progress=lambda done, _: ticks.append(done)
    )
    again = measure_floors(task, dataset("push-t"), config, workers=1)
    assert floors == again  # whoever ran them, in whatever order
    assert len(ticks) == num_episodes(task, config) == 3 * 4 * 12
    rates = {(floor.protocol, floor.policy): floor.rate for floor in floors}
    assert {policy for _, policy in rates} == set(floor_policies(task))
    assert rates["paper", "replay"].mean == 1.0
    assert rates["moderate", "zero"].mean == 0.0  # solved starts are left out
    assert rates["paper", "random"].mean < 0.5


def test_the_floors_command_prints_rates_on_held_out_pairs(
    dataset: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--pairs", "5", "--budget", "25", "--json", "--workers", "2"]
    assert cli.main(["floors", str(dataset("reacher")), *flags]) == 0
    facts = json.loads(capsys.readouterr().out)
    replay = [f for f in facts["floors"] if f["policy"] == "replay" and f["protocol"] == "paper"]
    assert replay[0]["rate"]["successes"] == replay[0]["rate"]["count"] == 5
    assert 0 <= facts["solved_pairs"]["moderate"] < 0.2


@pytest.mark.parametrize("held_out", [True, False])
def test_floors_draw_pairs_from_held_out_episodes_unless_told_otherwise(
    dataset: Dataset, held_out: bool
) -> None:
    config = FloorsConfig(pairs=20) if held_out else FloorsConfig(pairs=20, held_out=False)
    with open_episodes(dataset("two-room")) as episodes:
        held = split_episodes(episodes.num_episodes).held_out
        first = islice(make_jobs(TWO_ROOM, episodes, config), 20)  # one policy's, under `paper`
        starts = {tuple(job.start["state"]) for job in first}
        drawn_from = {
            int(i)
            for i in range(episodes.num_episodes)
            if starts & set(map(tuple, episodes.episode(i, ["state"])["state"]))
        }
    assert drawn_from == set(held.tolist()) if held_out else drawn_from == set(range(8))


@pytest.mark.parametrize(
    ("name", "least"), [("pairs", 1), ("budget", 1), ("offset", 1), ("seed", 0)]
)
def test_floors_that_make_no_sense_are_refused(name: str, least: int) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least {least}, got {least - 1}"):
        replace(FloorsConfig(), **{name: least - 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state": np.full((31, 2), np.nan)}, "row 0 of column 'state' holds NaN or infinity"),
        ({"state": np.zeros((31, 7))}, r"'state' has shape \(7,\), but task two-room needs \(2,\)"),
    ],
)
def test_states_that_cannot_be_are_refused(
    change: dict[str, Array], message: str, tmp_path: Path
) -> None:
    columns = {
        "pixels": np.zeros((31, 16, 16, 3), np.uint8),
        "action": np.full((31, 2), np.nan, np.float32),
        "state": np.zeros((31, 2)),
    }
    with h5py.File(tmp_path / "bad.h5", "w") as file:
        for name, values in {**columns, **change, "ep_len": np.array([31])}.items():
            file[name] = values
    with open_episodes(tmp_path / "bad.h5") as episodes, pytest.raises(ValueError, match=message):
        draw_pair_index(episodes, TWO_ROOM, PAPER, 2, seed=0)


def test_streams_of_different_purposes_are_independent() -> None:
    draws = [generator(p, s, i).integers(2**63) for p in "ab" for s in (0, 1) for i in (0, 1)]
    assert len(set(draws)) == len(draws)
    assert generator("a", 0, 1).integers(2**63) == draws[1]


@pytest.mark.slow
def test_a_line_solves_few_push_t_pairs(dataset: Dataset, tmp_path: Path) -> None:
    task, data = get_task("push-t"), tmp_path / "run"
    collect(CollectConfig.for_task("push-t", episodes=60, seed=11), data, workers=usable_cpus())
    config = FloorsConfig(pairs=200, held_out=False)
    floors = measure_floors(task, data, config, workers=usable_cpus())
    rates = {(floor.protocol, floor.policy): floor.rate.mean for floor in floors}
    assert rates["paper", "line"] <= 0.4
    assert rates["paper", "replay"] >= 0.99
