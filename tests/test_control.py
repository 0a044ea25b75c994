"""Controllers at work in simulators: every pair once, judged as elsewhere, whoever runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from goalward.core.arrays import Array
from goalward.data.episodes import open_episodes
from goalward.engines.local import actors
from goalward.evaluation.pairs import Pair, attempts, draw_pair_index
from goalward.evaluation.rollout import Episode, run_attempts
from goalward.evaluation.simulators import SimulatorPool, begin, run_episode, simulator_pool
from goalward.tasks import get_task
from goalward.tasks.task import RenderConfig

SCENE = RenderConfig(image_size=32)
BUDGET = 30


class GoalChaser:
    """Acts on nothing but its frames: towards the brighter side, weighed with the goal's."""

    def __init__(self) -> None:
        self.resets: list[int] = []
        self._goals: Array = np.zeros((0, 2))

    def reset(
        self, goals: Array, budget: npt.ArrayLike, *, environments: npt.ArrayLike | None = None
    ) -> None:
        self.resets.append(len(goals))
        if environments is None:
            self._goals = self._where(goals)
        else:
            self._goals[np.asarray(environments)] = self._where(goals)

    def act(
        self,
        frames: Array,
        steps_left: npt.ArrayLike | None = None,
        *,
        environments: npt.ArrayLike | None = None,
    ) -> Array:
        goals = self._goals if environments is None else self._goals[np.asarray(environments)]
        return np.clip(goals - self._where(frames), -1, 1).astype(np.float32)

    def _where(self, frames: Array) -> Array:
        """The place of the red agent, in pixels."""
        red = np.maximum(frames[..., 0].astype(float) - frames[..., 1], 0) + 1e-9
        side = np.arange(frames.shape[1])
        total = red.sum(axis=(1, 2))
        x, y = (red.sum(axis=1) @ side) / total, (red.sum(axis=2) @ side) / total
        return np.stack([x, y], axis=1)


@pytest.fixture(name="work", scope="module")
def work_fixture(dataset: Callable[[str], Path]) -> list[Pair]:
    task = get_task("two-room")
    with open_episodes(dataset("two-room")) as episodes:
        pairs = draw_pair_index(episodes, task, task.protocols["paper"], 7, seed=0)
        work = attempts(episodes, task, pairs)
    with_frames = []
    simulator = task.simulator(SCENE)
    for attempt in work:  # frames of the scene's own size
        simulator.restore(attempt.goal)
        with_frames.append(replace(attempt, goal_frame=simulator.render()))
    return with_frames


@pytest.fixture(name="pool", scope="module")
def pool_fixture() -> Iterator[SimulatorPool]:
    with simulator_pool("two-room", "paper", SCENE, number=3, workers=2) as pool:
        yield pool


def run(work: list[Pair], pool: SimulatorPool) -> tuple[list[Episode], GoalChaser]:
    controller = GoalChaser()
    seen: list[int] = []
    found = run_attempts(
        controller,
        pool,
        work,
        budget=BUDGET,
        on_episode=lambda e: seen.append(e.pair),
        keep_frames=True,
    )
    assert sorted(seen) == [attempt.pair for attempt in work]
    return found, controller


def alone(attempt: Pair) -> tuple[int | None, list[Array]]:
    """The same attempt in this process, with one simulator."""
    task = get_task("two-room")
    protocol, simulator = task.protocols["paper"], task.simulator(SCENE)
    begin(simulator, protocol, attempt.start, attempt.goal)
    controller = GoalChaser()
    controller.reset(attempt.goal_frame[None], BUDGET)
    actions: list[Array] = []

    def policy() -> Array:
        actions.append(controller.act(simulator.render()[None])[0])
        return actions[-1]

    return run_episode(simulator, protocol, attempt.goal, policy, BUDGET), actions


def test_every_pair_is_run_once_and_as_it_would_be_alone(
    work: list[Pair], pool: SimulatorPool
) -> None:
    found, controller = run(work, pool)
    assert [episode.pair for episode in found] == [attempt.pair for attempt in work]
    assert sum(controller.resets) == len(work)
    assert any(e.success for e in found)
    for episode, attempt in zip(found, work, strict=True):
        steps, actions = alone(attempt)
        assert episode.success == (steps is not None)
        assert episode.steps == (BUDGET if steps is None else steps)
        np.testing.assert_allclose(episode.actions, actions, atol=1e-6)
        assert len(episode.frames) == len(episode.rows) == episode.steps + 1
        np.testing.assert_array_equal(episode.rows[0]["state"], attempt.start["state"])


def test_the_result_does_not_depend_on_the_number_of_workers(
    work: list[Pair], pool: SimulatorPool
) -> None:
    with simulator_pool("two-room", "paper", SCENE, number=3, workers=1) as single:
        one, _ = run(work[:4], single)
    two, _ = run(work[:4], pool)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a.frames, b.frames)
        np.testing.assert_array_equal(a.actions, b.actions)


def test_more_environments_than_pairs_stay_idle(work: list[Pair], pool: SimulatorPool) -> None:
    found, controller = run(work[:1], pool)
    assert len(found) == 1 and controller.resets == [1]


def test_numbers_below_one_are_refused() -> None:
    for number, workers in ((0, 1), (1, 0)):
        with (
            pytest.raises(ValueError, match="at least 1"),
            simulator_pool("two-room", "paper", SCENE, number=number, workers=workers),
        ):
            pass


class Moody:
    """A worker that refuses, or dies."""

    def __init__(self, setting: str) -> None:
        self._setting = setting

    def __call__(self, request: Any) -> Any:
        if request == "die":
            import os

            os._exit(3)
        if request == "err":
            raise AssertionError("ours")
        if request == "refuse":
            raise ValueError(f"{self._setting} refuses")
        return request * 2


def test_what_a_worker_refuses_is_refused_and_a_dead_worker_is_told_in_one_line() -> None:
    with actors(Moody, "Bartleby", workers=2) as pool:
        assert sorted(pool.ask({0: 1, 1: 21})) == [2, 42]
        with pytest.raises(ValueError, match="Bartleby refuses"):
            pool.ask({0: "refuse", 1: 5})
        with pytest.raises(RuntimeError, match="AssertionError: ours"):
            pool.ask({0: "err"})
        assert pool.ask({1: 4}) == [8]  # it goes on
        with pytest.raises(ValueError, match="a worker process was killed"):
            pool.ask({0: "die"})
