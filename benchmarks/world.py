"""Train world models from nothing, and write `results/world/`, from which docs/WORLD.md is made.

Stages are found again under the run folder, so that an interrupted measurement goes on.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import tyro

from benchmarks.setting import PICTURES, RESULTS, RUNS, bench_pipeline
from goalward.core.arrays import Array
from goalward.core.artifacts import load_manifest
from goalward.core.config import read_config, to_json, write_json
from goalward.core.console import show_line
from goalward.core.curves import read_curves
from goalward.core.machine import machine
from goalward.core.random import generator
from goalward.data.episodes import Episodes, open_episodes
from goalward.data.splits import split_episodes
from goalward.defaults import PresetName
from goalward.tasks import TASKS
from goalward.tasks.task import ProbeTarget
from goalward.world.metrics import (
    MANY,
    ProbeData,
    ProbeScore,
    mlp_probe,
    probe_rows,
    probe_targets,
    validate_world,
)
from goalward.world.train import CURVES, LATENTS, REPORT, WorldReport

WORLDS = RESULTS / "world"
FLOOR_FRAMES = 6_000  # for the principal components
QUICK = 25  # percentile of the pace at which no other work disturbs a training


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to measure."""

    preset: PresetName = "cpu"
    """The preset to train with."""
    tasks: tuple[str, ...] = TASKS.names()
    """The tasks, one after the other."""
    runs: Path = RUNS
    """Where datasets and weights go."""


def measure(task: str, preset: PresetName, runs: Path) -> None:
    """Collect and train one task, and keep what was found in `results/world/`."""
    pipeline = bench_pipeline(task, preset, runs)
    config, data, world = pipeline.world_config(), pipeline.episodes(), pipeline.world()
    report = replace(read_config(WorldReport, world / REPORT), quality=validate_world(world, data))
    with open_episodes(data) as episodes:
        measures = probe_targets(episodes, task)
        number, frames = episodes.num_episodes, episodes.num_rows
        floor = pixel_floor(episodes, measures, config.model.latent_dim)
    collected, trained = load_manifest(data), load_manifest(world)
    history = read_curves(world)
    facts = {
        "task": task,
        "preset": preset,
        "episodes": number,
        "frames": frames,
        "collect_seconds": collected.seconds,
        "undisturbed_seconds": undisturbed_seconds(history),
        "git_revision": trained.git_revision,
        "machine": machine(),
        "torch": trained.versions["torch"],
        "report": to_json(report),
        "pixel_floor": [to_json(score) for score in floor],
        "history": [row for row in history if "held_out_loss" in row],
    }
    (WORLDS / preset).mkdir(parents=True, exist_ok=True)
    write_json(WORLDS / preset / f"{task}.json", facts)
    for picture in (CURVES, LATENTS):
        shutil.copy(world / picture, PICTURES / f"world-{preset}-{task}-{picture}")


def undisturbed_seconds(history: Sequence[Mapping[str, float]]) -> float:
    """What the optimisation takes where nothing else runs: its quickest quarter's pace all along.

    Long trainings are paused, resumed and share the machine; their clock counts all of that.
    """
    notes = np.array([(row["step"], row["seconds"]) for row in history if "loss" in row])
    steps, seconds = np.diff(notes, axis=0, prepend=[[0, 0]]).T
    return float(notes[-1, 0] * np.percentile(seconds / steps, QUICK))


def pixel_floor(
    episodes: Episodes, measures: tuple[ProbeTarget, ...], latent_dim: int
) -> tuple[ProbeScore, ...]:
    """The network probe on as many principal components of the frames as a latent has numbers."""
    split = split_episodes(episodes.num_episodes)
    rng = generator("pixel-floor", 0)
    rows = [
        probe_rows(episodes, side, limit, rng)
        for side, limit in zip((split.train, split.held_out), MANY, strict=True)
    ]
    few = rng.choice(rows[0], min(FLOOR_FRAMES, len(rows[0])), replace=False)
    sample = episodes.rows("pixels", few)
    flat = sample.reshape(len(sample), -1).astype(np.float32)
    mean = flat.mean(axis=0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        lowrank = torch.pca_lowrank(torch.from_numpy(flat - mean), q=latent_dim, center=False)
    components = lowrank[2].numpy()

    def data(part: Array) -> ProbeData:
        pieces = np.array_split(part, max(1, len(part) // 1000))
        latents = [
            (episodes.rows("pixels", p).reshape(len(p), -1) - mean) @ components for p in pieces
        ]
        columns = {measure.column for measure in measures}
        return ProbeData(
            np.concatenate(latents), {name: episodes.rows(name, part) for name in columns}
        )

    rng_torch = torch.Generator().manual_seed(0)
    return mlp_probe(measures, data(rows[0]), data(rows[1]), rng_torch)


if __name__ == "__main__":
    arguments = tyro.cli(Arguments)
    for name in arguments.tasks:
        measure(name, arguments.preset, arguments.runs)
        show_line(f"wrote {WORLDS / arguments.preset / name}.json")
