"""`evaluate`: what is missing is run, and an interruption changes nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from evaluation_helpers import QUICK_CEM, timeless
from goalward.control.controller import RandomController
from goalward.evaluation.controllers import NoConfig
from goalward.evaluation.pairs import Pairs, PairsConfig, draw_pairs
from goalward.evaluation.results import EpisodeResult, ResultsFile
from goalward.evaluation.run import EvaluationConfig, evaluate, prepare_pairs
from goalward.evaluation.simulators import SimulatorPools
from goalward.evaluation.specs import ControllerSpec, resolve_controllers
from goalward.tasks import get_task, register_task
from goalward.tasks.task import Protocol

TWO_ROOM = get_task("two-room")
CONFIG = PairsConfig(task="two-room", count=5, goal_offset=10, split="all")
RANDOM = ControllerSpec(
    name="random", config=NoConfig(), model_id=None, make=lambda seed: RandomController(2, seed)
)


@pytest.fixture(name="pairs", scope="module")
def pairs_fixture(episodes: Path) -> Pairs:
    return draw_pairs(episodes, CONFIG)


@pytest.fixture(name="pools", scope="module")
def pools_fixture() -> Iterator[SimulatorPools]:
    with SimulatorPools(1) as pools:
        yield pools


def stored_rows(folder: Path) -> list[EpisodeResult]:
    return [row for path in folder.glob("results/*.jsonl") for row in ResultsFile(path).read()]


def test_controllers_are_compared_on_the_same_pairs_and_not_run_twice(
    pairs: Pairs, pools: SimulatorPools, controller: Path, tmp_path: Path
) -> None:
    names = ["gc-idm", QUICK_CEM, "random"]
    specs, observer = resolve_controllers(TWO_ROOM, names, device="cpu", model=controller)
    options = {"observer": observer, "budget": 8, "num_envs": 2, "pools": pools}
    found = evaluate(tmp_path, pairs, specs, **options)  # type: ignore[arg-type]
    assert found.controllers == tuple(names) and len(found.rows) == 15
    assert {row.pairs for row in found.rows} == {pairs.id}
    assert all(row.monotonic is not None and row.steps <= 8 for row in found.rows)
    assert {row.predictor_calls for row in found.of(QUICK_CEM)} == {8 * 2 * 5}
    assert {row.plans for row in found.of(QUICK_CEM)} == {1}
    assert {row.plans for row in found.of("gc-idm")} == {None}
    assert found.latency[QUICK_CEM].plan > found.latency[QUICK_CEM].mean
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.jsonl")}

    ticks: list[tuple[int, int, str]] = []
    more, _ = resolve_controllers(TWO_ROOM, ["zero"], device="cpu")
    again = evaluate(
        tmp_path,
        pairs,
        [*specs, *more],
        on_progress=lambda *tick: ticks.append(tick),
        **options,  # type: ignore[arg-type]
    )
    assert again.rows[:15] == found.rows and again.controllers[-1] == "zero"
    assert ticks[:3] == [(5, 0, "gc-idm"), (10, 0, QUICK_CEM), (15, 0, "random")]
    assert ticks[-1] == (20, 5, "zero")
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.jsonl")}
    assert before.items() <= after.items() and len(after) == 4
    assert sorted(map(str, stored_rows(tmp_path))) == sorted(map(str, again.rows))
    assert again.provenance.keys() == {*names, "zero"}


def test_a_resumed_evaluation_gives_the_same_rows(
    pairs: Pairs, pools: SimulatorPools, tmp_path: Path
) -> None:
    def run() -> tuple[EpisodeResult, ...]:
        options = {"budget": 6, "num_envs": 2, "pools": pools, "timed": False}
        return evaluate(tmp_path, pairs, [RANDOM], **options).rows  # type: ignore[arg-type]

    whole = run()
    (path,) = tmp_path.glob("results/*.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3]) + lines[3][:20])  # killed within the second batch
    assert timeless(run()) == timeless(whole)
    assert path.read_text().count("\n") == 5


KILLED = """
import sys
from pathlib import Path
from goalward.evaluation.pairs import PairsConfig
from goalward.evaluation.run import evaluate, prepare_pairs
from goalward.evaluation.specs import resolve_controllers
from goalward.tasks import get_task

out, episodes, controller = map(Path, sys.argv[1:])
wanted = PairsConfig(task="two-room", count=12, goal_offset=10, split="all")
pairs = prepare_pairs(out, wanted, episodes)
specs, observer = resolve_controllers(get_task("two-room"), [controller], device="cpu")
evaluate(out, pairs, specs, observer=observer, budget=8, num_envs=2, timed=False)
"""


def test_a_killed_evaluation_ends_in_the_rows_of_an_uninterrupted_one(
    tmp_path: Path, episodes: Path, controller: Path
) -> None:
    def command(out: str) -> list[str]:
        places = (tmp_path / out, episodes, controller)
        return [sys.executable, "-c", KILLED, *map(str, places)]

    def rows(out: str) -> list[EpisodeResult]:
        return timeless(stored_rows(tmp_path / out))

    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command("broken"), env=one_thread)
    end = time.monotonic() + 120
    while not list((tmp_path / "broken").glob("results/*.jsonl")) and time.monotonic() < end:
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(rows("broken")) < 12
    for out in ("broken", "whole"):
        subprocess.run(command(out), check=True, timeout=200, env=one_thread)
    assert rows("broken") == rows("whole")
    assert [row.pair for row in rows("broken")] == list(range(12))


def test_a_task_that_is_registered_at_run_time_is_evaluated_by_two_workers(
    episodes: Path, tmp_path: Path
) -> None:
    easy = Protocol(summary="easy", solved=lambda row, goal: row["state"][..., 0] > -1)
    own = replace(TWO_ROOM, name="my-rooms", protocols={"easy": easy})
    register_task(own)
    pairs = draw_pairs(episodes, PairsConfig(task="my-rooms", count=4, split="all"))
    specs, _ = resolve_controllers(own, ["random", "replay"], device="cpu")
    found = evaluate(tmp_path, pairs, specs, num_envs=4, workers=2, timed=False)
    assert [(row.task, row.protocol, row.steps) for row in found.rows] == [
        ("my-rooms", "easy", 1)
    ] * 8
    assert len(stored_rows(tmp_path)) == 8


def test_run_ids_differ_by_everything_that_rows_depend_on(pairs: Pairs) -> None:
    config = EvaluationConfig(pairs=pairs, budget=6, num_envs=2)
    ids = {
        config.run_id(RANDOM),
        config.run_id(replace(RANDOM, seed=1)),
        config.run_id(replace(RANDOM, model_id="x")),
        config.run_id(replace(RANDOM, name="other")),
        replace(config, budget=7).run_id(RANDOM),
        replace(config, num_envs=3).run_id(RANDOM),
        replace(config, pairs=replace(pairs, pairs=pairs.pairs[:4])).run_id(RANDOM),
    }
    assert len(ids) == 7


def test_a_folders_pairs_are_not_used_for_other_episodes(
    tmp_path: Path, episodes: Path, dataset: Callable[[str], Path]
) -> None:
    pairs = prepare_pairs(tmp_path, CONFIG, episodes)
    assert prepare_pairs(tmp_path, CONFIG, None).id == pairs.id
    with pytest.raises(ValueError, match=r"holds other pairs; use another --out \(seed: 0 -> 9\)"):
        prepare_pairs(tmp_path, replace(CONFIG, seed=9), episodes)
    with pytest.raises(ValueError, match="pairs of other episodes"):
        prepare_pairs(tmp_path, CONFIG, dataset("push-t"))


def test_without_episodes_the_bundled_pairs_are_used(tmp_path: Path) -> None:
    pairs = prepare_pairs(tmp_path / "e", PairsConfig(task="cube", count=3), None)
    assert len(pairs) == 3
    with pytest.raises(ValueError, match=r"come with goalward are others; .*seed: 0 -> 5"):
        prepare_pairs(tmp_path / "f", PairsConfig(task="cube", count=3, seed=5), None)
    assert not (tmp_path / "f").exists()
