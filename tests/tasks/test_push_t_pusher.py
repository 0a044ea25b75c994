"""The Push-T demonstrator: its push model, its walks around the block, and what it achieves."""

from typing import Any

import numpy as np
import pytest

from goalward.tasks.push_t_geometry import (
    AGENT_RADIUS,
    BOXES,
    CLEARANCE,
    CONTACTS,
    CORNERS,
    FACES,
    NODES,
    NORMALS,
    STAGING,
    TOUCHING,
    WINDOW,
    Floats,
    Pose,
    away_from_block,
    grown_boxes,
    point_along,
    push_arc,
    push_twist,
    rotate,
    segments_blocked,
    walking_costs,
    walking_route,
)
from goalward.tasks.push_t_pusher import (
    ANGLE_RADIUS,
    BLOCK_MARGIN,
    MAX_ACTION_CHANGE,
    GeometricPusher,
    NoisyPusher,
    embed,
    embedded_target,
    outside,
    plan_push,
    random_target,
)

# The environment checks its own spaces in a way that gymnasium warns about.
pytestmark = pytest.mark.filterwarnings("ignore:.*Casting input x to numpy array")

NO_TOLLS = np.zeros(len(NODES))
STEPS = 300


class Arena:
    """The simulator behind the one method that the demonstrator may use."""

    def __init__(self) -> None:
        pytest.importorskip("stable_worldmodel")
        gymnasium = pytest.importorskip("gymnasium")
        self.env = gymnasium.make("swm/PushT-v1", disable_env_checker=True).unwrapped

    def state(self) -> dict[str, Any]:
        return {"state": self.env._get_obs()}


@pytest.fixture(scope="module")
def arena() -> Arena:
    return Arena()


def rollout(arena: Arena, seed: int, steps: int = STEPS) -> tuple[Floats, Floats, list[int]]:
    """Actions, states and the count of reached targets of one demonstration."""
    arena.env.reset(seed=seed)
    pusher = GeometricPusher(arena, np.random.default_rng(seed))
    actions, states, reached = [], [], []
    for _ in range(steps):
        action = pusher()
        assert action.dtype == np.float32 and action.shape == (2,)
        arena.env.step(action)
        actions.append(action.astype(np.float64))
        states.append(arena.state()["state"])
        reached.append(pusher.targets_reached)
    return np.array(actions), np.array(states), reached


@pytest.mark.parametrize("contact", range(0, len(CONTACTS), 6))
def test_the_arc_of_a_push_equals_the_push_integrated_numerically(contact: int) -> None:
    point, normal, length, pieces = CONTACTS[contact], NORMALS[contact], 80.0, 4000
    rate, turn_rate = push_twist(point, normal)
    shift, angle, piece = np.zeros(2), 0.0, length / pieces
    for _ in range(pieces):
        shift = shift + rotate(rate * piece * normal, angle + turn_rate * piece / 2)
        angle += float(turn_rate) * piece
    expected_shift, expected_angle = push_arc(point, normal, np.array(length))
    assert np.allclose(shift, expected_shift, atol=1e-5)
    assert angle == pytest.approx(float(expected_angle))


@pytest.mark.parametrize("face", range(8))
def test_the_simulator_moves_the_block_as_the_push_model_says(arena: Arena, face: int) -> None:
    env, contact = arena.env, int(np.flatnonzero(face == FACES)[1])
    env.reset(seed=0)
    pose = Pose(np.array([250.0, 260.0]), 0.7)
    origin, agent = pose.to_window(np.zeros(2)), pose.to_window(TOUCHING[contact])
    env._set_state(np.array([*agent, *origin, pose.angle, 0.0, 0.0]))
    for _ in range(2):
        env.step(rotate(0.1 * NORMALS[contact], pose.angle))
    state = arena.state()["state"]
    after = Pose.of_block(state[2:5])
    length = np.asarray(np.linalg.norm(state[:2] - agent))
    shift, turn = push_arc(CONTACTS[contact], NORMALS[contact], length)
    assert length > 5.0
    assert np.allclose(rotate(after.centre - pose.centre, -pose.angle), shift, atol=0.5)
    assert after.angle - pose.angle == pytest.approx(float(turn), abs=0.01)


@pytest.mark.parametrize("start", [(0.0, -60.0), (-120.0, 20.0), (50.0, 80.0), (3.0, 170.0)])
def test_walks_around_the_block_keep_the_clearance(start: tuple[float, float]) -> None:
    costs = walking_costs(np.array(start), NO_TOLLS)
    for contact in range(len(CONTACTS)):
        route = walking_route(np.array(start), contact, NO_TOLLS)
        walk = route[:-1]
        assert np.array_equal(walk[0], start)
        assert np.array_equal(walk[-1], STAGING[contact])
        length = float(np.linalg.norm(np.diff(walk, axis=0), axis=1).sum())
        assert length == pytest.approx(costs[contact])
        points = [point_along(walk, distance) for distance in np.linspace(0.0, length, 60)]
        assert min(away_from_block(point)[1] for point in points) > CLEARANCE - 1e-3


def test_the_shortest_way_from_top_to_bottom_has_the_known_length() -> None:
    bottom = int(np.flatnonzero((CONTACTS[:, 1] == 120.0) & (np.abs(CONTACTS[:, 0]) < 1e-9))[0])
    bar, stem = 60.0 + CLEARANCE, 15.0 + CLEARANCE
    straight = bar + (30.0 + 2 * CLEARANCE) + np.hypot(bar - stem, 90.0) + stem
    costs = walking_costs(np.array([0.0, -CLEARANCE]), NO_TOLLS)
    assert costs[bottom] == pytest.approx(straight)


@pytest.mark.parametrize("start", [(0.0, -AGENT_RADIUS), (0.0, 45.0), (20.0, 40.0), (-59.0, 1.0)])
def test_a_walk_that_starts_touching_or_inside_the_block_never_goes_deeper(
    start: tuple[float, float],
) -> None:
    assert np.isfinite(walking_costs(np.array(start), NO_TOLLS)).all()
    depth = np.maximum(BOXES[:, :2] - start, start - BOXES[:, 2:]).max(axis=1)
    for contact in range(len(CONTACTS)):
        route = walking_route(np.array(start), contact, NO_TOLLS)
        boxes = grown_boxes(np.minimum(depth, CLEARANCE))
        assert not segments_blocked(route[0], route[1], boxes)


def test_the_embedding_measures_the_pose_error_across_the_wrap() -> None:
    here = Pose(np.array([100.0, 100.0]), 0.01)
    there = Pose(np.array([103.0, 96.0]), 2 * np.pi - 0.01)
    error = np.linalg.norm(embedded_target(here, there) - embed(np.zeros(2), 0.0))
    assert float(error) == pytest.approx(np.hypot(5.0, 0.02 * ANGLE_RADIUS), rel=1e-4)


def test_a_target_straight_ahead_is_pushed_from_behind() -> None:
    pose = Pose(np.array([256.0, 200.0]), 0.0)
    target = Pose(np.array([256.0, 270.0]), 0.0)
    contact, goal = plan_push(np.array([256.0, 100.0]), pose, target)
    assert goal is target
    assert np.array_equal(NORMALS[contact], [0.0, 1.0])
    assert abs(CONTACTS[contact][0]) < 8.0


def test_targets_are_legal_and_cover_the_window_and_all_angles() -> None:
    rng = np.random.default_rng(0)
    targets = np.array([random_target(rng) for _ in range(400)])
    for target in targets:
        corners = Pose.of_block(target).to_window(CORNERS)
        assert corners.min() >= BLOCK_MARGIN
        assert corners.max() <= WINDOW - BLOCK_MARGIN
        assert not outside(corners, BLOCK_MARGIN).any()
    assert targets[:, :2].min() < 60.0 and targets[:, :2].max() > WINDOW - 60.0
    assert np.histogram(targets[:, 2], bins=8, range=(0.0, 2 * np.pi))[0].min() > 25


def test_a_target_that_makes_no_progress_is_given_up() -> None:
    class Frozen:
        def state(self) -> dict[str, Floats]:
            return {"state": np.array([100.0, 100.0, 256.0, 256.0, 0.5, 0.0, 0.0])}

    pusher = GeometricPusher(Frozen(), np.random.default_rng(0))
    before = pusher.target.copy()
    for _ in range(150):
        assert np.isfinite(pusher()).all()
    assert pusher.targets_reached == 0
    assert not np.array_equal(pusher.target, before)


def test_demonstrations_reach_their_first_target_smoothly_and_inside_the_window(
    arena: Arena,
) -> None:
    reached, jerks, moving = 0, [], []
    for seed in range(10):
        actions, states, counts = rollout(arena, seed)
        reached += counts[-1] >= 1
        assert np.abs(actions).max() <= 1.0
        assert np.linalg.norm(np.diff(actions, axis=0), axis=1).max() <= MAX_ACTION_CHANGE + 1e-6
        assert states[:, :2].min() > 0.0 and states[:, :2].max() < WINDOW
        jerks.append(np.linalg.norm(np.diff(actions, n=2, axis=0), axis=1).mean())
        steps = np.linalg.norm(np.diff(states[:, 2:4], axis=0), axis=1)
        moving.append((steps > 0.5).mean())
    assert reached >= 9
    assert np.mean(jerks) <= 0.06
    assert np.mean(moving) >= 0.3


@pytest.mark.parametrize("angle", [0.0, np.pi / 2, np.pi, 3 * np.pi / 2])
def test_a_block_that_starts_against_the_edge_is_brought_to_its_target(
    arena: Arena, angle: float
) -> None:
    arena.env.reset(seed=0)
    centre = np.array([256.0, 256.0]) + rotate(np.array([0.0, 172.0]), angle)  # stem at the edge
    origin = Pose(centre, angle).to_window(np.zeros(2))
    arena.env._set_state(np.array([256.0, 256.0, *origin, angle, 0.0, 0.0]))
    pusher = GeometricPusher(arena, np.random.default_rng(0))
    for _ in range(STEPS):
        arena.env.step(pusher())
    assert pusher.targets_reached >= 1


def test_noise_differs_from_episode_to_episode_and_targets_are_reached_all_the_same(
    arena: Arena,
) -> None:
    levels, reached = [], 0
    for seed in range(8):
        arena.env.reset(seed=seed)
        pusher = NoisyPusher(arena, np.random.default_rng(seed))
        actions = np.empty((STEPS, 2))
        for t in range(STEPS):
            actions[t] = pusher()
            arena.env.step(actions[t])
        assert np.abs(actions).max() <= 1.0
        bends = np.diff(actions, n=2, axis=0)  # of the smooth pusher about 0.05
        levels.append(float(bends.std() / np.sqrt(6)))  # variances of 1, -2 and 1 times the noise
        reached += pusher.targets_reached >= 1
    assert min(levels) < 0.08 < 0.14 < max(levels) < 1.1 * NoisyPusher.MOST_NOISE
    assert reached >= 6
