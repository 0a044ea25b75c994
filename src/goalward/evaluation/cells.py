"""Cells of an evaluation: one method with one seed on one set of pairs, run once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from goalward.control.controller import MOST_STEPS, Controller
from goalward.core.checks import format_value, whole_number
from goalward.core.config import content_id, to_json
from goalward.core.machine import this_origin
from goalward.evaluation.pairs import Pair, Pairs
from goalward.evaluation.results import EpisodeResult, ResultsFile
from goalward.evaluation.rollout import (
    Episode,
    action_jerk,
    approach_rate,
    final_errors,
    is_monotonic,
    latent_distances,
    run_wave,
    waves,
)
from goalward.evaluation.simulators import SimulatorPool
from goalward.tasks import get_task
from goalward.world.frozen import FrameEncoder

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ROWS = "results"
VERSION = 2  # of what a cell gives: raised when the same cell comes out otherwise
OnEpisodes = Callable[[int, int], None]  # (rows found, episodes run) since the last call


@dataclass(frozen=True, kw_only=True)
class ControllerSpec:
    """One way of acting."""

    name: str
    config: DataclassInstance  # all that its actions depend on, but for the model and the seed
    model_id: str | None  # of the weights that it uses
    make: Callable[[int], Controller]  # a seed to a new controller
    device: str = "cpu"  # where it computes


@dataclass(frozen=True, kw_only=True)
class Observer:
    """An encoder to measure latent distances with, the same for all methods."""

    world_id: str
    encode: FrameEncoder


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """What the cells of an evaluation share."""

    pairs: Pairs
    budget: int
    environments: int  # that run side by side
    observer: Observer | None = None  # measures latent distances, outside the methods' time

    def __post_init__(self) -> None:
        if not isinstance(self.pairs, Pairs):
            raise ValueError(f"pairs must be Pairs, got {format_value(self.pairs)}")
        whole_number(self.budget, "budget", most=MOST_STEPS)
        whole_number(self.environments, "environments")

    def run_id(self, method: ControllerSpec, seed: int) -> str:
        """What a cell's rows depend on."""
        about = {
            "version": VERSION,
            "method": method.name,
            "config": to_json(method.config),
            "model": method.model_id,
            "seed": seed,
            "pairs": self.pairs.id,
            "budget": self.budget,
            "environments": self.environments,
            "observer": None if self.observer is None else self.observer.world_id,
        }
        return content_id(about)

    def row_file(self, folder: Path, method: ControllerSpec, seed: int) -> ResultsFile:
        """Where the rows of a cell are."""
        plain = method.name.partition(":")[0]  # its settings are in the id
        name = f"{plain}-seed{seed}-{self.run_id(method, seed)}.jsonl"
        return ResultsFile(folder / ROWS / name)


def run_cell(
    setting: EvaluationConfig,
    method: ControllerSpec,
    seed: int,
    pool: SimulatorPool,
    folder: Path,
    *,
    on_episodes: OnEpisodes | None = None,
) -> list[EpisodeResult]:
    """Run the pairs of a cell that have no row yet; returns all its rows, by pair.

    Args:
        setting: Pairs, budget and environments.
        method: The way of acting.
        seed: Of its random draws.
        pool: Simulators, as many as the setting says.
        folder: Of the evaluation; rows are appended there, a group at a time.
        on_episodes: Told about rows that are there already, and then about every group of episodes.
    """
    file = setting.row_file(folder, method, seed)
    rows = {row.pair: row for row in file.read()}
    if on_episodes is not None:
        on_episodes(len(rows), 0)
    controller: Controller | None = None
    for wave in waves(setting.pairs.attempts, setting.environments):
        if all(attempt.pair in rows for attempt in wave):
            continue
        controller = controller or method.make(seed)
        missing = [attempt.pair for attempt in wave if attempt.pair not in rows]
        found = _run(setting, method, seed, controller, pool, wave)
        new = [row for row in found if row.pair in missing]
        file.note(this_origin())
        file.append(new)
        rows.update({row.pair: row for row in new})
        if on_episodes is not None:
            on_episodes(0, len(new))
    return [rows[attempt.pair] for attempt in setting.pairs.attempts]


def _run(
    setting: EvaluationConfig,
    method: ControllerSpec,
    seed: int,
    controller: Controller,
    pool: SimulatorPool,
    wave: Sequence[Pair],
) -> list[EpisodeResult]:
    """The rows of one group of pairs."""
    observer = setting.observer
    keep = observer is not None
    episodes = run_wave(controller, pool, wave, budget=setting.budget, keep_frames=keep)
    calls, plans = predictor_calls(controller, len(wave)), getattr(controller, "plans", None)
    config = setting.pairs.metadata.config
    common = {
        "task": config.task,
        "protocol": config.protocol,
        "method": method.name,
        "run_id": setting.run_id(method, seed),
        "pairs": setting.pairs.id,
        "seed": seed,
        "budget": setting.budget,
    }
    return [
        EpisodeResult(
            **common,  # type: ignore[arg-type]
            pair=attempt.pair,
            episode=attempt.episode,
            plans=None if plans is None else int(plans[k]),
            predictor_calls=int(calls[k]),
            **_outcome(config.task, attempt, episode),  # type: ignore[arg-type]
            **_latent_facts(attempt, episode, observer),  # type: ignore[arg-type]
        )
        for k, (attempt, episode) in enumerate(zip(wave, episodes, strict=True))
    ]


def predictor_calls(controller: Controller, number: int) -> Sequence[int]:
    """Calls of the world model's predictor for each environment since its reset."""
    calls: Sequence[int] = getattr(controller, "predictor_calls", [0] * number)  # none: no planner
    return calls


def _outcome(task: str, attempt: Pair, episode: Episode) -> Mapping[str, object]:
    return {
        "success": episode.success,
        "steps": episode.steps,
        "jerk": action_jerk(episode.actions),
        "errors": final_errors(get_task(task).probe_targets, episode.rows[-1], attempt.goal),
        "batched_latency_ms": 1000 * episode.decision_seconds / episode.steps,
    }


def _latent_facts(
    attempt: Pair, episode: Episode, observer: Observer | None
) -> Mapping[str, object]:
    if observer is None:
        return {"monotonic": None, "approach_rate": None, "latent_distance": None}
    frames = np.concatenate([attempt.goal_frame[None], episode.frames])
    z_ND = observer.encode(torch.from_numpy(frames)).cpu().numpy()
    distances = latent_distances(z_ND[1:], z_ND[0])
    return {
        "monotonic": is_monotonic(distances),
        "approach_rate": approach_rate(distances),
        "latent_distance": float(distances[-1]),
    }
