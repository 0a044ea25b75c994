"""Continuous collision of a moving disk with Two-Room's walls.

The environment tests only where a step ends: a disk may cut the corner of the door, or stand half
inside the wall. Here the disk's whole path is tested. The disk's centre must stay outside the
two wall segments grown by the radius (rounded rectangles) and inside the outer border.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from goalward.core.arrays import Array

SKIN = 1e-3  # pixels of the path kept before a wall, so that a contact is not an overlap
SIGNS = np.array([-1.0, -1.0, 1.0, 1.0])  # grows a box given as x0, y0, x1, y1


@dataclass(frozen=True, kw_only=True, slots=True)
class Walls:
    """A vertical wall with one door, inside a square border."""

    centre: float
    half_width: float
    door_centre: float
    door_half_width: float
    low: float
    high: float

    def rectangles(self) -> Array:
        """The wall above and below the door: (2, 4) rows of x0, y0, x1, y1."""
        x0, x1 = self.centre - self.half_width, self.centre + self.half_width
        above = (x0, self.low, x1, self.door_centre - self.door_half_width)
        below = (x0, self.door_centre + self.door_half_width, x1, self.high)
        return np.array([above, below])


def wall_distance(points: Array, walls: Walls) -> Array:
    """Distance from points (..., 2) to the nearest wall segment (0 inside it)."""
    boxes = walls.rectangles()
    nearest = np.clip(points[..., None, :], boxes[:, :2], boxes[:, 2:])
    return np.linalg.norm(points[..., None, :] - nearest, axis=-1).min(axis=-1)


def free_of_walls(points: Array, radius: float, walls: Walls) -> Array:
    """Whether a disk centred at each of the points (..., 2) overlaps no wall segment."""
    return wall_distance(points, walls) >= radius


def first_contact(start: Array, move: Array, radius: float, walls: Walls) -> float:
    """Share of `move` (at most 1) after which a disk first touches a wall.

    A rectangle grown by the radius is the union of two boxes and four corner disks; the path of
    the centre first meets the union where it first enters one of them. Shapes that the centre
    is already inside of do not count: a disk may always leave an overlap.
    """
    boxes = walls.rectangles()
    grown = np.array([radius, 0.0, radius, 0.0])
    outset = np.concatenate([boxes + SIGNS * grown, boxes + SIGNS * np.roll(grown, 1)])
    corners = boxes[:, [[0, 1], [0, 3], [2, 1], [2, 3]]].reshape(-1, 2)
    entries = np.concatenate(
        [_enter_boxes(start, move, outset), _enter_disks(start, move, corners, radius)]
    )
    return float(min(entries.min(), 1.0))


def _enter_boxes(start: Array, move: Array, boxes: Array) -> Array:
    """Share of the move at which a point enters each box (B, 4); infinity if it does not."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t0 = (boxes[:, :2] - start) / move
        t1 = (boxes[:, 2:] - start) / move
    # A zero component never enters or leaves its slab: always inside, or never.
    still = move == 0.0
    inside = (start > boxes[:, :2]) & (start < boxes[:, 2:])
    enter = np.where(still, np.where(inside, -np.inf, np.inf), np.minimum(t0, t1)).max(axis=1)
    leave = np.where(still, np.where(inside, np.inf, -np.inf), np.maximum(t0, t1)).min(axis=1)
    return np.where((enter >= 0.0) & (enter < leave), enter, np.inf)


def _enter_disks(start: Array, move: Array, centres: Array, radius: float) -> Array:
    """Share of the move at which a point enters each disk (D, 2); infinity if it does not."""
    offset = start - centres
    a, b = float(move @ move), offset @ move
    c = (offset**2).sum(axis=1) - radius**2
    discriminant = b**2 - a * c
    meets = (discriminant > 0.0) & (b < 0.0) & (c >= 0.0)
    root = np.sqrt(np.where(meets, discriminant, 0.0))
    return np.where(meets, (-b - root) / (a or 1.0), np.inf)


def swept_disk_step(position: Array, move: Array, radius: float, walls: Walls) -> Array:
    """Move a disk until it touches a wall, then slide along what is left of the move.

    Args:
        position: centre (2,).
        move: wanted displacement (2,).
        radius: of the disk.
        walls: what it collides with.

    Returns:
        New centre (2,).
    """
    low, high = walls.low + radius, walls.high - radius
    here = np.asarray(position, dtype=np.float64)
    left = np.asarray(move, dtype=np.float64)
    for _ in range(2):  # once straight, once sliding
        left = np.clip(here + left, low, high) - here
        share = first_contact(here, left, radius, walls)
        if share >= 1.0:
            return here + left
        share = max(share - SKIN / float(np.linalg.norm(left)), 0.0)
        here, left = here + share * left, (1 - share) * left
        left = _without_approach(here, left, walls)
    return here


def _without_approach(point: Array, move: Array, walls: Walls) -> Array:
    """The part of `move` that does not go into the nearest wall."""
    boxes = walls.rectangles()
    offsets = point - np.clip(point, boxes[:, :2], boxes[:, 2:])
    distances = np.linalg.norm(offsets, axis=1)
    normal = offsets[distances.argmin()] / distances.min()
    return move - min(float(move @ normal), 0.0) * normal
