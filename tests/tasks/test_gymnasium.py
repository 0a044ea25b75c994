"""Any Gymnasium environment becomes a task: here a point in a box."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goalward.core.arrays import Array
from goalward.data.collect import CollectConfig, collect
from goalward.data.episodes import open_episodes
from goalward.tasks import register_task
from goalward.tasks.task import RenderConfig, State, SuccessChecker, Task

gymnasium = pytest.importorskip("gymnasium")


class PointInABox(gymnasium.Env):  # type: ignore[misc,name-defined]
    """A point that moves by its action, from a drawn place; drawn as a white square on black."""

    action_space = gymnasium.spaces.Box(*np.array([[-4, 0], [4, 2]], np.float32))
    render_mode = "rgb_array"

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.position = self.np_random.uniform(10, 60, size=2)
        return self.position, {}

    def step(self, action: Array) -> Any:
        assert self.action_space.contains(action)
        self.position = np.clip(self.position + action, 5, 75)
        return self.position, 0.0, False, False, {}

    def render(self) -> Array:
        frame = np.zeros((80, 120, 3), np.uint8)  # no square
        x, y = self.position.astype(int)
        frame[y - 5 : y + 5, x - 5 : x + 5] = 255
        return frame


def put(environment: Any, state: State) -> None:
    environment.position = np.array(state["position"])


def near(state: State, goal: State) -> Array:
    return np.linalg.norm(state["position"] - goal["position"], axis=-1) < 3


def point_task(**options: Any) -> Task:
    return Task.from_gymnasium(
        PointInABox,
        name="point",
        get_state=lambda environment: {"position": environment.position},
        set_state=put,
        success=near,
        episode_steps=12,
        **options,
    )


def test_a_gymnasium_environment_is_collected_and_restored_exactly(tmp_path: Path) -> None:
    task = point_task()
    register_task(task)
    assert (task.default_protocol, task.default_demonstrator) == ("success", "random")
    assert (task.action_dim, task.state_columns) == (2, {"position": 2})
    small = RenderConfig(image_size=32)
    config = CollectConfig.for_task("point", episodes=20, seed=1, render=small)
    simulator = task.simulator(config.render)
    with open_episodes(collect(config, tmp_path / "run", workers=2)) as episodes:
        assert episodes.lengths.tolist() == [13] * 20
        assert episodes.columns["pixels"].shape == (32, 32, 3)
        starts = {tuple(episodes.episode(k)["position"][0]) for k in range(20)}
        assert len(starts) == 20
        episode = episodes.episode(7)
    simulator.restore({"position": episode["position"][0]})
    for t in range(13):
        np.testing.assert_array_equal(simulator.state()["position"], episode["position"][t])
        np.testing.assert_array_equal(simulator.render(), episode["pixels"][t])
        if t < 12:
            simulator.step(episode["action"][t])


def test_actions_are_scaled_to_the_bounds_and_success_is_near_the_goal() -> None:
    task = point_task(demonstrator=lambda environment, rng: lambda: np.ones(2, np.float32))
    simulator = task.simulator(RenderConfig())
    here, there = ({"position": np.array([30.0, y])} for y in (30.0, 36.0))
    simulator.restore(here)
    assert not simulator.step(np.zeros(2))  # without a goal
    assert simulator.state()["position"].tolist() == [30.0, 31.0]  # the middle of the bounds
    simulator.set_goal(there)
    policy = task.demonstrators["demonstrator"](simulator, np.random.default_rng(0))
    assert policy().tolist() == [1.0, 1.0]
    checker = SuccessChecker(task.protocols["success"], there)
    found = []
    for _ in range(3):
        verdict = simulator.step(np.array([0.0, 1.0]))
        assert verdict == checker.judge(simulator.state(), environment_verdict=verdict)
        found.append(verdict)
    assert found == [False, True, True]  # 3, 1 and 1 pixels away


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("action_space", gymnasium.spaces.Discrete(3), "must be a Box with finite bounds"),
        ("action_space", gymnasium.spaces.Box(-np.inf, np.inf, (2,)), "with finite bounds"),
        ("render_mode", "human", "must be made with render_mode='rgb_array'"),
    ],
)
def test_an_environment_without_bounds_or_frames_is_refused(
    field: str, value: object, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PointInABox, field, value)
    with pytest.raises(ValueError, match=complaint):
        point_task()


def test_an_unknown_environment_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match="NoSuch-v0 cannot be loaded") as caught:
        Task.from_gymnasium("NoSuch-v0", name="x", get_state=dict, set_state=put, success=near)
    assert "\n" not in str(caught.value)
