"""Analyses of trained models: what latents hold, what controllers learn, what training takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from goalward.control.metrics import ControllerMetrics, validate_controller
from goalward.control.networks import HorizonConfig
from goalward.control.train import METRICS as CONTROLLER_METRICS
from goalward.control.train import ControllerReport
from goalward.core.arrays import Array
from goalward.core.artifacts import load_manifest
from goalward.core.config import read_config
from goalward.core.curves import read_curves
from goalward.core.machine import choose_device
from goalward.core.random import generator
from goalward.data.episodes import Episodes, open_episodes
from goalward.data.splits import split_episodes
from goalward.evaluation.results import ALL, EpisodeResult, pair_subsets, summarise_method
from goalward.evaluation.statistics import Rate
from goalward.experiments.experiment import Row, preset_run
from goalward.experiments.runner import Runner
from goalward.tasks import get_task
from goalward.tasks.task import ProbeTarget
from goalward.world.checkpoint import load_world
from goalward.world.metrics import (
    MANY,
    ProbeData,
    ProbeScore,
    WorldMetrics,
    mlp_probe,
    probe_rows,
    probe_targets,
    probe_world,
    validate_world,
)
from goalward.world.train import METRICS as WORLD_METRICS
from goalward.world.train import WorldReport

BASELINE_FRAMES = 6_000  # for the principal components
QUICK = 25  # percentile of the pace at which no other work disturbs a training
LENGTHS = (1_000, 3_200)  # training steps beside the preset's own
HORIZONS = (
    HorizonConfig(mode="budget"),
    *(HorizonConfig(mode="time-to-go", quantile=level) for level in (0.5, 0.25, 0.1, 0.05)),
    *(HorizonConfig(mode="fixed", fixed_steps=steps) for steps in (1, 5, 10, 25)),
)


def world_models(runner: Runner, task: str) -> Iterator[Row]:
    """What a network probe reads from latents, prediction errors, and the training."""
    pipeline = runner.pipeline(preset_run(task))
    config, world, data = pipeline.world_config(), pipeline.world(), pipeline.episodes()
    quality = validate_world(load_world(world, device=choose_device(runner.device)), data)
    with open_episodes(data) as episodes:
        targets = probe_targets(episodes, task)
        baseline = pixel_baseline(episodes, targets, config.model.latent_dim)
        number = episodes.num_episodes
    yield from quality_rows(quality, baseline)
    report = read_config(WorldReport, world / WORLD_METRICS)
    training = {
        "episodes": number,
        "steps": report.steps,
        "minutes": report.seconds / 60,
        "minutes undisturbed": undisturbed_seconds(read_curves(world)) / 60,
        "waiting for data, %": 100 * report.data_share,
    }
    yield "training", training


def quality_rows(quality: WorldMetrics, baseline: Sequence[ProbeScore]) -> Iterator[Row]:
    """Scores of the probe beside those on pixels, and prediction errors beside copying."""
    for score, pixels in zip(quality.probes.mlp, baseline, strict=True):
        errors = {"RMSE": score.rmse, "median error": score.median, "R²": score.r2}
        yield f"{score.target}, {score.unit}", {**errors, "RMSE from pixels": pixels.rmse}
    for error in quality.prediction:
        row = f"prediction over {error.steps} model step{'s' if error.steps > 1 else ''}"
        errors = {"error": error.model, "of copying": error.copy_last}
        yield row, {**errors, "ratio": error.model / error.copy_last}


def undisturbed_seconds(history: Sequence[Mapping[str, float]]) -> float:
    """The time of all steps at the pace of their quickest quarter.

    Long trainings are paused, resumed and share the machine; their clock counts all of that.
    """
    notes = np.array([(row["step"], row["seconds"]) for row in history if "loss" in row])
    steps, seconds = np.diff(notes, axis=0, prepend=[[0, 0]]).T
    return float(notes[-1, 0] * np.percentile(seconds / steps, QUICK))


def pixel_baseline(
    episodes: Episodes, targets: tuple[ProbeTarget, ...], latent_dim: int
) -> tuple[ProbeScore, ...]:
    """The network probe on the frames' first principal components, one for each latent number."""
    split = split_episodes(episodes.num_episodes)
    rng = generator("pixel-floor", 0)
    rows = [
        probe_rows(episodes, side, limit, rng)
        for side, limit in zip((split.train, split.held_out), MANY, strict=True)
    ]
    few = rng.choice(rows[0], min(BASELINE_FRAMES, len(rows[0])), replace=False)
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
        columns = {target.column for target in targets}
        return ProbeData(
            np.concatenate(latents), {name: episodes.rows(name, part) for name in columns}
        )

    return mlp_probe(targets, data(rows[0]), data(rows[1]), torch.Generator().manual_seed(0))


def training_length(runner: Runner, task: str) -> Iterator[Row]:
    """Errors of the latents by the length of the training; each length is a training of its own.

    Minutes are those of the longest training's undisturbed pace.
    """
    usual = runner.pipeline(preset_run(task))
    lengths = sorted({*LENGTHS, usual.world_config().schedule.steps})
    worlds = [
        replace(usual, world_changes=(f"schedule.steps={steps}",)).world() for steps in lengths
    ]
    pace = undisturbed_seconds(read_curves(worlds[-1])) / lengths[-1] / 60
    for steps, world in zip(lengths, worlds, strict=True):
        yield length_row(steps, steps * pace, _probed(world, usual.episodes(), task))


def length_row(steps: int, minutes: float, scores: Sequence[ProbeScore]) -> Row:
    """The row of one length."""
    values = {"minutes": minutes}
    for score in scores:
        name = f"{score.target}, {score.unit}"
        values |= {f"RMSE of {name}": score.rmse, f"median error of {name}": score.median}
    return f"{steps:,}", values


def _probed(world: Path, dataset: Path, task: str) -> tuple[ProbeScore, ...]:
    """Scores of the network probe on held-out episodes."""
    loaded = load_world(world)
    with open_episodes(dataset) as episodes:
        sides = split_episodes(episodes.num_episodes, loaded.split)
        targets = probe_targets(episodes, task)
        return probe_world(loaded.model, episodes, targets, sides, seed=0, mlp=True).mlp


def controllers(runner: Runner, task: str) -> Iterator[Row]:
    """What GC-IDM learned: success by horizon input, errors of actions and of the time to go."""
    spec = preset_run(task)
    trained, latents = runner.trained(spec), runner.pipeline(spec).latents().folder
    yield from error_rows(
        validate_controller(trained, latents, device=choose_device(runner.device))
    )
    report = read_config(ControllerReport, trained / CONTROLLER_METRICS)
    yield "training", {"steps": report.steps, "minutes": report.seconds / 60}
    for horizon in HORIZONS:
        settings = f"mode={horizon.mode},quantile={horizon.quantile}"
        controller = f"gc-idm:{settings},fixed_steps={horizon.fixed_steps}"
        run = replace(spec, controller=controller, split="validation")
        subsets = pair_subsets(get_task(task), runner.pairs_of(run).pairs)
        yield horizon_name(horizon), success_columns(runner.evaluate(run).rows, subsets)


def horizon_name(horizon: HorizonConfig) -> str:
    """Such as `time-to-go, quantile 0.25`."""
    settings = {
        "time-to-go": f", quantile {horizon.quantile:g}",
        "fixed": f", {horizon.fixed_steps} steps",
    }
    return f"horizon {horizon.mode}{settings.get(horizon.mode, '')}"


def success_columns(
    rows: Sequence[EpisodeResult], subsets: Mapping[str, set[int]]
) -> dict[str, Rate | float]:
    """Success on all pairs and on the task's subsets, and mean steps."""
    columns: dict[str, Rate | float] = {}
    for subset, pairs in subsets.items():
        column = "success, %" if subset == ALL else f"success of {subset}, %"
        columns[column] = summarise_method([row for row in rows if row.pair in pairs]).rate
    return columns | {"steps": float(np.mean([row.steps for row in rows]))}


def error_rows(found: ControllerMetrics) -> Iterator[Row]:
    """R² of the actions by distance to the goal, and errors of the learned time to go."""
    for error in found.errors:
        row = "all goals" if error.horizons == "all" else f"goals {error.horizons} steps away"
        yield row, {"R² of the actions": error.r2}
    if (learned := found.time_to_go) is not None:
        values = {
            "error of the median, steps": learned.median_error,
            "true mean, steps": learned.mean_steps,
            "calibration error, points": 100 * learned.calibration_error,
        }
        yield "time to go", values


def training_time(runner: Runner, task: str) -> Iterator[Row]:
    """Minutes of every stage."""
    spec = preset_run(task)
    pipeline = runner.pipeline(spec)
    folders = {
        "episodes": pipeline.episodes(),
        "world model": pipeline.world(),
        "latents": pipeline.latents().folder,
        "controller": runner.trained(spec),
    }
    seconds = {name: load_manifest(path).seconds for name, path in folders.items()}
    # The manifest counts the last session only; the report counts the training of all of them.
    report = read_config(WorldReport, folders["world model"] / WORLD_METRICS)
    seconds["world model"] = max(seconds["world model"], report.seconds)
    yield "minutes", {name: value / 60 for name, value in seconds.items()}
