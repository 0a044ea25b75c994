"""Baselines: the success of controllers that learn nothing, and of replayed demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from goalward import defaults
from goalward.data.episodes import Episodes
from goalward.evaluation.pairs import Pairs, state_rows
from goalward.evaluation.results import Results
from goalward.evaluation.run import evaluate
from goalward.evaluation.specs import resolve_controllers
from goalward.tasks.task import Task

REPLAY = "replay"


def baseline_names(task: Task) -> tuple[str, ...]:
    """A task's baselines, and the replay of recorded actions."""
    return (*task.baselines, REPLAY)


def measure_baselines(pairs: Pairs, names: Sequence[str] | None = None, **options: Any) -> Results:
    """Success of baselines (default: all) on the pairs; options are those of `evaluate`."""
    chosen = baseline_names(pairs.task) if names is None else names
    specs, _ = resolve_controllers(pairs.task, chosen, device="cpu")
    return evaluate(None, pairs, specs, timed=False, **options)


def solved_at_start(episodes: Episodes, task: Task) -> dict[str, float]:
    """For each protocol, the share of all pairs whose start already meets the goal."""
    starts = episodes.window_starts(defaults.GOAL_OFFSET + 1)
    if len(starts) == 0:
        return {}
    start, goal = (state_rows(episodes, task, starts + k) for k in (0, defaults.GOAL_OFFSET))
    return {
        name: float(np.mean(protocol.solved(start, goal)))
        for name, protocol in task.protocols.items()
    }
