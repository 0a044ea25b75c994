"""A scripted demonstrator for Push-T: pushes the T to random target poses, one after another.

It plans with the quasi-static push model of `push_t_geometry`: every push, straight at one of the
block's faces and followed along the turning normal, moves the block along a known arc. The best
push, or pair of pushes, is looked up among a few thousand tabulated ones; the agent then walks
around the block to the chosen contact and pushes, correcting contact and length as it goes.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from goalward.tasks.push_t_geometry import (
    AGENT_RADIUS,
    CENTRE_OF_GRAVITY,
    CLEARANCE,
    CONTACTS,
    CORNERS,
    FACES,
    INERTIA,
    NODES,
    NORMALS,
    TOUCHING,
    WINDOW,
    Floats,
    Pose,
    away_from_block,
    perpendicular,
    point_along,
    push_arc,
    push_twist,
    rotate,
    walking_costs,
    walking_route,
)
from goalward.tasks.task import wrap_angle

BLOCK_MARGIN = 42.0  # the T's corners keep this far from the window's edge: the agent fits between
AGENT_MARGIN = 12.0
REACHED_DISTANCE = 9.0
REACHED_ANGLE = float(np.deg2rad(7.0))
PATIENCE = 120  # steps without progress after which a target is given up
PHASE_LIMIT = 60  # steps that a walk or a push may last before everything is planned again

# Control: px, px a step, and actions in [-1, 1]. A steady action of 1 is 40 px a step.
PIXELS_PER_ACTION = 40.0
MAX_ACTION_CHANGE = 0.14
WALK_SPEED = 11.0
PUSH_SPEED = 6.5
END_SPEED = 1.5  # at the end of a target's last push, so that it does not overshoot
SIDE_SPEED = 4.0  # along the face, while pushing
SLOWING = 0.4  # px a step for every px still to go
APPROACH_SLOWING = 0.2  # the same, for a walk that is about to become a push
LOOKAHEAD = 14.0  # the walk heads for the point so far ahead on its way: rounds the corners
ARRIVED_ASIDE = 5.0  # a walk has arrived when it is this close to the line of the push
STEERING_RANGE = 20.0  # a push may move its contact along the face by this much
STEERING_COST = 0.05  # px of error that moving it by one px must save
OVERLAP = 6.0  # deeper in than this the agent is not touching the face: it has slipped off
END_LENGTH = 2.6  # a target's last push is over when so much is left of it
NEXT_LENGTH = 6.0  # and other pushes when so much is left

# Costs of a plan, in steps.
SWITCH_COST = 6.0  # of every push, for turning round
ERROR_COST = 1.2  # per px of error that the plan leaves
MISS_COST = 15.0  # when that error is MISS_ERROR or more: it takes yet another push
HIT_ERROR, MISS_ERROR = 4.0, 8.0  # px: errors below the first are steered away while pushing
OUTSIDE_COST = 1.0  # per px that the block's corners leave the legal region
REACH_COST = 5.0  # per px that the agent would have to leave the window
NODE_TOLL = 10.0  # px of detour that are better than passing one px outside the window
NOISE_COST = 2.0  # at random, on every contact: makes demonstrations differ
IMPATIENCE = 0.3  # more of that noise for every step without progress: breaks cycles

ANGLE_RADIUS = 0.9 * float(np.sqrt(INERTIA))  # px of error that count as much as one radian
LENGTHS = np.arange(0.0, 121.0, 2.5)


class Simulator(Protocol):
    """What the demonstrator needs of a simulator."""

    def state(self) -> Mapping[str, Any]:
        """The current record; "state" is agent x, y, block x, y, angle, agent vx, vy."""
        ...


def embed(shift: Floats, turn: Floats | float) -> Floats:
    """Poses as points in 4-D whose Euclidean distance is the pose error.

    Angles lie on a circle of ANGLE_RADIUS, so that they need no wrapping and the errors of all
    pairs of poses cost one matrix product.
    """
    turned = ANGLE_RADIUS * np.stack([np.cos(turn), np.sin(turn)], axis=-1)
    return np.concatenate([shift, turned], axis=-1)


def embedded_target(pose: Pose, target: Pose) -> Floats:
    """The target as seen from a pose, embedded: pushes from there should end up close to it."""
    shift = rotate(target.centre - pose.centre, -pose.angle)
    return embed(shift, target.angle - pose.angle)


def outside(points: Floats, margin: float) -> Floats:
    """By how many px points are nearer than `margin` to the window's edge."""
    beyond = np.maximum(margin - points, points - (WINDOW - margin)).max(axis=-1)
    return np.asarray(np.maximum(beyond, 0.0))


def into_window(points: Floats) -> Floats:
    """The nearest points where the agent may be."""
    return np.clip(points, AGENT_MARGIN, WINDOW - AGENT_MARGIN)


# Where every push of every length takes the block, and the fewer lengths that plans are made of.
# Pairs of pushes are many, so their first push comes from a coarser grid; it will be corrected.
_ENDS = embed(*push_arc(CONTACTS[:, None], NORMALS[:, None], LENGTHS[None, :]))
_PLAN = LENGTHS[[2, 4, 6, 8, 10, 13, 16, 19, 22, 26, 30, 34, 38, 43, 48]]
_MOVES, _TURNS = push_arc(CONTACTS[:, None], NORMALS[:, None], _PLAN[None, :])
_PLAN_ENDS = embed(_MOVES, _TURNS)
_FIRST = np.ix_(np.arange(0, len(CONTACTS), 2), np.arange(1, len(_PLAN), 2))
_FIRST_MOVES, _FIRST_TURNS = _MOVES[_FIRST], _TURNS[_FIRST]
_SECOND_ENDS = _PLAN_ENDS.reshape(-1, 4)
_SECOND_SQUARES = (_SECOND_ENDS**2).sum(axis=-1)
_WALKS_BETWEEN = np.stack([walking_costs(start, np.zeros(len(NODES))) for start in TOUCHING])
_TANGENTS = perpendicular(NORMALS)
_ACROSS = (CONTACTS * _TANGENTS).sum(axis=1)


def random_target(rng: np.random.Generator) -> Floats:
    """A block pose (x, y, angle), uniform over those with all corners in the legal region."""
    while True:
        block = rng.uniform(0.0, [WINDOW, WINDOW, 2.0 * np.pi])
        if not outside(Pose.of_block(block).to_window(CORNERS), BLOCK_MARGIN).any():
            return block


def node_tolls(pose: Pose) -> Floats:
    """Extra walking cost, in px, of the way points that are outside the window."""
    return NODE_TOLL * outside(pose.to_window(NODES), AGENT_MARGIN)


def plan_push(
    agent: Floats, pose: Pose, target: Pose, noise: Floats | float = 0.0
) -> tuple[int, Pose]:
    """The contact to push next, and the block pose to push it to.

    Single pushes compete with pairs of pushes. The costs are in steps: walking, pushing, turning
    round, and what the error left at the end is likely to take. The goal of a single push is the
    target itself, even where it leaves some error: pushing is closed-loop. `noise` is added to
    the cost of every contact.
    """
    walks = walking_costs(pose.to_body(agent), node_tolls(pose)) / WALK_SPEED
    walks += REACH_COST * outside(pose.to_window(TOUCHING), AGENT_MARGIN) + noise
    spent = walks[:, None] + _PLAN / PUSH_SPEED + SWITCH_COST + _boundary_costs(pose)
    errors = np.linalg.norm(_PLAN_ENDS - embedded_target(pose, target), axis=-1)
    single = spent + _error_costs(errors)
    pairs = spent[_FIRST] + _second_costs(pose, target)
    if single.min() <= pairs.min():
        return int(np.argmin(single.min(axis=1))), target
    row, column = np.unravel_index(np.argmin(pairs), pairs.shape)
    contact, length = _FIRST[0][row, 0], _FIRST[1][0, column]
    return int(contact), pose.moved(_MOVES[contact, length], float(_TURNS[contact, length]))


def _error_costs(errors: Floats) -> Floats:
    """Steps that pose errors are likely to take: any real miss needs another push, however short.

    Without that jump the cheapest plan close to the target is a nudge that does not get there.
    """
    missed = np.clip((errors - HIT_ERROR) / (MISS_ERROR - HIT_ERROR), 0.0, 1.0)
    return np.asarray(ERROR_COST * errors + MISS_COST * missed)


def _boundary_costs(pose: Pose) -> Floats:
    """Cost of every push for taking the block's corners further out of the legal region."""
    arms = rotate(CORNERS - CENTRE_OF_GRAVITY, (pose.angle + _TURNS)[..., None])
    centres = pose.centre + rotate(_MOVES, pose.angle)
    corners = outside(centres[:, :, None] + arms, BLOCK_MARGIN).max(axis=-1)
    now = outside(pose.to_window(CORNERS), BLOCK_MARGIN).max()
    return np.asarray(OUTSIDE_COST * np.maximum(corners - now, 0.0))


def _second_costs(pose: Pose, target: Pose) -> Floats:
    """Least cost from the end of every first push on: a second push, and the error it leaves."""
    seen = rotate(target.centre - pose.centre, -pose.angle) - _FIRST_MOVES
    goals = embed(rotate(seen, -_FIRST_TURNS), target.angle - pose.angle - _FIRST_TURNS)
    squares = (goals**2).sum(axis=-1)[..., None] + _SECOND_SQUARES - 2.0 * goals @ _SECOND_ENDS.T
    errors = np.sqrt(np.maximum(squares, 0.0))
    errors = errors.reshape(*_FIRST_TURNS.shape, len(CONTACTS), len(_PLAN))
    pushes = _PLAN / PUSH_SPEED + SWITCH_COST
    costs = (_error_costs(errors) + pushes).min(axis=-1)
    walks = _WALKS_BETWEEN[_FIRST[0][:, 0]] / WALK_SPEED
    return np.asarray((costs + walks[:, None, :]).min(axis=-1))


class GeometricPusher:
    """Pushes the T to random target poses, one after another.

    `pace` scales its speed.

    Attributes:
        target: The current target block pose (x, y, angle).
        targets_reached: How many targets the block has reached so far.
    """

    def __init__(self, simulator: Simulator, rng: np.random.Generator, pace: float = 1.0) -> None:
        self.targets_reached = 0
        self._simulator = simulator
        self._rng = rng
        self._pace = pace
        self._action = np.zeros(2)
        self._contact, self._pushing, self._last_push, self._age = 0, False, False, 0
        self._goal: Pose | None
        self._way_points: Floats | None = None
        self._draw_target()

    def __call__(self) -> npt.NDArray[np.float32]:
        """The next action: smooth, because its change is limited."""
        state = np.asarray(self._simulator.state()["state"], dtype=np.float64)
        agent, pose = state[:2], Pose.of_block(state[2:5])
        self._update_target(state[2:5])
        if self._goal is None or self._age >= PHASE_LIMIT / self._pace:
            self._goal = self._plan(agent, pose)
        here = pose.to_body(agent)
        if not self._pushing and self._in_front(here):
            self._pushing, self._age = True, 0
        velocity = self._push(here, pose, self._goal) if self._pushing else self._walk(here, pose)
        velocity = self._pace * velocity
        velocity = into_window(agent + rotate(velocity, pose.angle)) - agent
        change = velocity / PIXELS_PER_ACTION - self._action
        change *= MAX_ACTION_CHANGE / max(float(np.linalg.norm(change)), MAX_ACTION_CHANGE)
        self._action = np.clip(self._action + change, -1.0, 1.0)
        self._age += 1
        return self._action.astype(np.float32)

    def _draw_target(self) -> None:
        self.target = random_target(self._rng)
        self._goal = None
        self._least_error, self._waited = np.inf, 0

    def _update_target(self, block: Floats) -> None:
        """Draw a new target when the block has arrived, or has made no progress for long."""
        distance = float(np.linalg.norm(self.target[:2] - block[:2]))
        turn = abs(float(wrap_angle(self.target[2] - block[2])))
        error = float(np.hypot(distance, ANGLE_RADIUS * turn))
        self._waited += 1
        if error < self._least_error - 1.0:
            self._least_error, self._waited = error, 0
        reached = distance < REACHED_DISTANCE and turn < REACHED_ANGLE
        self.targets_reached += reached
        if reached or self._waited > PATIENCE / self._pace:
            self._draw_target()

    def _plan(self, agent: Floats, pose: Pose) -> Pose:
        """Choose the next contact; the block pose to push to."""
        target = Pose.of_block(self.target)
        scale = NOISE_COST + IMPATIENCE * self._pace * self._waited
        noise = self._rng.uniform(0.0, scale, size=len(CONTACTS))
        self._contact, goal = plan_push(agent, pose, target, noise)
        self._last_push = goal is target
        self._pushing, self._age = False, 0
        self._way_points = None
        return goal

    def _in_front(self, here: Floats) -> bool:
        """Whether the walk has arrived: only the way straight to the contact is left."""
        offset = TOUCHING[self._contact] - here
        gap = float(offset @ NORMALS[self._contact])
        aside = abs(float(offset @ _TANGENTS[self._contact]))
        return -2.0 <= gap < CLEARANCE - 2.0 and aside < ARRIVED_ASIDE

    def _walk(self, here: Floats, pose: Pose) -> Floats:
        """Velocity, in the body frame, along the way around the block to the contact.

        Where the way leads out of the window it is moved to the edge: an agent that has to pass
        between the block and the edge squeezes through and makes itself room.
        """
        route = self._route(here, pose)
        left = float(np.linalg.norm(np.diff(route, axis=0), axis=1).sum())
        ahead = point_along(route, LOOKAHEAD) - here
        speed = min(WALK_SPEED, PUSH_SPEED + APPROACH_SLOWING * left)
        away, distance = away_from_block(here)
        clear = SLOWING * max(CLEARANCE - distance, 0.0) * away
        return np.asarray(speed * ahead / max(float(np.linalg.norm(ahead)), 1.0) + clear)

    def _route(self, here: Floats, pose: Pose) -> Floats:
        """Way points to the contact; as long as the next one is far, those of the last step."""
        ahead = self._way_points
        if ahead is None or max(abs(ahead[0] - here)) < LOOKAHEAD + WALK_SPEED:
            route = walking_route(here, self._contact, node_tolls(pose))
            ahead = self._way_points = pose.to_body(into_window(pose.to_window(route)))[1:]
        return np.concatenate([here[None], ahead])

    def _push(self, here: Floats, pose: Pose, goal: Pose) -> Floats:
        """Velocity, in the body frame, that pushes the block to the goal; drops it when done.

        The agent's centre moves with the block, as if it were a part of it, plus a correction
        along the face, which the frictionless contact does not hinder.
        """
        length = self._steer(here, pose, goal)
        normal, tangent = NORMALS[self._contact], _TANGENTS[self._contact]
        offset = TOUCHING[self._contact] - here
        gap, aside = float(offset @ normal), float(offset @ tangent)
        slipped = gap < -OVERLAP or abs(aside) > STEERING_RANGE
        if slipped or length < (END_LENGTH if self._last_push else NEXT_LENGTH):
            self._goal = None
        speed = PUSH_SPEED
        if self._last_push:
            speed = min(speed, END_SPEED + SLOWING * (length + max(gap, 0.0)))
        correction = np.clip(SLOWING * aside, -SIDE_SPEED, SIDE_SPEED) * tangent
        if gap > 1.0:
            return np.asarray(speed * normal + correction)
        shift, turn = push_twist(here + AGENT_RADIUS * normal, normal)
        carried = shift * normal + turn * perpendicular(here - CENTRE_OF_GRAVITY)
        return np.asarray(speed * carried + correction)

    def _steer(self, here: Floats, pose: Pose, goal: Pose) -> float:
        """Move the contact along its face to where the push ends best; the length left to push."""
        aside = np.abs(_ACROSS - here @ _TANGENTS[self._contact])
        near = np.flatnonzero((FACES[self._contact] == FACES) & (aside < STEERING_RANGE))
        if not near.size:
            return 0.0
        errors = np.linalg.norm(_ENDS[near] - embedded_target(pose, goal), axis=-1)
        errors += STEERING_COST * aside[near, None]
        best, length = np.unravel_index(np.argmin(errors), errors.shape)
        self._contact = int(near[best])
        return float(LENGTHS[length])


class NoisyPusher(GeometricPusher):
    """The same with Gaussian noise on its actions, which it then corrects.

    Each episode draws its own noise level, from zero on. A world model that has seen only smooth
    actions is wrong about others, and a search for plans finds just those.
    """

    MOST_NOISE = 0.2  # standard deviation, of actions in [-1, 1]

    def __init__(self, simulator: Simulator, rng: np.random.Generator) -> None:
        super().__init__(simulator, rng)
        self._noise = rng.uniform(0.0, self.MOST_NOISE)

    def __call__(self) -> npt.NDArray[np.float32]:
        """The next action, and noise."""
        action = super().__call__() + self._rng.normal(0.0, self._noise, size=2)
        return np.clip(action, -1.0, 1.0).astype(np.float32)
