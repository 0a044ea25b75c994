"""The success rules, on cases with known answers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from goalward.core.arrays import Array
from goalward.tasks import get_task
from goalward.tasks.cube import cube_angle, yaw_quaternion
from goalward.tasks.reacher import fingertip
from goalward.tasks.swept_disk import (
    SKIN,
    first_contact,
    free_of_walls,
    swept_disk_step,
    wall_distance,
)
from goalward.tasks.task import State
from goalward.tasks.two_room import AGENT_RADIUS, WALLS

DOOR_Y = WALLS.door_centre
point = st.tuples(st.floats(21, 203), st.floats(21, 203)).map(np.array)
move = st.tuples(st.floats(-30, 30), st.floats(-30, 30)).map(np.array)


def solved(task: str, protocol: str, row: State, goal: State) -> bool:
    return bool(get_task(task).protocols[protocol].solved(row, goal))


def admits(task: str, protocol: str, start: State, goal: State) -> bool:
    return bool(get_task(task).protocols[protocol].admits(start, goal))


def at(*state: float) -> State:
    return {"state": np.array(state)}


def test_two_room_protocols_differ_in_radius_side_and_pairs() -> None:
    goal = at(150.0, 100.0)
    assert solved("two-room", "paper", at(150.0, 115.0), goal)
    assert not solved("two-room", "paper", at(150.0, 117.0), goal)
    assert not solved("two-room", "strict", at(150.0, 109.0), goal)
    assert solved("two-room", "strict", at(150.0, 107.0), goal)
    left, right = at(110.0, 49.0), at(114.0, 49.0)
    assert not solved("two-room", "strict", left, right)  # near, but on the other side
    assert admits("two-room", "moderate", at(80.0, 49.0), goal)
    assert not admits("two-room", "moderate", at(160.0, 49.0), goal)  # same room
    assert not admits("two-room", "moderate", at(105.0, 100.0), goal)  # overlaps the wall
    assert not admits("two-room", "moderate", left, right)  # a step across the doorway


def test_push_t_wraps_the_angle_and_strict_ignores_the_pusher() -> None:
    goal = at(100, 100, 200, 200, 0.05, 0, 0)
    turned = at(100, 100, 200, 200, 2 * np.pi - 0.1, 0, 0)
    assert solved("push-t", "paper", turned, goal)
    assert solved("push-t", "strict", turned, goal)
    away = at(300, 300, 200, 205, 0.05, 0, 0)
    assert not solved("push-t", "moderate", away, goal)
    assert solved("push-t", "strict", away, goal)
    assert not solved("push-t", "strict", at(100, 100, 200, 211, 0.05, 0, 0), goal)
    # 4-D norm: 15 px each for pusher and block is more than 20 together
    assert not solved("push-t", "paper", at(115, 100, 215, 200, 0.05, 0, 0), goal)


def test_reacher_shoulder_is_periodic_only_in_the_corrected_protocols() -> None:
    goal = {"qpos": np.array([np.pi - 0.01, 0.5])}
    wrapped = {"qpos": np.array([-np.pi + 0.01, 0.5])}
    assert not solved("reacher", "paper", wrapped, goal)
    assert solved("reacher", "moderate", wrapped, goal)
    assert not admits("reacher", "moderate", wrapped, goal)
    assert solved("reacher", "strict", wrapped, goal)
    off = {"qpos": np.array([np.pi - 0.01, 0.56])}
    assert not solved("reacher", "moderate", off, goal)
    assert solved("reacher", "strict", off, goal)  # 6 mm at the fingertip


def test_the_fingertip_is_where_two_links_put_it() -> None:
    qpos = np.array([[0.0, 0.0], [np.pi / 2, 0.0], [0.0, np.pi / 2]])
    assert np.allclose(fingertip(qpos), [[0.24, 0], [0, 0.24], [0.12, 0.12]])


def cube_row(position: tuple[float, ...], quaternion: list[float]) -> State:
    return {
        "privileged_block_0_pos": np.array(position),
        "privileged_block_0_quat": np.array(quaternion),
    }


def test_cube_protocols_differ_in_distance_and_orientation() -> None:
    goal = cube_row((0.4, 0.0, 0.02), yaw_quaternion(0.2))
    assert solved("cube", "paper", cube_row((0.44, 0.0, 0.02), yaw_quaternion(1.0)), goal)
    assert not solved("cube", "paper", cube_row((0.441, 0.0, 0.02), yaw_quaternion(0.2)), goal)
    near = (0.42, 0.0, 0.02)
    assert solved("cube", "strict", cube_row(near, yaw_quaternion(0.2 + np.pi / 2 + 0.2)), goal)
    assert not solved("cube", "strict", cube_row(near, yaw_quaternion(0.2 + 0.4)), goal)


def the_cubes_rotations() -> Rotation:
    """All rotations that map the axes to axes."""
    flips = [np.diag(signs) for signs in itertools.product((1, -1), repeat=3)]
    swaps = [np.eye(3)[list(order)] for order in itertools.permutations(range(3))]
    every = [swap @ flip for swap in swaps for flip in flips]
    return Rotation.from_matrix([one for one in every if np.linalg.det(one) > 0])


SYMMETRIES = the_cubes_rotations()


@given(st.integers(0, 23), st.floats(0.0, 0.7))
def test_cube_angle_ignores_symmetries_and_measures_the_rest(symmetry: int, angle: float) -> None:
    assert len(SYMMETRIES) == 24
    turned = Rotation.from_euler("z", 0.3 + angle) * SYMMETRIES[symmetry]
    same = turned.as_quat()[[3, 0, 1, 2]]
    assert cube_angle(np.array(yaw_quaternion(0.3)), same) == pytest.approx(angle, abs=1e-6)
    both = cube_angle(np.stack([same, same])[None], np.array(yaw_quaternion(0.3)))
    assert both.shape == (1, 2)


@given(point, move)
def test_a_swept_disk_never_overlaps_a_wall(start: Array, step: Array) -> None:
    if not free_of_walls(start, AGENT_RADIUS, WALLS):
        return
    end = swept_disk_step(start, step, AGENT_RADIUS, WALLS)
    assert np.linalg.norm(end - start) <= np.linalg.norm(step) + 1e-9
    low, high = WALLS.low + AGENT_RADIUS, WALLS.high - AGENT_RADIUS
    straight = np.clip(start + step, low, high) - start
    turn = start + straight * first_contact(start, straight, AGENT_RADIUS, WALLS)
    share = np.linspace(0, 1, 200)[:, None]
    for a, b in ((start, turn), (turn, end)):  # the whole path, not only its end
        assert wall_distance(a + share * (b - a), WALLS).min() >= AGENT_RADIUS - 2 * SKIN
    assert wall_distance(end, WALLS) >= AGENT_RADIUS - 1e-9


def test_a_swept_disk_passes_the_door_and_stops_at_the_wall() -> None:
    through = swept_disk_step(np.array([95.0, DOOR_Y]), np.array([40.0, 0.0]), 7.0, WALLS)
    assert np.allclose(through, [135.0, DOOR_Y])
    stopped = swept_disk_step(np.array([95.0, 150.0]), np.array([40.0, 0.0]), 7.0, WALLS)
    assert np.allclose(stopped, [100.0, 150.0], atol=2e-3)


def test_a_swept_disk_cannot_jump_over_the_wall_as_the_environment_lets_it() -> None:
    start = np.array([99.0, DOOR_Y + 20.0])  # not in front of the door
    end = swept_disk_step(start, np.array([30.0, -12.0]), 7.0, WALLS)
    assert end[0] < WALLS.centre


def test_a_swept_disk_slides_along_the_wall() -> None:
    end = swept_disk_step(np.array([98.0, 150.0]), np.array([5.0, 4.0]), 7.0, WALLS)
    assert end[0] == pytest.approx(100.0, abs=2e-3)
    assert end[1] == pytest.approx(154.0, abs=1e-2)


def test_the_first_contact_is_found_on_faces_and_on_corners() -> None:
    face = first_contact(np.array([90.0, 150.0]), np.array([20.0, 0.0]), 7.0, WALLS)
    assert face == pytest.approx(0.5)
    corner = np.array([WALLS.centre - WALLS.half_width, DOOR_Y + WALLS.door_half_width])
    towards = np.array([1.0, 1.0]) / np.sqrt(2)
    start = corner - 17.0 * towards
    assert first_contact(start, 20.0 * towards, 7.0, WALLS) == pytest.approx(0.5)
    assert first_contact(start, -20.0 * towards, 7.0, WALLS) == 1.0
