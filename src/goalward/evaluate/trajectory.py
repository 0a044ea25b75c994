"""How a trajectory went, beside whether it succeeded (Section 5.5 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from goalward.arrays import real_array
from goalward.tasks.angles import wrap_angle
from goalward.tasks.spec import Measure, Row
from goalward.types import Array


def action_jerk(actions: Array) -> float | None:
    """Mean norm of the second difference of the actions (T, A); None for fewer than three."""
    actions = real_array(actions, "actions", "T", "A")
    if len(actions) < 3:
        return None
    second = actions[2:] - 2 * actions[1:-1] + actions[:-2]
    return float(np.linalg.norm(second, axis=1).mean())


def is_monotone(distances: Array) -> bool:
    """Whether the latent distance to the goal (T + 1,) falls at every step."""
    return bool((np.diff(real_array(distances, "distances", "T")) < 0).all())


def closing_share(distances: Array) -> float:
    """Share of the steps at which the latent distance to the goal (T + 1,) falls."""
    return float((np.diff(real_array(distances, "distances", "T")) < 0).mean())


def latent_distances(z_TD: Array, z_goal_D: Array) -> Array:
    """Euclidean distances to the goal: (T,)."""
    z_TD = real_array(z_TD, "latents", "T", "D")
    return np.linalg.norm(z_TD - real_array(z_goal_D, "goal", z_TD.shape[1]), axis=1)


def final_errors(measures: Sequence[Measure], row: Row, goal: Row) -> dict[str, float]:
    """How far each part of the true state is from the goal's, in the measure's unit."""
    found = {}
    for measure in measures:
        if measure.column in row and measure.column in goal:
            index = list(measure.index)
            missed = (
                np.asarray(row[measure.column])[index] - np.asarray(goal[measure.column])[index]
            )
            missed = wrap_angle(missed) if measure.angle else missed
            found[measure.name] = float(np.linalg.norm(missed) * measure.scale)
    return found
