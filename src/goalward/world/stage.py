"""The stage `train-world`: a dataset in; weights, curves and quality figures out."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from goalward import defaults
from goalward.artifacts import MANIFEST, Stage, load_manifest
from goalward.config import from_json, read_config, to_json, write_json
from goalward.data.episodes import Episodes, open_episodes
from goalward.data.identity import episodes_id
from goalward.data.splits import SplitConfig, split_episodes
from goalward.data.summary import task_name
from goalward.tasks import get_task
from goalward.world.checkpoint import Weights, load_world, require_fits
from goalward.world.figures import save_curves, save_latent_path
from goalward.world.judge import Quality, judge, known_measures
from goalward.world.lewm import LeWM, num_parameters
from goalward.world.replicas import joined_replicas
from goalward.world.train import SNAPSHOTS, STATE, OnProgress, Row, Training, require_matching
from goalward.world.train_config import WorldConfig
from goalward.world.tsne import MIN_POINTS
from goalward.world.windows import action_scale, require_finite_actions, sizes

STAGE = "train-world"
STAGE_VERSION = 1
CPU = torch.device("cpu")
REPORT, CURVES, LATENTS = "report.json", "curves.png", "latents.png"


@dataclass(frozen=True, kw_only=True)
class WorldReport:
    """What a training achieved, judged on held-out episodes with its best weights."""

    world_id: str  # of the last weights
    best_world_id: str  # of those with the lowest held-out loss
    task: str | None
    parameters: dict[str, int]  # trainable numbers of each part
    steps: int
    seconds: float  # training alone, all sittings together
    frames_per_second: float
    data_share: float  # of that time, spent waiting for data
    train_windows: int
    held_out_loss: float
    quality: Quality


def train_world(
    config: WorldConfig,
    dataset: Path,
    folder: Path,
    *,
    device: torch.device = CPU,
    task: str | None = None,
    save_seconds: float = defaults.SAVE_SECONDS,
    thorough: bool = True,
    pictures: bool = True,
    on_progress: OnProgress | None = None,
) -> WorldReport | None:
    """Train a world model into the stage folder `folder`, or find it complete there.

    Args:
        config: What the result depends on.
        dataset: An episode file or a folder with one.
        folder: Where the result goes; an interrupted training there is taken up again.
        device: Where to compute; under `torchrun` every process joins in.
        task: The dataset's task, where the file does not say it.
        save_seconds: At most so much work, and 20 steps, is lost when the process is killed.
        thorough: Judge the finished model by the network probe, too, which takes a minute or two;
            `judge_world` can do it later.
        pictures: Draw the training's curves, and an episode's latents over the training.
        on_progress: Called now and then with steps, frames and losses.

    Returns:
        The report, or None in processes other than the first under `torchrun`.

    Raises:
        ValueError: the dataset does not fit the configuration, the folder holds something else, or
            training broke down.
        OSError: the folder cannot be written; the last saved state is kept.
    """
    if not 0 <= save_seconds < float("inf"):
        raise ValueError(f"save_seconds must be a number of at least 0, got {save_seconds}")
    with open_episodes(dataset) as episodes, joined_replicas(device) as replica:
        name = known_task(episodes, task)
        measures = known_measures(episodes, name)
        stage = Stage(
            folder=folder,
            name=STAGE,
            version=STAGE_VERSION,
            config=config,
            inputs={"episodes": episodes_id(episodes), **({"task": task} if task else {})},
        )
        if not stage.is_complete():
            require_matching(config, episodes, replica)
            with stage.writing() if replica.is_first else nullcontext(stage.partial) as partial:
                training = Training(config, episodes, partial, replica=replica, measures=measures)
                training.run(save_seconds=save_seconds, on_progress=on_progress)
                if replica.is_first:
                    report = _report(training, partial, name, thorough=thorough)
                    write_json(partial / REPORT, to_json(report))
                    if pictures:
                        _draw(training, partial, _title(report))
    if not replica.is_first:
        return None
    (folder / STATE).unlink(missing_ok=True)
    shutil.rmtree(folder / SNAPSHOTS, ignore_errors=True)
    report = read_config(WorldReport, folder / REPORT)
    if thorough and measures and not report.quality.probes.network:  # made by a quicker command
        quality = judge_world(folder, dataset, task=task, seed=config.seed, device=device)
        return replace(report, quality=quality)
    return report


def judge_world(
    world: Path,
    dataset: Path,
    *,
    weights: Weights = "best",
    task: str | None = None,
    seed: int = 0,
    frameskip: int = defaults.FRAMESKIP,
    device: torch.device = CPU,
) -> Quality:
    """Judge a stored world model on the held-out episodes of a dataset.

    The split is that of the training. A public checkpoint tells neither the scale of its actions,
    which is taken from the dataset, nor its frameskip.
    """
    loaded = load_world(world, weights=weights, device=device, frameskip=frameskip)
    with open_episodes(dataset) as episodes:
        measures = known_measures(episodes, known_task(episodes, task))
        action_dim, image_size = sizes(episodes)
        require_fits(loaded, action_dim=action_dim, image_size=image_size)
        require_finite_actions(episodes)
        split = split_episodes(episodes.num_episodes, training_split(world))
        scale = loaded.actions or action_scale(episodes, split.train)
        return judge(loaded.model, episodes, measures, split, scale, seed=seed)


def known_task(episodes: Episodes, given: str | None) -> str | None:
    """The dataset's task; one that only the file knows of is fine, one that the user names is not.

    Raises:
        ValueError: the user names no known task, or another than the file.
    """
    return task_name(episodes, None if given is None else get_task(given).name)


def training_split(world: Path) -> SplitConfig:
    """How the training of a stored model held out episodes; the default for a foreign model."""
    if not (world / MANIFEST).is_file():
        return SplitConfig()
    return from_json(WorldConfig, load_manifest(world, stage=STAGE).config).split


def _report(training: Training, folder: Path, task: str | None, *, thorough: bool) -> WorldReport:
    config = training.config
    best = load_world(folder, weights="best", device=training.replica.device)
    timed = [row for row in training.history if "loss" in row][-1]
    frames = config.schedule.batch * training.train_windows.frames * training.steps
    return WorldReport(
        world_id=load_world(folder, weights="last").id,
        best_world_id=best.id,
        task=task,
        parameters=_parameters(best.model),
        steps=training.steps,
        seconds=timed["seconds"],
        frames_per_second=frames / timed["seconds"],
        data_share=timed["data_seconds"] / timed["seconds"],
        train_windows=len(training.train_windows),
        held_out_loss=min(row["held_out_loss"] for row in training.history if _is_judged(row)),
        quality=judge(
            best.model,
            training.episodes,
            training.measures,
            training.split,
            training.scale,
            seed=config.seed,
            thorough=thorough,
        ),
    )


def _draw(training: Training, folder: Path, title: str) -> None:
    """Curves, and latents of an episode that is long enough."""
    save_curves(folder / CURVES, training.history, title)
    paths = sorted((folder / SNAPSHOTS).glob("*.npy"))
    frames = training.episodes.rows("pixels", training.picture_rows())
    if len(frames) >= MIN_POINTS:  # else there is nothing to draw
        latents = {int(path.stem): np.load(path) for path in paths}
        save_latent_path(folder / LATENTS, latents, frames, title)


def _is_judged(row: Row) -> bool:
    return "held_out_loss" in row


def _parameters(model: LeWM) -> dict[str, int]:
    parts = {name: num_parameters(part) for name, part in model.named_children()}
    return {**parts, "total": num_parameters(model)}


def _title(report: WorldReport) -> str:
    return f"LeWM on {report.task or 'a dataset'}"
