"""Chosen episodes as pictures: the demonstration and every method on the same pair."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from goalward import defaults
from goalward.config import content_id
from goalward.evaluate.control import run_wave
from goalward.evaluate.evaluation import Run
from goalward.evaluate.filmstrip import Strip, save_filmstrip, save_gif
from goalward.evaluate.frozen_pairs import FrozenPairs
from goalward.evaluate.pairs import Attempt
from goalward.evaluate.simulators import SimulatorPool, simulator_pool

SHOWN = 1  # pairs, if none are named


def require_pairs(shown: Sequence[int], count: int) -> None:
    """Refuse to show pairs that there are not.

    Raises:
        ValueError: there is no pair of that number.
    """
    for number in shown:
        if not 0 <= number < count:
            raise ValueError(f"there is no pair {number}, only 0 to {count - 1}")


def save_comparison(
    folder: Path,
    pairs: FrozenPairs,
    runs: Sequence[Run],
    *,
    shown: Sequence[int] = tuple(range(SHOWN)),
    budget: int = defaults.BUDGET,
) -> list[Path]:
    """Write a filmstrip and a GIF of each shown pair, unless they are there; returns the paths.

    Args:
        folder: Where to write.
        pairs: Of an evaluation.
        runs: The methods to show; of several seeds of one, the first.
        shown: Numbers of the pairs.
        budget: Steps an episode may take.

    Raises:
        ValueError: there is no pair of that number.
    """
    require_pairs(shown, len(pairs.attempts))
    methods = list({run.method.name: run for run in reversed(runs)}.values())[::-1]
    about = [
        budget,
        pairs.id,
        [(run.method.name, run.method.model_id, run.seed) for run in methods],
    ]
    drawn = content_id(about)[:6]  # other methods have pictures of their own
    names = [(number, _paths(folder, f"pair-{number}-{drawn}")) for number in shown]
    missing = [(number, paths) for number, paths in names if not all(p.exists() for p in paths)]
    if missing:
        card = pairs.card
        task, protocol = card.config.task, card.config.protocol
        with simulator_pool(task, protocol, card.scene, number=1, workers=1) as pool:
            for number, paths in missing:
                attempt = pairs.attempts[number]
                strips = [
                    _demonstration(pool, attempt),
                    *(_strip(run, pool, attempt, budget) for run in methods),
                ]
                title = f"{task}, pair {number}"
                start = strips[0].frames[0]
                save_filmstrip(paths[0], start, attempt.goal_frame, strips, title=title)
                save_gif(paths[1], attempt.goal_frame, strips)
    return [path for _, paths in names for path in paths]


def _paths(folder: Path, name: str) -> tuple[Path, Path]:
    return folder / f"{name}.png", folder / f"{name}.gif"


def _demonstration(pool: SimulatorPool, attempt: Attempt) -> Strip:
    """The recorded actions, replayed."""
    frames = [pool.begin({0: (attempt.start, attempt.goal)})[0].frame]
    frames += [pool.step({0: action})[0].frame for action in attempt.recorded]
    return Strip(label="demonstration", frames=np.stack(frames), success=None)


def _strip(run: Run, pool: SimulatorPool, attempt: Attempt, budget: int) -> Strip:
    (episode,) = run_wave(run.method.make(run.seed), pool, [attempt], budget=budget)
    label = run.method.name.partition(":")[0]  # settings would leave the frames no room
    return Strip(label=label, frames=episode.frames, success=episode.success)
