"""Planar geometry of the Push-T block: how it moves when pushed, and how to walk around it.

Everything here lives in the block's body frame: the origin is the middle of the bar's top edge, the
stem points along +y, lengths are pixels and angles radians. In that frame neither the places where
the block can be pushed nor the obstacles to walking around it ever change, so both are tabulated
once, when the module is imported.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

WINDOW = 512  # pixels a side
AGENT_RADIUS = 15.0
CENTRE_OF_GRAVITY = np.array([0.0, 45.0])
INERTIA = 3000.0  # moment of inertia about the centre of gravity, per unit mass

# Bar and stem as (x_min, y_min, x_max, y_max); the outline's convex corners, in order.
BOXES = np.array([[-60.0, 0.0, 60.0, 30.0], [-15.0, 30.0, 15.0, 120.0]])
CORNERS = np.array(
    [[-60.0, 0.0], [60.0, 0.0], [60.0, 30.0], [15.0, 120.0], [-15.0, 120.0], [-60.0, 30.0]]
)

CLEARANCE = 22.0  # distance from the block's faces that a walking agent's centre keeps
CONTACT_SPACING = 7.5
CORNER_MARGIN = 5.0  # contacts nearer to a face's end than this would slip off it
_OUTWARD = np.array([[-1, -1], [1, -1], [1, 1], [1, 1], [-1, 1], [-1, 1]], dtype=np.float64)
_TOUCH = 1e-6  # running along a box's face is not crossing it
_STILL = 1e-12  # stands for a step of zero, so that nothing is divided by zero


def rotate(vectors: Floats, angle: Floats | float) -> Floats:
    """Turn (..., 2) vectors by `angle`, which broadcasts against their leading dimensions."""
    cos, sin = np.cos(angle), np.sin(angle)
    if np.ndim(angle) == 0:
        return vectors @ np.array([[cos, sin], [-sin, cos]])
    x, y = vectors[..., 0], vectors[..., 1]
    return np.stack([cos * x - sin * y, sin * x + cos * y], axis=-1)


def perpendicular(vectors: Floats) -> Floats:
    """Turn (..., 2) vectors by +90°."""
    return np.stack([-vectors[..., 1], vectors[..., 0]], axis=-1)


@dataclass(frozen=True)
class Pose:
    """A pose of the block: its centre of gravity in the window, and its angle."""

    centre: Floats
    angle: float

    @classmethod
    def of_block(cls, block: Floats) -> "Pose":
        """From the simulator's x, y, angle, whose origin is the middle of the bar's top edge."""
        return cls(block[:2] + rotate(CENTRE_OF_GRAVITY, block[2]), float(block[2]))

    def to_body(self, points: Floats) -> Floats:
        """Points of the window in the block's body frame."""
        return np.asarray(rotate(points - self.centre, -self.angle) + CENTRE_OF_GRAVITY)

    def to_window(self, points: Floats) -> Floats:
        """Points of the block's body frame in the window."""
        return np.asarray(rotate(points - CENTRE_OF_GRAVITY, self.angle) + self.centre)

    def moved(self, shift: Floats, turn: float) -> "Pose":
        """The pose after a push: a shift in the body frame, then a turn."""
        return Pose(self.centre + rotate(shift, self.angle), self.angle + turn)


def push_twist(points: Floats, normals: Floats) -> tuple[Floats, Floats]:
    """Translation along the normal and turn of the block, per pixel it is pushed.

    The simulator forgets the block's velocity at every substep and its contacts are frictionless,
    so a push is one impulse j along the inward normal. It moves the centre of gravity by j and
    turns the block by j·d/I, d being the lever arm; the contact point must move by one pixel along
    the normal, j + j·d²/I = 1, which gives j.
    """
    arms = points - CENTRE_OF_GRAVITY
    lever = arms[..., 0] * normals[..., 1] - arms[..., 1] * normals[..., 0]
    shift = 1.0 / (1.0 + lever**2 / INERTIA)
    return shift, lever * shift / INERTIA


def push_arc(points: Floats, normals: Floats, lengths: Floats) -> tuple[Floats, Floats]:
    """Displacement of the centre of gravity, in the frame before the push, and turn of the block.

    Followed along the turning normal, a push has a constant twist in the body frame; the block's
    motion is the exponential of that twist, a circular arc.
    """
    shift, turn = push_twist(points, normals)
    angle = np.asarray(turn * lengths)
    along = np.sinc(angle / np.pi)
    across = np.sin(angle / 2.0) * np.sinc(angle / (2.0 * np.pi))
    bent = along[..., None] * normals + across[..., None] * perpendicular(normals)
    return (shift * lengths)[..., None] * bent, angle


def box_distances(point: Floats) -> Floats:
    """Chebyshev distance of a point from each box, negative inside."""
    outside = np.maximum(BOXES[:, :2] - point, point - BOXES[:, 2:])
    return np.asarray(outside.max(axis=-1))


def away_from_block(point: Floats) -> tuple[Floats, float]:
    """Unit vector from the nearest point of the block, and the distance; zero inside."""
    gaps = point - np.clip(point, BOXES[:, :2], BOXES[:, 2:])
    distances = np.sqrt((gaps**2).sum(axis=1))
    nearest = int(np.argmin(distances))
    distance = float(distances[nearest])
    return gaps[nearest] / max(distance, _STILL), distance


def grown_boxes(by: Floats | float) -> Floats:
    """The boxes with every side moved outwards by `by`, one value or one per box."""
    outwards = np.array([-1.0, -1.0, 1.0, 1.0])
    return np.asarray(BOXES + np.broadcast_to(by, 2)[:, None] * outwards)


def segments_blocked(starts: Floats, ends: Floats, boxes: Floats) -> Bools:
    """Whether the segments between (..., 2) points cross the inside of any of the boxes.

    Slab test: a segment is inside a box while it is between both pairs of its sides.
    """
    starts, ends = np.broadcast_arrays(starts, ends)
    step = (ends - starts)[..., None, :]
    step = np.where(np.abs(step) < _STILL, _STILL, step)
    low = (boxes[:, :2] + _TOUCH - starts[..., None, :]) / step
    high = (boxes[:, 2:] - _TOUCH - starts[..., None, :]) / step
    enter = np.minimum(low, high).max(axis=-1)
    leave = np.maximum(low, high).min(axis=-1)
    return np.asarray((np.maximum(enter, 0.0) < np.minimum(leave, 1.0)).any(axis=-1))


def _lengths(starts: Floats, ends: Floats, boxes: Floats) -> Floats:
    """Length of each straight segment, infinite where the block is in the way."""
    straight = np.linalg.norm(ends - starts, axis=-1)
    return np.where(segments_blocked(starts, ends, boxes), np.inf, straight)


def _contacts() -> tuple[Floats, Floats, npt.NDArray[np.intp]]:
    """Places where the agent can push, the inward normals there, and which face they are on."""
    bar, stem = BOXES
    inner = stem[2] + CLEARANCE, bar[3] + CLEARANCE  # out of the corners between bar and stem
    faces = [
        ((bar[0] + CORNER_MARGIN, bar[1]), (bar[2] - CORNER_MARGIN, bar[1]), (0.0, 1.0)),
        ((-stem[2], stem[3]), (stem[2], stem[3]), (0.0, -1.0)),
    ]
    for side in (-1.0, 1.0):
        bar_x, stem_x, inward = side * bar[2], side * stem[2], (-side, 0.0)
        faces += [
            ((bar_x, bar[1] + CORNER_MARGIN), (bar_x, bar[3] - CORNER_MARGIN), inward),
            ((side * inner[0], bar[3]), (bar_x - side * CORNER_MARGIN, bar[3]), (0.0, -1.0)),
            ((stem_x, inner[1]), (stem_x, stem[3] - CORNER_MARGIN), inward),
        ]
    points, normals, numbers = [], [], []
    for number, (start, end, normal) in enumerate(faces):
        length = float(np.hypot(end[0] - start[0], end[1] - start[1]))
        count = 1 + 2 * round(length / 2.0 / CONTACT_SPACING)  # odd: with the face's middle
        points.append(np.linspace(start, end, count))
        normals.append(np.tile(normal, (count, 1)))
        numbers.append(np.full(count, number, dtype=np.intp))
    return np.concatenate(points), np.concatenate(normals), np.concatenate(numbers)


CONTACTS, NORMALS, FACES = _contacts()
TOUCHING = CONTACTS - AGENT_RADIUS * NORMALS  # the agent's centre when it touches the block there
STAGING = CONTACTS - CLEARANCE * NORMALS  # and where the walk to the contact ends
# Nodes of the visibility graph: around the block only the convex corners matter.
NODES = CORNERS + CLEARANCE * _OUTWARD
_WALLS = grown_boxes(CLEARANCE)
_EDGES = _lengths(NODES[:, None], NODES[None, :], _WALLS)
_NODES_TO_STAGING = _lengths(NODES[:, None], STAGING[None, :], _WALLS)
_LONGEST_ROUTE = 4  # no shortest way around six corners has more edges than this


def _first_legs(start: Floats, ends: Floats) -> Floats:
    """Lengths of the straight legs from where the agent is, infinite where blocked.

    An agent that is nearer than the clearance (it has just pushed, or starts on top of the block)
    may go anywhere that does not bring it nearer: the boxes are grown only up to the agent.
    """
    return _lengths(start, ends, grown_boxes(np.minimum(box_distances(start), CLEARANCE)))


def _node_costs(last_legs: Floats, tolls: Floats) -> Floats:
    """Cost from each node to each goal, (6, goals), given the last legs and a toll per node."""
    costs = last_legs + tolls[:, None]
    for _ in range(_LONGEST_ROUTE):
        onwards = (_EDGES[:, :, None] + costs[None]).min(axis=1)
        costs = np.minimum(costs, onwards + tolls[:, None])
    return costs


def walking_costs(start: Floats, tolls: Floats) -> Floats:
    """Length of the shortest walk from `start` to the staging point of every contact.

    Args:
        start: Where the agent is, (2,).
        tolls: Extra cost of passing each node of the graph, (6,), for nodes better avoided.
    """
    through = _first_legs(start, NODES)[:, None] + _node_costs(_NODES_TO_STAGING, tolls)
    return np.asarray(np.minimum(_first_legs(start, STAGING), through.min(axis=0)))


def walking_route(start: Floats, contact: int, tolls: Floats) -> Floats:
    """Way points of the shortest walk from `start` to a contact: (n, 2), `start` itself first.

    The last two are the staging point and the agent's centre when it touches the block.
    """
    last = _NODES_TO_STAGING[:, contact]
    route = [start]
    if not np.isfinite(_first_legs(start, STAGING[contact])):
        costs = _node_costs(last[:, None], tolls)[:, 0]
        node = int(np.argmin(_first_legs(start, NODES) + costs))
        route.append(NODES[node])
        while last[node] + tolls[node] > costs[node] + _TOUCH:
            onwards = _EDGES[node] + costs
            onwards[node] = np.inf
            node = int(np.argmin(onwards))
            route.append(NODES[node])
    return np.stack([*route, STAGING[contact], TOUCHING[contact]])


def point_along(route: Floats, distance: float) -> Floats:
    """The point `distance` along a polyline, or its end if it is shorter."""
    legs = np.linalg.norm(np.diff(route, axis=0), axis=1)
    reached = np.concatenate([[0.0], np.cumsum(legs)])
    return np.array([np.interp(distance, reached, route[:, axis]) for axis in range(2)])
