"""Letting a controller work on start and goal pairs, several at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from goalward.arrays import real_array
from goalward.checks import whole_number
from goalward.controllers.base import Controller
from goalward.controllers.environments import MOST_STEPS
from goalward.evaluate.pairs import Attempt
from goalward.evaluate.simulators import Moment, SimulatorPool
from goalward.tasks.spec import Row
from goalward.types import Array

OnEpisode = Callable[["Episode"], None]


@dataclass(frozen=True, kw_only=True)
class Episode:
    """How one attempt went."""

    pair: int
    success: bool
    actions: Array  # (steps, A)
    rows: tuple[Row, ...]  # the true states, from the start on
    frames: Array  # (steps + 1, side, side, 3), or (0, side, side, 3) if they were not kept
    decision_seconds: float  # spent on its actions; a batch's time is shared evenly

    @property
    def steps(self) -> int:
        """Steps taken: those to success, or the whole budget."""
        return len(self.actions)


def waves(work: Sequence[Attempt], number: int) -> Iterator[Sequence[Attempt]]:
    """Attempts in groups that run side by side.

    Groups are fixed, because a network's rounding depends on the batch: so an evaluation that was
    interrupted ends in the very rows of an unbroken one.
    """
    for first in range(0, len(work), number):
        yield work[first : first + number]


def run_attempts(
    controller: Controller,
    pool: SimulatorPool,
    work: Sequence[Attempt],
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
    wave: Sequence[Attempt],
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

    def __init__(self, attempt: Attempt, start: Moment, keep_frames: bool) -> None:
        self._pair, self._keep_frames = attempt.pair, keep_frames
        self.action_dim = attempt.recorded.shape[1]
        self._frames: list[Array] = []
        self._rows: list[Row] = []
        self._actions: list[Array] = []
        self._seconds = 0.0
        self._see(start)

    @property
    def frame(self) -> Array:
        return self._now.frame

    @property
    def success(self) -> bool:
        return self._now.success

    def add(self, action: Array, moment: Moment, seconds: float) -> None:
        self._actions.append(action)
        self._seconds += seconds
        self._see(moment)

    def _see(self, moment: Moment) -> None:
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
