"""The evaluation: frozen pairs, rows that survive, figures with known answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from goalward.control.controller import RandomController, ZeroController, goal_number
from goalward.core.arrays import Array
from goalward.core.machine import Provenance
from goalward.data.episodes import open_episodes
from goalward.data.splits import split_episodes
from goalward.evaluation.cells import ControllerSpec, EvaluationConfig, Observer, run_cell
from goalward.evaluation.latency import Latency, SpeedUp, measure_latency
from goalward.evaluation.pairs import Pairs, PairsConfig, draw_pairs, load_pairs, save_pairs
from goalward.evaluation.results import EpisodeResult, ResultsFile, pair_subsets, summarise_method
from goalward.evaluation.rollout import action_jerk, approach_rate, final_errors, is_monotonic
from goalward.evaluation.run import Evaluation
from goalward.evaluation.simulators import SimulatorPool, simulator_pool
from goalward.tasks import get_task
from goalward.world.frozen import FrameEncoder
from goalward.world.lewm import LeWM
from world_helpers import tiny_model

CONFIG = PairsConfig(task="two-room", count=5, offset=10, episodes="all")


@pytest.fixture(name="pairs", scope="module")
def pairs_fixture(dataset: Callable[[str], Path]) -> Pairs:
    return draw_pairs(dataset("two-room"), CONFIG)


@pytest.fixture(name="pool", scope="module")
def pool_fixture(pairs: Pairs) -> Iterator[SimulatorPool]:
    with simulator_pool("two-room", "paper", pairs.metadata.scene, number=2, workers=1) as pool:
        yield pool


def row(**changes: object) -> EpisodeResult:
    plain = EpisodeResult(
        task="two-room",
        protocol="paper",
        method="m",
        run_id="c",
        pairs="p",
        seed=0,
        pair=0,
        episode=0,
        budget=50,
        success=True,
        steps=10,
        jerk=0.5,
        monotonic=True,
        approach_rate=1.0,
        latent_distance=1.0,
        errors={"agent": 2.0},
        plans=None,
        predictor_calls=0,
        batched_latency_ms=1.0,
    )
    own = {"episode": changes.get("pair", 0)}
    return replace(plain, **own | changes)  # type: ignore[arg-type]


def test_pairs_are_drawn_once_and_read_back_the_same(pairs: Pairs, tmp_path: Path) -> None:
    save_pairs(tmp_path / "pairs.npz", pairs)
    again = load_pairs(tmp_path / "pairs.npz")
    assert again.id == pairs.id and again.metadata == pairs.metadata
    for ours, theirs in zip(pairs.attempts, again.attempts, strict=True):
        assert (ours.pair, ours.episode) == (theirs.pair, theirs.episode)
        np.testing.assert_array_equal(ours.goal_frame, theirs.goal_frame)
        np.testing.assert_array_equal(ours.recorded, theirs.recorded)
        for name in ours.start:
            np.testing.assert_array_equal(ours.start[name], theirs.start[name])


def test_the_pairs_id_changes_with_any_bit(pairs: Pairs) -> None:
    first, *rest = pairs.attempts
    frame = first.goal_frame.copy()
    frame[0, 0, 0] ^= 1
    changed = replace(pairs, attempts=(replace(first, goal_frame=frame), *rest))
    assert changed.id != pairs.id
    metadata = replace(pairs.metadata, config=replace(CONFIG, seed=1))
    assert replace(pairs, metadata=metadata).id != pairs.id


def test_pairs_come_from_test_episodes_unless_asked_otherwise(
    dataset: Callable[[str], Path],
) -> None:
    from goalward.evaluation.pairs import draw_pair_index

    task = get_task("two-room")
    with open_episodes(dataset("two-room")) as episodes:
        split = split_episodes(episodes.num_episodes)
        assert len(split.validation) == 1 and len(split.test) == 0  # 8 episodes
        drawn = draw_pair_index(
            episodes, task, task.protocols["paper"], 5, seed=0, among=split.validation
        )
        owner = np.searchsorted(episodes.offsets, drawn.start_rows, side="right") - 1
    assert set(owner) == set(split.validation)
    with pytest.raises(ValueError, match="asked for 5 pairs, but 0"):
        draw_pairs(dataset("two-room"), replace(CONFIG, episodes="test"))


def test_a_bit_that_flips_anywhere_is_refused_or_changes_the_id(
    pairs: Pairs, tmp_path: Path
) -> None:
    path = tmp_path / "pairs.npz"
    save_pairs(path, pairs)
    content = path.read_bytes()
    for at in np.linspace(0, len(content) - 1, 300).astype(int):
        path.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        try:
            found = load_pairs(path)
        except ValueError:
            continue
        assert found.id == pairs.id  # in the archive's own padding, where nothing is stored


def test_files_that_are_no_pairs_are_refused(pairs: Pairs, tmp_path: Path) -> None:
    save_pairs(tmp_path / "pairs.npz", pairs)
    content = (tmp_path / "pairs.npz").read_bytes()
    for name, bad in (("cut", content[:-50]), ("text", b"hello"), ("empty", b"")):
        (tmp_path / name).write_bytes(bad)
        with pytest.raises(ValueError, match=r"damaged|not a file of pairs"):
            load_pairs(tmp_path / name)
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(ValueError, match="not a file of pairs"):
        load_pairs(tmp_path / "other.npz")
    objects = np.array([{"a": 1}], dtype=object)
    np.savez(tmp_path / "pickled.npz", metadata=objects)
    with pytest.raises(ValueError, match="damaged"):
        load_pairs(tmp_path / "pickled.npz")


def test_rows_survive_a_kill_in_the_middle_of_a_line(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "results" / "x.jsonl")
    assert file.read() == []
    file.append([row(pair=0), row(pair=1)])
    with file.path.open("a") as stream:
        stream.write('{"task": "two-ro')
    assert [r.pair for r in file.read()] == [0, 1]
    file.append([row(pair=2, jerk=None)])
    assert file.read() == [row(pair=0), row(pair=1), row(pair=2, jerk=None)]
    assert file.path.read_text().count("\n") == 3


def test_rows_keep_what_they_were_measured_with(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "results" / "x.jsonl")
    assert file.origins() == ()
    first, second = (
        Provenance(machine="m", git_revision=revision, versions={"torch": "2"}) for revision in "ab"
    )
    for origin in (first, second, first):
        file.note(origin)
        file.append([row(pair=0)])
    assert file.origins() == (first, second) and file.read() == [row(pair=0)]


def test_a_file_that_holds_no_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    for text in ("hello\n", "[1]\n", '{"task": "two-room"}\n'):
        path.write_text(text)
        with pytest.raises(ValueError, match="line 1 is no row"):
            ResultsFile(path).read()
    line = json.dumps({**asdict(row()), "success": "yes"})
    for content in ((line + "\n").encode(), b"\xff\xfe\n"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"x\.jsonl.*line 1 is no row"):
            ResultsFile(path).read()


def test_a_pair_that_two_processes_ran_counts_once(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "x.jsonl")
    file.append([row(pair=0, steps=3)])
    file.append([row(pair=0, steps=4), row(pair=1)])
    assert file.read() == [row(pair=0, steps=3), row(pair=1)]


def test_jerk_is_the_mean_norm_of_the_second_difference() -> None:
    assert action_jerk(np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])) == 0
    assert action_jerk(np.array([[0.0], [1.0], [0.0], [1.0]])) == 2
    assert action_jerk(np.zeros((2, 2))) is None


def test_closing_is_the_share_of_steps_that_come_closer() -> None:
    assert approach_rate(np.array([3.0, 2.0, 2.5, 2.5, 1.0])) == 0.5
    assert approach_rate(np.array([3.0, 2.0])) == 1


def test_monotone_means_closer_at_every_step() -> None:
    assert is_monotonic(np.array([3.0, 2.0, 1.0]))
    assert not is_monotonic(np.array([3.0, 2.0, 2.0]))


def test_final_errors_are_in_the_measures_units_and_angles_come_round() -> None:
    measures = get_task("push-t").probe_targets
    goal = {"state": np.array([100.0, 100, 200, 200, np.pi - 0.01, 0, 0])}
    here = {"state": np.array([103.0, 104, 200, 200, -np.pi + 0.01, 0, 0])}
    found = final_errors(measures, here, goal)
    assert found["agent"] == pytest.approx(5)
    assert found["block"] == 0
    assert found["angle"] == pytest.approx(np.degrees(0.02))


def test_the_summary_has_known_answers() -> None:
    rows = [
        row(pair=0, seed=0, success=True, steps=10, jerk=0.2, monotonic=True, batched_latency_ms=1),
        row(
            pair=1,
            seed=0,
            success=False,
            steps=30,
            jerk=None,
            monotonic=False,
            batched_latency_ms=2,
        ),
        row(pair=0, seed=1, success=True, steps=20, jerk=0.4, monotonic=True, batched_latency_ms=1),
        row(pair=1, seed=1, success=True, steps=20, jerk=0.6, monotonic=None, batched_latency_ms=1),
    ]
    found = summarise_method(rows)
    # Pair 0 succeeded in both seeds, pair 1 in one of two: 1.5 of 2 pairs.
    assert (found.rate.successes, found.rate.count, found.seeds) == (1.5, 2, 2)
    assert found.rate.mean == 0.75
    assert found.seed_std == pytest.approx(np.std([0.5, 1.0], ddof=1))
    assert found.steps == 20 and found.success_steps == pytest.approx(50 / 3)
    assert found.jerk == pytest.approx(0.4) and found.monotonic == pytest.approx(2 / 3)
    assert found.batched_latency_ms == pytest.approx((10 + 60 + 20 + 20) / 80)
    assert found.difference is None


@dataclass(frozen=True)
class NoConfig:
    pass


def random_method() -> ControllerSpec:
    return ControllerSpec(
        name="random",
        config=NoConfig(),
        model_id=None,
        make=lambda seed: RandomController(2, seed),
    )


def test_a_cell_is_run_once_and_goes_on_where_it_was_killed(
    pairs: Pairs, pool: SimulatorPool, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    observer = Observer(world_id="w", encode=FrameEncoder(LeWM(tiny_model())))
    setting = EvaluationConfig(pairs=pairs, budget=6, environments=2, observer=observer)
    counts: list[tuple[int, int]] = []

    def tell(found: int, episodes: int) -> None:
        counts.append((found, episodes))

    whole = run_cell(setting, random_method(), 0, pool, tmp_path, on_episodes=tell)
    assert counts == [(0, 0), (0, 2), (0, 2), (0, 1)]
    assert [r.pair for r in whole] == [0, 1, 2, 3, 4]
    assert all(r.monotonic is not None and r.steps <= 6 for r in whole)
    file = setting.row_file(tmp_path, random_method(), 0)
    assert len(file.read()) == 5

    again = run_cell(setting, random_method(), 0, pool, tmp_path, on_episodes=tell)
    assert counts[4:] == [(5, 0)] and again == whole

    lines = file.path.read_text().splitlines(keepends=True)
    file.path.write_text("".join(lines[:3]) + lines[3][:20])  # killed within the second group
    resumed = run_cell(setting, random_method(), 0, pool, tmp_path)
    timeless = [replace(r, batched_latency_ms=0.0) for r in resumed]
    assert timeless == [replace(r, batched_latency_ms=0.0) for r in whole]
    stored = [json.loads(line)["pair"] for line in file.path.read_text().splitlines()]
    assert sorted(stored) == [0, 1, 2, 3, 4]


def test_cells_differ_by_seed_budget_method_and_pairs(pairs: Pairs) -> None:
    setting = EvaluationConfig(pairs=pairs, budget=6, environments=2)
    other = replace(random_method(), model_id="x")
    ids = {
        setting.run_id(random_method(), 0),
        setting.run_id(random_method(), 1),
        setting.run_id(other, 0),
        replace(setting, budget=7).run_id(random_method(), 0),
        replace(setting, observer=Observer(world_id="w", encode=None)).run_id(  # type: ignore
            random_method(), 0
        ),
    }
    assert len(ids) == 5
    with pytest.raises(ValueError, match="budget"):
        EvaluationConfig(pairs=pairs, budget=0, environments=2)


def test_random_actions_depend_on_seed_and_goal_not_on_company(pairs: Pairs) -> None:
    goals = np.stack([attempt.goal_frame for attempt in pairs.attempts[:3]])

    def actions(chosen: Array, seed: int) -> Array:
        controller = RandomController(2, seed)
        controller.reset(chosen, 50)
        return np.stack([controller.act(chosen) for _ in range(4)], axis=1)

    together = actions(goals, 0)
    np.testing.assert_array_equal(actions(goals[[2, 0]], 0), together[[2, 0]])
    assert not np.array_equal(actions(goals, 1), together)
    assert np.abs(together).max() <= 1
    assert len({goal_number(goal) for goal in goals}) == 3


def test_subsets_of_pairs_are_the_tasks_own(pairs: Pairs) -> None:
    assert pair_subsets(get_task("two-room"), pairs.attempts)["all"] == {0, 1, 2, 3, 4}


def test_latency_is_told_for_one_environment(pairs: Pairs) -> None:
    frames = np.stack([attempt.goal_frame for attempt in pairs.attempts[:2]])
    found = measure_latency(lambda: ZeroController(2), frames, decisions=20, budget=50)
    assert (found.environments, found.decisions) == (2, 20)
    assert 0 < found.p50 <= found.p99 < 1000
    assert found.plan == found.p50  # it plans nothing ahead: every decision is one
    assert found.memory_mb is None or found.memory_mb > 50  # torch alone takes more


class Planner(ZeroController):
    """Plans every third decision, which takes a second; the others take a millisecond."""

    def __init__(self) -> None:
        super().__init__(2)
        self.plans, self.seconds, self._decisions = [0], 0.0, 0

    def act(self, *arguments: Any, **more: Any) -> Array:
        plans = self._decisions % 3 == 0
        self.plans = [self.plans[0] + plans]
        self.seconds += 1.0 if plans else 0.001
        self._decisions += 1
        return super().act(*arguments, **more)


def test_a_plan_is_timed_alone_and_spread_over_its_actions(
    pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner = Planner()
    monkeypatch.setattr("goalward.evaluation.latency.time.perf_counter", lambda: planner.seconds)
    frames = pairs.attempts[0].goal_frame[None]
    found = measure_latency(lambda: planner, frames, decisions=12, budget=50)
    assert found.plan == pytest.approx(1000) and found.p50 == pytest.approx(1)
    assert found.mean == pytest.approx((1000 + 1 + 1) / 3)


def test_speed_ups_are_told_beside_cem(pairs: Pairs) -> None:
    def latency(mean: float, plan: float) -> Latency:
        return Latency(
            environments=1, decisions=1, mean=mean, p50=0, p99=0, plan=plan, memory_mb=None
        )

    times = {"gc-idm": latency(2.0, 2.0), "cem": latency(200.0, 5_000.0)}
    found = Evaluation(pairs=pairs, rows={}, origins={}, latency=times).speed_ups()
    assert found["gc-idm"] == SpeedUp(decision=100.0, plan=2_500.0)
    assert found["cem"] == SpeedUp(decision=1.0, plan=1.0)
    assert (
        Evaluation(pairs=pairs, rows={}, origins={}, latency={"zero": times["cem"]}).speed_ups()
        == {}
    )


def test_an_episode_pays_for_every_plan_that_was_begun() -> None:
    times = Latency(
        environments=1, decisions=50, mean=4.1, p50=0.1, p99=100.0, plan=100.0, memory_mb=None
    )
    assert times.episode(10, 1) == pytest.approx(100.9)  # not 41: the plan was not cut short
    assert times.episode(10, None) == pytest.approx(41.0)
