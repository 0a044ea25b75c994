"""The stage `train`: latents in; a controller file, curves and validation errors out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from goalward import defaults
from goalward.control import metrics
from goalward.control.checkpoint import STAGE, IDMMetadata, TrainedIDM, new_idm, save_trained_idm
from goalward.control.controller import Index
from goalward.control.goals import Examples
from goalward.control.metrics import CPU, NETWORK, TIME_TO_GO, ControllerMetrics
from goalward.control.networks import (
    IDM,
    AnyIDMConfig,
    HorizonConfig,
    PairwiseConfig,
    TimeToGo,
    TimeToGoConfig,
)
from goalward.core.artifacts import Stage
from goalward.core.config import (
    ClosedFraction,
    NonNegative,
    NonNegativeFloat,
    Positive,
    PositiveFloat,
    Share,
    config,
    read_config,
    to_json,
    write_json,
)
from goalward.core.curves import LogTarget, Row, SendRow, log_to, require_log_package
from goalward.core.random import generator, torch_seed
from goalward.core.training import CHECKPOINT, OnProgress, Part, Schedule, Trainer, cosine_lr
from goalward.world.checkpoint import World
from goalward.world.latents import Latents, open_latents
from goalward.world.lewm import num_parameters

STAGE_VERSION = 2
METRICS, CURVES = "metrics.json", "curves.png"
# The validation figure by which each part's best weights are chosen: the lower, the better.
BEST_BY = {NETWORK: "validation/balanced", TIME_TO_GO: f"validation/{TIME_TO_GO}"}


@config
class IDMSchedule(Schedule):
    """Length and pace of the optimisation: AdamW, half a cosine down to a share of the rate."""

    batch: Positive = 1024
    lr: PositiveFloat = 1e-3
    final_lr: ClosedFraction = 0.01  # share of the rate that remains at the end
    weight_decay: NonNegativeFloat = 1e-4
    validations: Positive = 20  # over the training; the best weights are kept
    validation_examples: Positive = 16_384

    def lr_at(self, step: int) -> float:
        """The learning rate of step 0, 1, ..."""
        return cosine_lr(step, self.steps, self.lr, final=self.final_lr)

    def validate_at(self) -> set[int]:
        """Numbers of steps after which to validate; the last is one of them."""
        times = min(self.validations, self.steps)
        return {max(1, round(self.steps * k / times)) for k in range(1, times + 1)}


@config
class NoiseConfig:
    """Gaussian noise on both latents during training, in standard deviations of each number."""

    sigma: NonNegativeFloat = 0.0
    schedule: Literal["fixed", "uniform"] = "fixed"  # uniform: each batch draws from [0, sigma]


@config
class ControllerConfig:
    """One training of an inverse dynamics model."""

    network: AnyIDMConfig
    schedule: IDMSchedule
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    standardise: bool = True  # latents by their training mean and standard deviation
    data_fraction: Share = 1.0  # share of the training episodes
    time_to_go: TimeToGoConfig | None = None
    horizon: HorizonConfig = field(default_factory=HorizonConfig)  # at test time
    seed: NonNegative = 0

    def __post_init__(self) -> None:
        if isinstance(self.network, PairwiseConfig) and self.time_to_go is not None:
            raise ValueError("time_to_go: a pairwise model has no horizon; leave it out")
        if self.horizon.mode == "time-to-go" and self.time_to_go is None:
            raise ValueError("horizon.mode is time-to-go, but the head time_to_go is null")


class Training:
    """What a training draws, minimises and is validated by; `trainer` goes through its steps.

    It trains the network, and the time-to-go head if there is one, in place and on the same
    examples. The device holds all latents; the folder holds the checkpoint and the curves.
    """

    def __init__(
        self,
        config: ControllerConfig,
        latents: Latents,
        network: IDM,
        folder: Path,
        *,
        device: torch.device = CPU,
        time_to_go: TimeToGo | None = None,
    ) -> None:
        self.config, self.device = config, device
        self.network, self.time_to_go = network, time_to_go
        chosen = training_episodes(latents, config)
        sampler = metrics.goal_sampler(latents, config.network, device)
        self.num_episodes, self.sampler = len(chosen), sampler(chosen)
        # The same examples whatever the training's seed.
        rng = self._rng("validation", 0, config.network.max_horizon)
        number = config.schedule.validation_examples
        self.validation = sampler(latents.split.validation).draw(number, rng)
        self._std_D = torch.tensor(latents.metadata.std, device=device)
        parts: dict[str, Part[Examples]] = {}
        for name, module in ((NETWORK, network), (TIME_TO_GO, time_to_go)):
            if module is not None:
                if config.standardise:
                    module.backbone.standardise.fit(latents.metadata.mean, latents.metadata.std)
                losses = partial(self._losses, name, module.to(device))
                parts[name] = Part(module=module, losses=losses, best_by=BEST_BY[name])
        self.trainer = Trainer(parts, config.schedule, folder)

    def run(
        self,
        *,
        save_seconds: float,
        on_progress: OnProgress | None = None,
        send: SendRow | None = None,
    ) -> None:
        """Train to the end."""
        self.trainer.fit(
            lambda steps: map(self.draw, steps),
            self.validate,
            validate_at=self.config.schedule.validate_at(),
            save_seconds=save_seconds,
            note=lambda row: f"error {row[NETWORK]:.3g}",
            on_progress=on_progress,
            send=send,
        )

    def draw(self, step: int) -> Examples:
        """The examples of a step; a function of the seed and the step."""
        noise, rng = self.config.noise, self._rng("examples", self.config.seed, step)
        examples = self.sampler.draw(self.config.schedule.batch, rng)
        if not noise.sigma:
            return examples
        sigma = torch.tensor(noise.sigma, device=self.device)
        if noise.schedule == "uniform":
            sigma = sigma * torch.rand((), generator=rng, device=self.device)
        return examples.noisy(sigma * self._std_D, rng)

    def _rng(self, purpose: str, seed: int, index: int) -> torch.Generator:
        seed = torch_seed(f"controller-{purpose}", seed, index)
        return torch.Generator(self.device).manual_seed(seed)

    def _losses(
        self, part: str, module: IDM | TimeToGo, examples: Examples, step: int
    ) -> Mapping[str, Tensor]:
        torch.manual_seed(torch_seed(f"controller-dropout-{part}", self.config.seed, step))
        outputs = module(examples.z, examples.z_goal, examples.steps)
        if part == TIME_TO_GO:
            return {part: F.cross_entropy(outputs, examples.steps - 1)}
        # Eq. (7), as a mean over an action's numbers: the paper's errors are such means.
        return {part: F.mse_loss(outputs, examples.actions)}

    def measure(self) -> ControllerMetrics:
        """Errors on validation episodes of the weights as they are now."""
        return metrics.measure(self.network, self.time_to_go, self.validation)

    def validate(self) -> Row:
        """The figures of `measure` that the curves show."""
        found = self.measure()
        row = {
            "validation/r2": found.errors[0].r2,
            f"validation/{NETWORK}": found.errors[0].mse,
            BEST_BY[NETWORK]: metrics.balanced_error(found.errors),
        }
        if found.time_to_go is not None:
            row[BEST_BY[TIME_TO_GO]] = found.time_to_go.loss
            row["validation/median_error"] = found.time_to_go.median_error
        return row


def training_episodes(latents: Latents, config: ControllerConfig) -> Index:
    """The training episodes, or the config's share of them."""
    train = latents.split.train
    number = max(1, round(config.data_fraction * len(train)))
    # The draw does not depend on the training's seed: a share holds the smaller shares.
    order = generator("data-fraction", 0).permutation(len(train))
    return np.sort(train[order[:number]])


@dataclass(frozen=True, kw_only=True)
class ControllerReport:
    """What a training achieved: errors on validation episodes, with its best weights."""

    world_id: str
    task: str | None
    parameters: dict[str, int]  # trainable numbers of each part
    steps: int
    best_step: int  # of the network
    seconds: float  # training alone, all sessions together
    examples_per_second: float
    train_episodes: int
    train_rows: int
    errors: tuple[metrics.ActionMetrics, ...]  # all horizons first
    time_to_go: metrics.TimeToGoMetrics | None


def train_controller(
    config: ControllerConfig,
    latents: Path,
    folder: Path,
    *,
    device: torch.device = CPU,
    save_seconds: float = defaults.SAVE_SECONDS,
    pictures: bool = True,
    log: LogTarget | None = None,
    on_progress: OnProgress | None = None,
) -> ControllerReport:
    """Train an inverse dynamics model into the stage folder, or find it complete there.

    Only `config` and the latents change the result. The device holds all latents.
    """
    require_log_package(log)
    found = open_latents(latents)
    inputs = {"latents": found.id}
    stage = Stage(folder=folder, name=STAGE, version=STAGE_VERSION, config=config, inputs=inputs)
    if not stage.is_complete():
        require_matching(config, found)
        with stage.writing() as partial_folder:
            model = _new_model(config, found)
            training = Training(
                config,
                found,
                model.network,
                partial_folder,
                device=device,
                time_to_go=model.time_to_go,
            )
            with log_to(log, stage, first_step=training.trainer.done) as send:
                training.run(save_seconds=save_seconds, on_progress=on_progress, send=send)
            _conclude(training, model, partial_folder, pictures=pictures)
    (folder / CHECKPOINT).unlink(missing_ok=True)
    return read_config(ControllerReport, folder / METRICS)


def require_matching(config: ControllerConfig, latents: Latents) -> None:
    """Refuse latents that the configuration does not fit, before anything is written."""
    network = config.network
    sizes = {"latent_dim": latents.z.shape[1], "action_dim": latents.actions.shape[1]}
    for name, found in sizes.items():
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


def _new_model(config: ControllerConfig, latents: Latents) -> TrainedIDM:
    """Initial weights, which depend on nothing but the seed and the sizes."""
    encoder = latents.encoder()
    world = encoder if isinstance(encoder, World) else None
    metadata = IDMMetadata(
        task=latents.metadata.task,
        world_id=encoder.id,
        world=latents.named_encoder() if world is None else world.model.config,
        action_scaler=None if world is None else world.actions,
        network=config.network,
        time_to_go=config.time_to_go,
        horizon=config.horizon,
        action_low=latents.metadata.action_low,
        action_high=latents.metadata.action_high,
        latents_id=latents.id,
        split=latents.metadata.split,
    )
    with torch.random.fork_rng(devices=[]):  # weights are drawn on the CPU
        torch.manual_seed(config.seed)
        return new_idm(metadata, encoder)


def _conclude(training: Training, model: TrainedIDM, folder: Path, *, pictures: bool) -> None:
    """Write both controller files, their metrics and a picture."""
    trainer, schedule = training.trainer, training.config.schedule
    save_trained_idm(folder / "last.safetensors", model)
    trainer.restore_best()
    save_trained_idm(folder / "best.safetensors", model)
    best, seconds = trainer.best_row(NETWORK), trainer.history[-1]["seconds"]
    assert best is not None
    found = training.measure()
    report = ControllerReport(
        world_id=model.metadata.world_id,
        task=model.metadata.task,
        parameters={name: num_parameters(module) for name, module in trainer.modules.items()},
        steps=schedule.steps,
        best_step=int(best["step"]),
        seconds=seconds,
        examples_per_second=schedule.steps * schedule.batch / seconds,
        train_episodes=training.num_episodes,
        train_rows=training.sampler.num_rows,
        errors=found.errors,
        time_to_go=found.time_to_go,
    )
    write_json(folder / METRICS, to_json(report))
    if pictures:
        pairwise = isinstance(training.config.network, PairwiseConfig)
        kind = "Pairwise model" if pairwise else "GC-IDM"
        title = f"{kind} on {report.task or 'a dataset'}"
        metrics.save_curves(folder / CURVES, title, trainer.history, found)
