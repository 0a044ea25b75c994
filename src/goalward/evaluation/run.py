"""An evaluation: controllers on the same pairs, in a folder that keeps every row.

The folder holds `pairs.safetensors`, `results/` with one file a controller and seed, and latencies.
Running it again runs what is missing; other controllers can be added later.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from goalward import defaults
from goalward.bundle import bundled_pairs
from goalward.control.controller import stats_of
from goalward.core.config import content_id, differences, from_json, read_json, to_json, write_json
from goalward.core.machine import Provenance, processor, this_provenance
from goalward.data.episodes import episodes_id, open_episodes
from goalward.evaluation.latency import Latency, measure_latency
from goalward.evaluation.pairs import (
    PAIRS,
    Pair,
    Pairs,
    PairsConfig,
    draw_pairs,
    load_pairs,
    save_pairs,
)
from goalward.evaluation.results import RESULTS, EpisodeResult, Results, ResultsFile
from goalward.evaluation.rollout import (
    Episode,
    action_jerk,
    approach_rate,
    batches,
    final_errors,
    run_batch,
)
from goalward.evaluation.simulators import SimulatorController, SimulatorPools
from goalward.evaluation.specs import ControllerSpec, first_seeds
from goalward.world.frozen import FrameEncoder
from goalward.world.protocol import Encoder

LATENCY = "latency-{}.json"
TIMED_DECISIONS = 50  # two plans of the paper's planners
VERSION = 3  # of the rows: raised when the same controller gives others
OnProgress = Callable[[int, int, str], None]  # episodes done, of those in this session, controller


def prepare_pairs(folder: Path, wanted: PairsConfig, dataset: Path | None) -> Pairs:
    """The pairs of a folder; if it has none yet, drawn from the dataset, or the bundled ones."""
    path = folder / PAIRS
    if not path.exists():
        if dataset is None:
            drawn = bundled_pairs(wanted.task, wanted.count, wanted.protocol)
            remedy = "the pairs that come with goalward are others; give episodes to draw some"
            _require_same(drawn, wanted, remedy)
        else:
            drawn = draw_pairs(dataset, wanted)
        folder.mkdir(parents=True, exist_ok=True)
        save_pairs(path, drawn)
    pairs = load_pairs(path)
    _require_same(pairs, wanted, f"{path}: holds other pairs; use another --out")
    if dataset is not None:
        with open_episodes(dataset) as episodes:
            if episodes_id(episodes) != pairs.metadata.episodes_id:
                raise ValueError(
                    f"{path}: holds pairs of other episodes than {dataset}; use another --out"
                )
    return pairs


def _require_same(pairs: Pairs, wanted: PairsConfig, remedy: str) -> None:
    if pairs.metadata.config != wanted:
        changes = differences(to_json(pairs.metadata.config), to_json(wanted))
        raise ValueError(f"{remedy} ({changes})")


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """What the controllers of an evaluation share."""

    pairs: Pairs
    budget: int
    num_envs: int  # that run side by side
    observer: Encoder | None = None  # measures latent distances, outside the controllers' time

    @cached_property
    def observe(self) -> FrameEncoder:
        """Frames to the observer's latents."""
        assert self.observer is not None
        return FrameEncoder(self.observer)

    def run_id(self, spec: ControllerSpec) -> str:
        """The hash of everything that a controller's rows depend on."""
        about = {
            "version": VERSION,
            "controller": spec.name,
            "config": to_json(spec.config),
            "model": spec.model_id,
            "seed": spec.seed,
            "pairs": self.pairs.id,
            "budget": self.budget,
            "num_envs": self.num_envs,
            "observer": None if self.observer is None else self.observer.id,
        }
        return content_id(about)

    def file(self, folder: Path, spec: ControllerSpec) -> ResultsFile:
        """Where a controller's rows are."""
        plain = "".join(c if c.isalnum() or c in "-_." else "-" for c in spec.name.split(":")[0])
        name = f"{plain}-seed{spec.seed}-{self.run_id(spec)}.jsonl"
        return ResultsFile(folder / RESULTS / name)


def evaluate(
    folder: Path | None,
    pairs: Pairs,
    specs: Sequence[ControllerSpec],
    *,
    observer: Encoder | None = None,
    budget: int = defaults.BUDGET,
    num_envs: int = defaults.NUM_ENVS,
    workers: int = 1,
    pools: SimulatorPools | None = None,
    timed: bool = True,
    on_progress: OnProgress | None = None,
) -> Results:
    """Run what is missing of every controller and seed, and time each controller.

    Args:
        folder: Where rows are kept; None: nowhere.
        pairs: What to evaluate on.
        specs: Controllers, each with its seed; names and seeds differ.
        observer: Measures latent distances.
        budget: Steps an episode may take.
        num_envs: Environments that run side by side.
        workers: Processes with simulators; the result does not depend on their number.
        pools: Simulators that earlier evaluations may have started (default: new ones).
        timed: Whether to time decisions of one environment alone.
        on_progress: Called before each controller, and after every batch of episodes.
    """
    number = min(num_envs, len(pairs))
    config = EvaluationConfig(pairs=pairs, budget=budget, num_envs=number, observer=observer)
    show = on_progress or (lambda *_: None)
    rows: list[EpisodeResult] = []
    provenance: dict[str, list[Provenance]] = {}
    new = 0
    with (
        tempfile.TemporaryDirectory() as temporary,
        SimulatorPools(workers) if pools is None else nullcontext(pools) as opened,
    ):
        kept = folder or Path(temporary)
        if not (kept / PAIRS).exists():
            kept.mkdir(parents=True, exist_ok=True)
            save_pairs(kept / PAIRS, pairs)
        for spec in specs:
            file = config.file(kept, spec)
            known = {row.pair: row for row in file.read()}
            show(len(rows) + len(known), new, spec.name)
            for measured in _run_missing(config, spec, opened, known.keys()):
                file.add_provenance(this_provenance())
                file.append(measured)
                known |= {row.pair: row for row in measured}
                new += len(measured)
                show(len(rows) + len(known), new, spec.name)
            rows += [known[pair.number] for pair in pairs.pairs]
            provenance.setdefault(spec.name, []).extend(file.provenance())
        latency = compare_latencies(kept, config, specs) if timed else {}
    return Results(
        pairs=pairs, rows=tuple(rows), provenance=provenance, latency=latency, folder=folder
    )


def _run_missing(
    config: EvaluationConfig, spec: ControllerSpec, pools: SimulatorPools, known: Set[int]
) -> Iterator[list[EpisodeResult]]:
    """Run every batch with a pair that has no row yet, and give these pairs' rows."""
    controller, simulators = None, pools.use(*config.pairs.setting, config.num_envs)
    for batch in batches(config.pairs.pairs, config.num_envs):
        missing = [k for k, pair in enumerate(batch) if pair.number not in known]
        if missing:
            controller, keep_frames = controller or spec.controller(), config.observer is not None
            episodes = run_batch(
                controller, simulators, batch, budget=config.budget, keep_frames=keep_frames
            )
            stats = stats_of(controller)
            yield [_row(config, spec, batch[k], episodes[k], stats.of(k)) for k in missing]


def _row(
    config: EvaluationConfig,
    spec: ControllerSpec,
    pair: Pair,
    episode: Episode,
    computed: Mapping[str, Any],
) -> EpisodeResult:
    asked, seconds = config.pairs.metadata.config, episode.decision_seconds
    return EpisodeResult(
        task=asked.task,
        protocol=asked.protocol,
        method=spec.name,
        run_id=config.run_id(spec),
        pairs=config.pairs.id,
        seed=spec.seed,
        pair=pair.number,
        episode=pair.episode,
        budget=config.budget,
        success=episode.success,
        steps=episode.steps,
        jerk=action_jerk(episode.actions),
        errors=final_errors(config.pairs.task.probe_targets, episode.rows[-1], pair.goal),
        batched_latency_ms=None if seconds is None else 1000 * seconds / episode.steps,
        **computed,
        **_latent_measures(config, pair, episode),
    )


def _latent_measures(config: EvaluationConfig, pair: Pair, episode: Episode) -> dict[str, Any]:
    if config.observer is None:
        return {"monotonic": None, "approach_rate": None, "latent_distance": None}
    frames = np.concatenate([pair.goal_frame[None], episode.frames])
    z_ND = config.observe(torch.from_numpy(frames)).cpu().numpy()
    distances = np.linalg.norm(z_ND[1:] - z_ND[0], axis=1)
    rate = approach_rate(distances)
    return {"monotonic": rate == 1, "approach_rate": rate, "latent_distance": float(distances[-1])}


def compare_latencies(
    folder: Path, config: EvaluationConfig, specs: Sequence[ControllerSpec]
) -> dict[str, Latency]:
    """Each controller's times at one environment, all taken in one session.

    They are kept in the folder for these controllers together, and taken again under other
    circumstances: times of different sessions do not compare.
    """
    first = first_seeds(specs)
    path = folder / LATENCY.format(content_id(sorted(map(config.run_id, first)))[:8])
    now = _circumstances(specs)
    known = read_json(path, seal=True) if path.exists() else {}
    if known.get("circumstances") != now:
        frame, latency = config.pairs.pairs[0].goal_frame[None], {}
        for spec in first:
            controller = spec.controller()
            if not isinstance(controller, SimulatorController):
                latency[spec.name] = to_json(
                    measure_latency(
                        controller, frame, decisions=TIMED_DECISIONS, budget=config.budget
                    )
                )
        known = {"circumstances": now, "latency": latency}
        write_json(path, known, seal=True)
    return {name: from_json(Latency, one) for name, one in known["latency"].items()}


def _circumstances(specs: Sequence[ControllerSpec]) -> dict[str, Any]:
    """What times depend on beside the controller."""
    return {
        "machine": processor(),
        "threads": torch.get_num_threads(),
        "devices": sorted({spec.device for spec in specs}),
        "torch": torch.__version__,
        "git_revision": this_provenance().git_revision,
    }
