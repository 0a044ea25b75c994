"""Controllers at work on pairs, several at a time, and measures of the trajectories."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from goalward.control.controller import Controller
from goalward.core.arrays import Array, real_array
from goalward.evaluation.pairs import Pair
from goalward.evaluation.simulators import SimulatorController, SimulatorPools, StepResult
from goalward.tasks.task import ProbeTarget, State, wrap_angle


def action_jerk(actions: Array) -> float | None:
    """Mean norm of the second difference of the actions (T, A); None for fewer than three."""
    if len(actions) < 3:
        return None
    second = actions[2:] - 2 * actions[1:-1] + actions[:-2]
    return float(np.linalg.norm(second, axis=1).mean())


def approach_rate(distances: Array) -> float:
    """Share of the steps at which the latent distance to the goal (T + 1,) falls."""
    return float((np.diff(distances) < 0).mean())


def final_errors(targets: Sequence[ProbeTarget], row: State, goal: State) -> dict[str, float]:
    """How far each part of the true state is from the goal's, in the part's unit."""
    found = {}
    for target in targets:
        if target.column in row and target.column in goal:
            index = list(target.index)
            missed = np.asarray(row[target.column])[index] - np.asarray(goal[target.column])[index]
            missed = wrap_angle(missed) if target.angle else missed
            found[target.name] = float(np.linalg.norm(missed) * target.scale)
    return found


@dataclass(frozen=True, kw_only=True)
class Episode:
    """What happened on one pair."""

    pair: int  # its number
    results: tuple[StepResult, ...]  # from the start on
    decision_seconds: float | None  # spent on its actions; a batch's time is shared evenly

    @property
    def success(self) -> bool:
        """Whether it ended in the goal."""
        return self.results[-1].success

    @property
    def steps(self) -> int:
        """Steps taken: those to success, or the whole budget."""
        return len(self.results) - 1

    @property
    def actions(self) -> Array:
        """Those taken, (steps, A)."""
        return np.stack([result.action for result in self.results[1:] if result.action is not None])

    @property
    def rows(self) -> list[State]:
        """The true states, from the start on."""
        return [result.row for result in self.results]

    @property
    def frames(self) -> Array:
        """What was seen, (steps + 1, side, side, 3)."""
        return np.stack([result.frame for result in self.results])


def batches(pairs: Sequence[Pair], number: int) -> Iterator[Sequence[Pair]]:
    """Pairs in groups that run side by side.

    Groups are fixed, because a network's rounding depends on the batch: so a resumed evaluation
    gives results that are identical to those of an uninterrupted one.
    """
    for first in range(0, len(pairs), number):
        yield pairs[first : first + number]


def run_batch(
    controller: Controller | SimulatorController,
    pool: SimulatorPools,
    batch: Sequence[Pair],
    *,
    budget: int,
    keep_frames: bool = True,
) -> list[Episode]:
    """Run pairs side by side, at most one a simulator, until success or the end of the budget.

    Without `keep_frames`, nothing is drawn for a controller that sees no frames.
    """
    inside = controller if isinstance(controller, SimulatorController) else None
    started = pool.begin(dict(enumerate(batch)), inside, frames=keep_frames or inside is None)
    results = [[started[k]] for k in range(len(batch))]
    seconds = [0.0] * len(batch)
    if not isinstance(controller, SimulatorController):
        controller.reset(np.stack([pair.goal_frame for pair in batch]), budget)
    for _ in range(budget):
        active = [k for k, so_far in enumerate(results) if not so_far[-1].success]
        if not active:
            break
        frames = np.stack([results[k][-1].frame for k in active])
        actions: Sequence[Array | None] = [None] * len(active)
        if not isinstance(controller, SimulatorController):
            begun = time.perf_counter()
            found = controller.act(frames, environments=active)
            spent = (time.perf_counter() - begun) / len(active)
            wanted = (len(active), batch[0].recorded.shape[1])
            actions = [*real_array(found, "the controller's actions", *wanted)]
            for k in active:
                seconds[k] += spent
        for k, result in pool.step(dict(zip(active, actions, strict=True))).items():
            results[k].append(result)
    return [
        Episode(pair=pair.number, results=tuple(shown), decision_seconds=None if inside else spent)
        for pair, shown, spent in zip(batch, results, seconds, strict=True)
    ]
