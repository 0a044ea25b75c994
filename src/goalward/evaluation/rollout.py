"""Letting a controller work on start and goal pairs, several at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from goalward.control.controller import MOST_STEPS, Controller
from goalward.core.arrays import Array, real_array
from goalward.core.checks import whole_number
from goalward.evaluation.pairs import Pair
from goalward.evaluation.simulators import SimulatorPool, StepResult
from goalward.tasks.task import ProbeTarget, State, wrap_angle


def action_jerk(actions: Array) -> float | None:
    """Mean norm of the second difference of the actions (T, A); None for fewer than three."""
    actions = real_array(actions, "actions", "T", "A")
    if len(actions) < 3:
        return None
    second = actions[2:] - 2 * actions[1:-1] + actions[:-2]
    return float(np.linalg.norm(second, axis=1).mean())


def is_monotonic(distances: Array) -> bool:
    """Whether the latent distance to the goal (T + 1,) falls at every step."""
    return bool((np.diff(real_array(distances, "distances", "T")) < 0).all())


def approach_rate(distances: Array) -> float:
    """Share of the steps at which the latent distance to the goal (T + 1,) falls."""
    return float((np.diff(real_array(distances, "distances", "T")) < 0).mean())


def latent_distances(z_TD: Array, z_goal_D: Array) -> Array:
    """Euclidean distances to the goal: (T,)."""
    z_TD = real_array(z_TD, "latents", "T", "D")
    return np.linalg.norm(z_TD - real_array(z_goal_D, "goal", z_TD.shape[1]), axis=1)


def final_errors(measures: Sequence[ProbeTarget], row: State, goal: State) -> dict[str, float]:
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


OnEpisode = Callable[["Episode"], None]


@dataclass(frozen=True, kw_only=True)
class Episode:
    """How one attempt went."""

    pair: int
    success: bool
    actions: Array  # (steps, A)
    rows: tuple[State, ...]  # the true states, from the start on
    frames: Array  # (steps + 1, side, side, 3), or (0, side, side, 3) if they were not kept
    decision_seconds: float  # spent on its actions; a batch's time is shared evenly

    @property
    def steps(self) -> int:
        """Steps taken: those to success, or the whole budget."""
        return len(self.actions)


def waves(work: Sequence[Pair], number: int) -> Iterator[Sequence[Pair]]:
    """Attempts in groups that run side by side.

    Groups are fixed, because a network's rounding depends on the batch: so an evaluation that was
    interrupted ends in the very rows of an unbroken one.
    """
    for first in range(0, len(work), number):
        yield work[first : first + number]


def run_attempts(
    controller: Controller,
    pool: SimulatorPool,
    work: Sequence[Pair],
    *,
    budget: int,
    on_episode: OnEpisode | None = None,
    keep_frames: bool = False,
) -> list[Episode]:
    """Run every attempt until success or until the budget is spent, in the order of `work`."""
    finished: list[Episode] = []
    for wave in waves(work, pool.number):
        for episode in run_wave(controller, pool, wave, budget=budget, keep_frames=keep_frames):
            finished.append(episode)
            if on_episode is not None:
                on_episode(episode)
    return finished


def run_wave(
    controller: Controller,
    pool: SimulatorPool,
    wave: Sequence[Pair],
    *,
    budget: int,
    keep_frames: bool = True,
) -> list[Episode]:
    """Run at most as many attempts as there are simulators, side by side."""
    assert len(wave) <= pool.number
    whole_number(budget, "budget", most=MOST_STEPS)
    moments = pool.begin({k: (attempt.start, attempt.goal) for k, attempt in enumerate(wave)})
    episodes = [_Running(attempt, moments[k], keep_frames) for k, attempt in enumerate(wave)]
    controller.reset(np.stack([attempt.goal_frame for attempt in wave]), budget)
    for _ in range(budget):
        active = [k for k, episode in enumerate(episodes) if not episode.success]
        if not active:
            break
        _step(controller, pool, episodes, active)
    return [episode.finished() for episode in episodes]


class _Running:
    """An attempt under way."""

    def __init__(self, attempt: Pair, start: StepResult, keep_frames: bool) -> None:
        self._pair, self._keep_frames = attempt.pair, keep_frames
        self.action_dim = attempt.recorded.shape[1]
        self._frames: list[Array] = []
        self._rows: list[State] = []
        self._actions: list[Array] = []
        self._seconds = 0.0
        self._see(start)

    @property
    def frame(self) -> Array:
        return self._now.frame

    @property
    def success(self) -> bool:
        return self._now.success

    def add(self, action: Array, moment: StepResult, seconds: float) -> None:
        self._actions.append(action)
        self._seconds += seconds
        self._see(moment)

    def _see(self, moment: StepResult) -> None:
        self._now = moment
        self._rows.append(moment.row)
        if self._keep_frames:
            self._frames.append(moment.frame)

    def finished(self) -> Episode:
        return Episode(
            pair=self._pair,
            success=self.success,
            actions=np.stack(self._actions),
            rows=tuple(self._rows),
            frames=np.stack(self._frames) if self._frames else self.frame[None][:0],
            decision_seconds=self._seconds,
        )


def _step(
    controller: Controller, pool: SimulatorPool, episodes: Sequence[_Running], active: list[int]
) -> None:
    """One action in every environment that is still on its way."""
    frames = np.stack([episodes[k].frame for k in active])
    started = time.perf_counter()
    actions = controller.act(frames, environments=active)
    seconds = (time.perf_counter() - started) / len(active)
    real_array(actions, "the controller's actions", len(active), episodes[0].action_dim)
    moments = pool.step(dict(zip(active, actions, strict=True)))
    for k, action in zip(active, actions, strict=True):
        episodes[k].add(action, moments[k], seconds)
