"""An evaluation: methods compared on the same frozen pairs, in a folder that keeps every row.

The folder holds `pairs.npz`, `results/` with one file a method and seed, and the methods' times.
Running it again runs what is missing; other methods can be added later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from goalward import defaults
from goalward.core.config import content_id, differences, from_json, read_json, to_json, write_json
from goalward.core.machine import Provenance, processor, this_origin
from goalward.data.episodes import episodes_id, open_episodes
from goalward.evaluation.cells import ControllerSpec, EvaluationConfig, Observer, run_cell
from goalward.evaluation.latency import Latency, SpeedUp, measure_latency
from goalward.evaluation.pairs import Pairs, PairsConfig, draw_pairs, load_pairs, save_pairs
from goalward.evaluation.results import EpisodeResult, MethodSummary, pair_subsets, summarise
from goalward.evaluation.simulators import SimulatorPools
from goalward.evaluation.specs import REFERENCE
from goalward.tasks import get_task

PAIRS, LATENCY = "pairs.npz", "latency-{}.json"
TIMED_DECISIONS = 50  # two plans of the paper's planners
OnProgress = Callable[[int, int, str], None]  # (episodes done, of this sitting, method)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One method with one seed."""

    method: ControllerSpec
    seed: int


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What was found."""

    pairs: Pairs
    rows: Mapping[str, Sequence[EpisodeResult]]  # of all seeds, by method
    origins: Mapping[str, Sequence[Provenance]]  # of the rows
    latency: Mapping[str, Latency]  # of one environment alone, by method

    def summaries(self) -> list[MethodSummary]:
        """One line a method and subset of pairs, compared with the reference if it is there."""
        task = get_task(self.pairs.metadata.config.task)
        return summarise(self.rows, pair_subsets(task, self.pairs.attempts), REFERENCE)

    def speed_ups(self) -> dict[str, SpeedUp]:
        """How much faster than the reference each method is; empty without the reference."""
        reference = self.latency.get(REFERENCE)
        if reference is None:
            return {}
        return {name: SpeedUp.of(found, reference) for name, found in self.latency.items()}


def prepare_pairs(folder: Path, config: PairsConfig, dataset: Path | None) -> Pairs:
    """The folder's pairs; drawn from the dataset and frozen there if it has none yet.

    Raises:
        ValueError: the folder holds other pairs, or there is nothing to draw from.
        OSError: there is no such dataset.
    """
    path = folder / PAIRS
    if not path.exists():
        if dataset is None:
            raise ValueError(f"{path}: no pairs there yet; give the episodes to draw them from")
        drawn = draw_pairs(dataset, config)
        folder.mkdir(parents=True, exist_ok=True)
        save_pairs(path, drawn)
    pairs = load_pairs(path)
    if pairs.metadata.config != config:
        changes = differences(to_json(pairs.metadata.config), to_json(config))
        raise ValueError(f"{path}: other pairs than asked for ({changes}); use another --out")
    if dataset is not None:
        with open_episodes(dataset) as episodes:
            if episodes_id(episodes) != pairs.metadata.episodes_id:
                raise ValueError(
                    f"{path}: pairs of other episodes than {dataset}; use another --out"
                )
    return pairs


def evaluate(
    folder: Path,
    pairs: Pairs,
    runs: Sequence[Run],
    *,
    observer: Observer | None = None,
    budget: int = defaults.BUDGET,
    environments: int = defaults.ENVIRONMENTS,
    workers: int = 1,
    pools: SimulatorPools | None = None,
    timed: bool = True,
    on_progress: OnProgress | None = None,
) -> Evaluation:
    """Run what is missing of every method and seed, and time each method.

    Args:
        folder: Where rows are kept.
        pairs: What to evaluate on.
        runs: Methods and seeds.
        observer: Measures latent distances.
        budget: Steps an episode may take.
        environments: That run side by side.
        workers: Processes with simulators; the result does not depend on their number.
        pools: Simulators that earlier evaluations may have started (default: new ones).
        timed: Whether to time decisions of one environment alone.
        on_progress: Called after every group of episodes.

    Raises:
        ValueError: two runs have the same name and seed.
    """
    _require_no_run_twice(runs)
    number = min(environments, len(pairs.attempts))
    setting = EvaluationConfig(pairs=pairs, budget=budget, environments=number, observer=observer)
    config = pairs.metadata.config
    rows: dict[str, list[EpisodeResult]] = {}
    origins: dict[str, list[Provenance]] = {}
    done = new = 0
    with SimulatorPools(workers) if pools is None else nullcontext(pools) as opened:
        pool = opened.pool(config.task, config.protocol, pairs.metadata.scene, number)
        for run in runs:

            def tell(found: int, episodes: int, name: str = run.method.name) -> None:
                nonlocal done, new
                done += found + episodes
                new += episodes
                if on_progress is not None:
                    on_progress(done, new, name)

            cell = run_cell(setting, run.method, run.seed, pool, folder, on_episodes=tell)
            rows.setdefault(run.method.name, []).extend(cell)
            noted = setting.row_file(folder, run.method, run.seed).origins()
            origins.setdefault(run.method.name, []).extend(noted)
    latency = compare_latencies(folder, setting, runs) if timed else {}
    return Evaluation(pairs=pairs, rows=rows, origins=origins, latency=latency)


def _require_no_run_twice(runs: Sequence[Run]) -> None:
    for (name, seed), times in Counter((run.method.name, run.seed) for run in runs).items():
        if times > 1:
            raise ValueError(
                f"{name} is there twice with seed {seed}; give controllers other names, or a "
                "method only once"
            )


def compare_latencies(
    folder: Path, setting: EvaluationConfig, runs: Sequence[Run]
) -> dict[str, Latency]:
    """Each method's times at one environment, all taken in one sitting.

    They are kept in the folder for these methods together, and taken anew under other
    circumstances: times of different sittings do not compare.
    """
    methods = {run.method.name: run for run in reversed(runs)}
    cells = {name: setting.run_id(run.method, run.seed) for name, run in methods.items()}
    path = folder / LATENCY.format(content_id(sorted(cells.values()))[:8])
    now = _circumstances(runs)
    known = read_json(path) if path.exists() else {}
    if known.get("circumstances") != now:
        times = {cells[name]: to_json(_timed(setting, run)) for name, run in methods.items()}
        known = {"circumstances": now, "cells": times}
        write_json(path, known)
    return {name: from_json(Latency, known["cells"][cell]) for name, cell in cells.items()}


def _timed(setting: EvaluationConfig, run: Run) -> Latency:
    frame = np.stack([setting.pairs.attempts[0].goal_frame])
    return measure_latency(
        lambda: run.method.make(run.seed), frame, decisions=TIMED_DECISIONS, budget=setting.budget
    )


def _circumstances(runs: Sequence[Run]) -> dict[str, Any]:
    """What times depend on beside the method."""
    devices = sorted({run.method.device for run in runs})
    return {
        "machine": processor(),
        "threads": torch.get_num_threads(),
        "devices": devices,
        "torch": torch.__version__,
        "git_revision": this_origin().git_revision,
    }
