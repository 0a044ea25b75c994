"""Controllers at work in simulators: every pair once, the same in any company, in any process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from goalward.control.controller import BatchController, Index
from goalward.core.arrays import Array
from goalward.evaluation.pairs import Pair, PairsConfig, draw_pairs
from goalward.evaluation.rollout import (
    Episode,
    action_jerk,
    approach_rate,
    batches,
    final_errors,
    run_batch,
)
from goalward.evaluation.simulators import SimulatorPools
from goalward.tasks import get_task
from goalward.tasks.task import RenderConfig, SuccessChecker

RENDER = RenderConfig(image_size=32)
BUDGET = 30
TWO_ROOM = get_task("two-room")


def test_jerk_is_the_mean_norm_of_the_second_difference() -> None:
    assert action_jerk(np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])) == 0
    assert action_jerk(np.array([[0.0], [1.0], [0.0], [1.0]])) == 2
    assert action_jerk(np.zeros((2, 2))) is None


def test_the_approach_rate_is_the_share_of_steps_that_come_closer() -> None:
    assert approach_rate(np.array([3.0, 2.0, 2.5, 2.5, 1.0])) == 0.5
    assert approach_rate(np.array([3.0, 2.0])) == 1


def test_final_errors_are_in_the_targets_units_and_angles_wrap() -> None:
    targets = get_task("push-t").probe_targets
    goal = {"state": np.array([100.0, 100, 200, 200, np.pi - 0.01, 0, 0])}
    here = {"state": np.array([103.0, 104, 200, 200, -np.pi + 0.01, 0, 0])}
    found = final_errors(targets, here, goal)
    assert found["agent"] == pytest.approx(5)
    assert found["block"] == 0
    assert found["angle"] == pytest.approx(np.degrees(0.02))


def place_of_agent(frames: Array) -> Array:
    """Where the red agent is seen, in pixels."""
    red = np.maximum(frames[..., 0].astype(float) - frames[..., 1], 0) + 1e-9
    side = np.arange(frames.shape[1])
    total = red.sum(axis=(1, 2))
    x, y = (red.sum(axis=1) @ side) / total, (red.sum(axis=2) @ side) / total
    return np.stack([x, y], axis=1)


class GoalChaser(BatchController[Array]):
    """Moves from where it sees the red agent to where the goal frame shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.resets: list[int] = []

    def start(self, goals: Array) -> Sequence[Array]:
        self.resets.append(len(goals))
        return list(place_of_agent(goals))

    def decide(self, frames: Array, states: Sequence[Array], steps_left: Index) -> Array:
        return np.clip(np.stack(states) - place_of_agent(frames), -1, 1).astype(np.float32)


@pytest.fixture(name="pairs", scope="module")
def pairs_fixture(dataset: Callable[[str], Path]) -> list[Pair]:
    """Seven pairs with goal frames of the size that is rendered here."""
    drawn = draw_pairs(dataset("two-room"), PairsConfig(task="two-room", count=7, split="all"))
    simulator, found = TWO_ROOM.simulator(RENDER), []
    for pair in drawn.pairs:
        simulator.restore(pair.goal)
        found.append(replace(pair, goal_frame=simulator.render()))
    return found


@pytest.fixture(name="pool", scope="module")
def pool_fixture() -> Iterator[SimulatorPools]:
    with SimulatorPools(2) as pools:
        yield pools.use(TWO_ROOM, "paper", RENDER, 3)


def run(pairs: list[Pair], pool: SimulatorPools) -> tuple[list[Episode], GoalChaser]:
    controller = GoalChaser()
    groups = batches(pairs, pool.number)
    found = [e for batch in groups for e in run_batch(controller, pool, batch, budget=BUDGET)]
    return found, controller


def alone(pair: Pair) -> tuple[bool, list[Array]]:
    """The same episode in this process, with one simulator."""
    simulator, protocol = TWO_ROOM.simulator(RENDER), TWO_ROOM.protocols["paper"]
    simulator.restore(pair.start)
    simulator.set_goal(pair.goal)
    controller, checker = GoalChaser(), SuccessChecker(protocol, pair.goal)
    controller.reset(pair.goal_frame[None], BUDGET)
    actions: list[Array] = []
    for _ in range(BUDGET):
        actions.append(controller.act(simulator.render()[None])[0])
        verdict = simulator.step(actions[-1])
        if checker.judge(simulator.state(), environment_verdict=verdict):
            return True, actions
    return False, actions


def test_every_pair_is_run_once_and_as_it_would_be_alone(
    pairs: list[Pair], pool: SimulatorPools
) -> None:
    found, controller = run(pairs, pool)
    assert [episode.pair for episode in found] == [pair.number for pair in pairs]
    assert controller.resets == [3, 3, 1]  # more simulators than pairs stay idle
    assert any(episode.success for episode in found)
    for episode, pair in zip(found, pairs, strict=True):
        success, actions = alone(pair)
        assert (episode.success, episode.steps) == (success, len(actions))
        np.testing.assert_allclose(episode.actions, actions, atol=1e-6)
        assert len(episode.frames) == len(episode.rows) == episode.steps + 1
        np.testing.assert_array_equal(episode.rows[0]["state"], pair.start["state"])


def test_the_result_does_not_depend_on_the_number_of_workers(
    pairs: list[Pair], pool: SimulatorPools
) -> None:
    with SimulatorPools(1) as single:
        one, _ = run(pairs[:4], single.use(TWO_ROOM, "paper", RENDER, 3))
    two, _ = run(pairs[:4], pool)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a.frames, b.frames)
        np.testing.assert_array_equal(a.actions, b.actions)


def test_actions_of_another_size_are_refused(pairs: list[Pair], pool: SimulatorPools) -> None:
    class Wide(GoalChaser):
        def decide(self, frames: Array, states: Sequence[Array], steps_left: Index) -> Array:
            return np.zeros((1, 3))

    with pytest.raises(ValueError, match=r"actions must be numbers of shape \(1, 2\), got"):
        run_batch(Wide(), pool, pairs[:1], budget=2)
