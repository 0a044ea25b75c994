"""Train world models from nothing, and write `results/world/`, from which docs/WORLD.md is made.

Stages are found again under the run folder, so that an interrupted measurement goes on.
"""

from __future__ import annotations

import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro

from goalward import defaults
from goalward.artifacts import load_manifest
from goalward.config import read_json, to_json, write_json
from goalward.console import progress, show_line
from goalward.data.collect import CollectConfig, collect
from goalward.data.episodes import Episodes, open_episodes
from goalward.data.splits import split_episodes
from goalward.defaults import PresetName
from goalward.presets import world_config
from goalward.seeding import generator
from goalward.tasks import TASKS
from goalward.tasks.spec import Measure, SceneConfig
from goalward.types import Array
from goalward.workers import usable_cpus
from goalward.world.judge import FULL, known_measures
from goalward.world.probe import ProbeData, ProbeScore, mlp_probe, probe_rows
from goalward.world.stage import CURVES, LATENTS, train_world

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "world"
PICTURES = ROOT / "docs" / "pictures"
FLOOR_FRAMES = 6_000  # for the principal components


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to measure."""

    preset: PresetName = "cpu"
    """The preset to train with."""
    tasks: tuple[str, ...] = tuple(TASKS)
    """The tasks, one after the other."""
    runs: Path = ROOT / "runs" / "world"
    """Where datasets and weights go."""


def measure(task: str, preset: PresetName, runs: Path) -> None:
    """Collect and train one task, and keep what was found in `results/world/`."""
    data, world = runs / preset / task / "episodes", runs / preset / task / "world"
    scene = SceneConfig(image_size=defaults.PRESET_IMAGE_SIZE[preset])
    episodes_wanted = defaults.PRESET_EPISODES[preset][task]
    wanted = CollectConfig.for_task(task, episodes=episodes_wanted, scene=scene)
    with progress(f"collect {task}", wanted.episodes, unit="frames", quiet=False) as tick:
        frames = collect(wanted, data, workers=usable_cpus(), on_progress=tick).frames
    with open_episodes(data) as episodes:
        config = world_config(preset, episodes, task=task)
    total = config.schedule.steps
    with progress(f"train world {task}", total, unit="frames", quiet=False) as tick:
        report = train_world(config, data, world, on_progress=tick)
    assert report is not None
    with open_episodes(data) as episodes:
        measures = known_measures(episodes, task)
        floor = pixel_floor(episodes, measures, config.model.latent_dim)
    collected, trained = load_manifest(data), load_manifest(world)
    facts = {
        "task": task,
        "preset": preset,
        "episodes": wanted.episodes,
        "frames": frames,
        "collect_seconds": collected.seconds,
        "stage_seconds": trained.seconds,
        "git_revision": trained.git_revision,
        "machine": f"{platform.machine()}, {usable_cpus()} CPUs, {_gpu()}",
        "torch": trained.versions["torch"],
        "report": to_json(report),
        "pixel_floor": [to_json(score) for score in floor],
        "history": [row for row in read_json(world / "history.json") if "held_out_loss" in row],
    }
    (RESULTS / preset).mkdir(parents=True, exist_ok=True)
    write_json(RESULTS / preset / f"{task}.json", facts)
    for picture in (CURVES, LATENTS):
        shutil.copy(world / picture, PICTURES / f"world-{preset}-{task}-{picture}")


def pixel_floor(
    episodes: Episodes, measures: tuple[Measure, ...], latent_dim: int
) -> tuple[ProbeScore, ...]:
    """The network probe on as many principal components of the frames as a latent has numbers."""
    split = split_episodes(episodes.num_episodes)
    rng = generator("pixel-floor", 0)
    rows = [
        probe_rows(episodes, side, limit, rng)
        for side, limit in zip((split.train, split.held_out), FULL, strict=True)
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


def _gpu() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"


if __name__ == "__main__":
    arguments = tyro.cli(Arguments)
    for name in arguments.tasks:
        measure(name, arguments.preset, arguments.runs)
        show_line(f"wrote {RESULTS / arguments.preset / name}.json")
