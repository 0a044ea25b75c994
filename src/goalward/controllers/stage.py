"""The stage `train`: latents in; a controller file, curves and validation errors out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from goalward import defaults
from goalward.artifacts import Stage
from goalward.config import read_config, to_json, write_json
from goalward.controllers.figures import save_curves
from goalward.controllers.file import (
    IDMCard,
    InverseModel,
    load_inverse_model,
    new_inverse_model,
    save_inverse_model,
)
from goalward.controllers.gc_idm import GCIDM
from goalward.controllers.goals import Examples, GoalSampler
from goalward.controllers.judge import (
    ActionError,
    NoiseError,
    TimeToGoQuality,
    action_errors,
    noise_errors,
    time_to_go_quality,
)
from goalward.controllers.train import (
    BEST,
    NETWORK,
    STATE,
    OnProgress,
    Training,
)
from goalward.controllers.train_config import ControllerConfig
from goalward.data.episodes import Index
from goalward.embed import Latents, open_latents
from goalward.world.checkpoint import Weights, World
from goalward.world.lewm import num_parameters

STAGE, STAGE_VERSION = "train", 1
REPORT, CURVES = "report.json", "curves.png"
CPU = torch.device("cpu")
JUDGED_EXAMPLES = 16_384


@dataclass(frozen=True, kw_only=True)
class ControllerReport:
    """What a training achieved, judged on validation episodes with its best weights."""

    world_id: str
    task: str | None
    parameters: dict[str, int]  # trainable numbers of each part
    steps: int
    best_step: int  # of the network
    seconds: float  # training alone, all sittings together
    examples_per_second: float
    train_episodes: int
    train_rows: int
    errors: tuple[ActionError, ...]  # all horizons first
    time_to_go: TimeToGoQuality | None


def train_controller(
    config: ControllerConfig,
    latents: Path,
    folder: Path,
    *,
    device: torch.device = CPU,
    save_seconds: float = defaults.SAVE_SECONDS,
    pictures: bool = True,
    on_progress: OnProgress | None = None,
) -> ControllerReport:
    """Train an inverse dynamics model into the stage folder, or find it complete there.

    Args:
        config: What the result depends on.
        latents: Folder that `embed` wrote.
        folder: Where the result goes; an interrupted training there is taken up again.
        device: Where to compute; the latents are put there whole.
        save_seconds: At most so much work, and 50 steps, is lost when the process is killed.
        pictures: Draw the training's curves.
        on_progress: Called now and then with steps, examples and losses.

    Raises:
        ValueError: the latents do not fit the configuration, the folder holds something else, or
            training broke down.
        OSError: the folder cannot be written; the last saved state is kept.
    """
    if not 0 <= save_seconds < float("inf"):
        raise ValueError(f"save_seconds must be a number of at least 0, got {save_seconds}")
    found = open_latents(latents)
    stage = Stage(
        folder=folder,
        name=STAGE,
        version=STAGE_VERSION,
        config=config,
        inputs={"latents": found.id},
    )
    if not stage.is_complete():
        require_matching(config, found)
        world = found.world()
        with stage.writing() as partial:
            model = _new_model(config, found, world)
            training = Training(
                config,
                found,
                model.network,
                partial,
                device=device,
                time_to_go=model.time_to_go,
            )
            training.run(save_seconds=save_seconds, on_progress=on_progress)
            report = _conclude(training, model, partial)
            if pictures:
                _draw(training, model, report, partial)
    for leftover in (folder / STATE, *folder.glob(BEST.format("*", "*"))):
        leftover.unlink(missing_ok=True)
    return read_config(ControllerReport, folder / REPORT)


@dataclass(frozen=True, kw_only=True)
class ControllerQuality:
    """What `judge_controller` finds."""

    errors: tuple[ActionError, ...]
    time_to_go: TimeToGoQuality | None
    noise: tuple[NoiseError, ...]


def judge_controller(
    controller: Path,
    latents: Path,
    *,
    weights: Weights = "best",
    episodes: Literal["test", "validation"] = "test",
    sigmas: Sequence[float] = (),
    seed: int = 0,
    device: torch.device = CPU,
) -> ControllerQuality:
    """Judge a stored model on episodes that its training did not see.

    Args:
        controller: A controller file, or the folder of a training.
        latents: Folder that `embed` wrote, with the model's own encoder.
        weights: Which of the folder's files.
        episodes: `test`, or `validation`, by which the training chose its best weights.
        sigmas: Noise on both latents, in their standard deviations: an error for each.
        seed: Of the examples and the noise.
        device: Where to compute.

    Raises:
        ValueError: the latents are another encoder's (both ids are named), or too few.
    """
    found, model = (
        open_latents(latents),
        load_inverse_model(controller, weights=weights, device=device),
    )
    found.require_made_by(model.card.world_id)
    if found.card.split != model.card.split:
        raise ValueError(
            f"{latents}: held out other episodes ({found.card.split}) than the controller's "
            f"training ({model.card.split}); judge it on latents with that split"
        )
    for sigma in sigmas:
        if not 0 <= sigma < float("inf"):
            raise ValueError(f"noise must be a number of at least 0, got {sigma}")
    chosen = found.split.test if episodes == "test" else found.split.validation
    if not len(chosen):
        raise ValueError(f"{latents}: no {episodes} episodes; collect more episodes")
    examples = _examples(found, model, chosen, seed=seed, device=device)
    if not torch.isfinite(examples.z).all():
        raise ValueError(f"{latents}: latents hold NaN or infinity; embed anew")
    head = model.time_to_go
    return ControllerQuality(
        errors=action_errors(model.network, examples),
        time_to_go=None if head is None else time_to_go_quality(head, examples),
        noise=noise_errors(
            model.network,
            examples,
            torch.tensor(found.card.std, device=device),
            sigmas,
            seed=seed,
        ),
    )


def require_matching(config: ControllerConfig, latents: Latents) -> None:
    """Refuse latents that the configuration does not fit, before anything is written."""
    network = config.network
    for name, found in (
        ("latent_dim", latents.z.shape[1]),
        ("action_dim", latents.actions.shape[1]),
    ):
        if (wanted := getattr(network, name)) != found:
            raise ValueError(
                f"{latents.folder}: network.{name} is {wanted}, the latents have {found}; leave "
                "it out"
            )
    if not len(latents.split.validation):
        raise ValueError(f"{latents.folder}: no episode is held out; collect more episodes")
    longest = int(latents.lengths[latents.split.train].max()) - 1
    if network.max_horizon > longest:
        raise ValueError(
            f"{latents.folder}: the longest training episode has {longest} steps, farther goals "
            f"cannot be learned; set network.max_horizon={longest}, or collect longer episodes"
        )


def _examples(
    latents: Latents, model: InverseModel, episodes: Index, *, seed: int, device: torch.device
) -> Examples:
    network = model.card.network
    sampler = GoalSampler(
        torch.from_numpy(latents.z).to(device),
        torch.from_numpy(latents.actions).to(device),
        latents.lengths,
        episodes,
        min_horizon=network.min_horizon,
        max_horizon=network.max_horizon,
        block=network.block,
    )
    return sampler.draw(JUDGED_EXAMPLES, torch.Generator(device).manual_seed(seed))


def _new_model(config: ControllerConfig, latents: Latents, world: World) -> InverseModel:
    """Initial weights from the seed alone, whatever was drawn before."""
    card = IDMCard(
        task=latents.card.task,
        world_id=world.id,
        world=world.model.config,
        action_scale=world.actions,
        network=config.network,
        time_to_go=config.time_to_go,
        horizon=config.horizon,
        action_low=latents.card.action_low,
        action_high=latents.card.action_high,
        latents_id=latents.id,
        split=latents.card.split,
    )
    with torch.random.fork_rng(devices=[]):  # weights are drawn on the CPU
        torch.manual_seed(config.seed)
        return new_inverse_model(card, world)


def _conclude(training: Training, model: InverseModel, folder: Path) -> ControllerReport:
    """Write both controller files and the report."""
    save_inverse_model(folder / "last.safetensors", model)
    training.restore_best()
    save_inverse_model(folder / "best.safetensors", model)
    report = _report(training, model)
    write_json(folder / REPORT, to_json(report))
    return report


def _draw(training: Training, model: InverseModel, report: ControllerReport, folder: Path) -> None:
    kind = "GC-IDM" if isinstance(model.network, GCIDM) else "Pairwise model"
    title = f"{kind} on {report.task or 'a dataset'}"
    save_curves(folder / CURVES, training.history, report.errors, report.time_to_go, title)


def _report(training: Training, model: InverseModel) -> ControllerReport:
    best = training.best_row(NETWORK)
    assert best is not None
    seconds = training.history[-1]["seconds"]
    parts = {name: num_parameters(module) for name, module in training.modules.items()}
    schedule = training.config.schedule
    return ControllerReport(
        world_id=model.card.world_id,
        task=model.card.task,
        parameters=parts,
        steps=schedule.steps,
        best_step=int(best["step"]),
        seconds=seconds,
        examples_per_second=schedule.steps * schedule.batch / seconds,
        train_episodes=training.num_episodes,
        train_rows=training.sampler.num_rows,
        errors=training.errors(),
        time_to_go=training.time_to_go(),
    )
