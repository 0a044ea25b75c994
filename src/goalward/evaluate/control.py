"""Letting a controller work through start and goal pairs, several at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from goalward.controllers.base import Controller
from goalward.data.episodes import Episodes
from goalward.evaluate.pairs import Pairs, state_rows
from goalward.evaluate.simulators import Moment, SimulatorPool
from goalward.tasks.spec import Row, Task
from goalward.types import Array

OnEpisode = Callable[["Episode"], None]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One pair to be run."""

    pair: int  # its number
    start: Row
    goal: Row
    goal_frame: Array  # as recorded


@dataclass(frozen=True, kw_only=True)
class Episode:
    """How one attempt went."""

    pair: int
    success: bool
    actions: Array  # (steps, A)
    rows: tuple[Row, ...]  # the true states, from the start on
    frames: Array  # (steps + 1, side, side, 3)

    @property
    def steps(self) -> int:
        """Steps taken: those to success, or the whole budget."""
        return len(self.actions)


def attempts(episodes: Episodes, task: Task, pairs: Pairs) -> list[Attempt]:
    """The pairs' states and goal frames, read at once."""
    starts = state_rows(episodes, task, pairs.start_rows)
    goals = state_rows(episodes, task, pairs.goal_rows)
    frames = episodes.rows("pixels", pairs.goal_rows)
    return [
        Attempt(
            pair=k,
            start={name: values[k] for name, values in starts.items()},
            goal={name: values[k] for name, values in goals.items()},
            goal_frame=frames[k],
        )
        for k in range(len(pairs))
    ]


def run_attempts(
    controller: Controller,
    pool: SimulatorPool,
    work: Sequence[Attempt],
    *,
    budget: int,
    on_episode: OnEpisode | None = None,
) -> list[Episode]:
    """Run every attempt until success or until the budget is spent, in the order of `work`.

    A simulator that has finished takes up the next attempt at once.
    """
    waiting = deque(work)
    running: dict[int, _Running] = {}
    finished: dict[int, Episode] = {}
    first = True
    while waiting or running:
        idle = [k for k in range(pool.number) if k not in running]
        new = {k: waiting.popleft() for k in idle if waiting}
        if new:
            _begin(controller, pool, new, running, budget, everyone=first)
            first = False
        _step(controller, pool, running)
        for k in [k for k, episode in running.items() if episode.is_over(budget)]:
            episode = running.pop(k).episode()
            finished[episode.pair] = episode
            if on_episode is not None:
                on_episode(episode)
    return [finished[attempt.pair] for attempt in work]


class _Running:
    """An attempt under way."""

    def __init__(self, attempt: Attempt, start: Moment) -> None:
        self._pair = attempt.pair
        self._moments = [start]
        self._actions: list[Array] = []

    @property
    def frame(self) -> Array:
        return self._moments[-1].frame

    def add(self, action: Array, moment: Moment) -> None:
        self._actions.append(action)
        self._moments.append(moment)

    def steps_left(self, budget: int) -> int:
        return budget - len(self._actions)

    def is_over(self, budget: int) -> bool:
        return self._moments[-1].success or not self.steps_left(budget)

    def episode(self) -> Episode:
        return Episode(
            pair=self._pair,
            success=self._moments[-1].success,
            actions=np.stack(self._actions),
            rows=tuple(moment.row for moment in self._moments),
            frames=np.stack([moment.frame for moment in self._moments]),
        )


def _begin(
    controller: Controller,
    pool: SimulatorPool,
    new: dict[int, Attempt],
    running: dict[int, _Running],
    budget: int,
    *,
    everyone: bool,
) -> None:
    """Start attempts; the first time, the controller learns how many environments there are."""
    moments = pool.begin({k: (attempt.start, attempt.goal) for k, attempt in new.items()})
    running.update({k: _Running(new[k], moments[k]) for k in new})
    goals = {k: attempt.goal_frame for k, attempt in new.items()}
    if everyone:
        # Environments that stay idle get some goal: they never act.
        some = next(iter(goals.values()))
        controller.reset(np.stack([goals.get(k, some) for k in range(pool.number)]), budget)
    else:
        controller.reset(np.stack(list(goals.values())), budget, environments=list(goals))


def _step(controller: Controller, pool: SimulatorPool, running: dict[int, _Running]) -> None:
    """One action in every running environment."""
    where = sorted(running)
    frames = np.stack([running[k].frame for k in where])
    actions = controller.act(frames, environments=where)
    moments = pool.step(dict(zip(where, actions, strict=True)))
    for k, action in zip(where, actions, strict=True):
        running[k].add(action, moments[k])
