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
from torch import Tensor, nn

from goalward import defaults
from goalward.control.checkpoint import (
    IDMMetadata,
    TrainedIDM,
    new_inverse_model,
    save_trained_idm,
)
from goalward.control.goals import Examples, GoalSampler
from goalward.control.horizon import HorizonConfig
from goalward.control.metrics import (
    NETWORK,
    TIME_TO_GO,
    ActionMetrics,
    TimeToGoMetrics,
    action_errors,
    balanced_error,
    save_curves,
    time_to_go_quality,
)
from goalward.control.networks import (
    GCIDMConfig,
    PairBackbone,
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
from goalward.core.random import generator
from goalward.core.training import CHECKPOINT, OnProgress, Part, Schedule, Trainer, cosine_lr
from goalward.data.episodes import Index
from goalward.world.checkpoint import World
from goalward.world.latents import Latents, open_latents
from goalward.world.lewm import num_parameters

STAGE, STAGE_VERSION = "train", 1
REPORT, CURVES = "report.json", "curves.png"
CPU = torch.device("cpu")
# The validation figure by which each part's best weights are chosen: the lower, the better.
BEST_BY = {NETWORK: "validation/balanced", TIME_TO_GO: f"validation/{TIME_TO_GO}"}


@config
class IDMSchedule(Schedule):
    """Length and pace of the optimisation: AdamW, half a cosine down to a share of the rate."""

    batch: Positive = 1024
    lr: PositiveFloat = 1e-3
    final_lr: ClosedFraction = 0.01  # share of the rate that is left at the end
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

    network: GCIDMConfig | PairwiseConfig
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
            raise ValueError("horizon.mode is time-to-go, but time_to_go says not to train it")


class Training:
    """What a training draws, minimises and is validated by; `trainer` goes through its steps.

    Args:
        config: What the result depends on.
        latents: What to train on.
        network: With initial weights, which are trained in place.
        folder: Where the checkpoint and the curves are.
        device: Where to compute; it holds all latents.
        time_to_go: The head that learns from the same examples.
    """

    def __init__(
        self,
        config: ControllerConfig,
        latents: Latents,
        network: nn.Module,
        folder: Path,
        *,
        device: torch.device = CPU,
        time_to_go: TimeToGo | None = None,
    ) -> None:
        self.config, self.device = config, device
        chosen = training_episodes(latents, config)
        sampler = partial(
            GoalSampler,
            torch.from_numpy(latents.z).to(device),
            torch.from_numpy(latents.actions).to(device),
            latents.lengths,
            min_horizon=config.network.min_horizon,
            max_horizon=config.network.max_horizon,
            block=config.network.block,
        )
        self.num_episodes, self.sampler = len(chosen), sampler(chosen)
        self.validation = validation_examples(sampler(latents.split.validation), config)
        self._std_D = torch.tensor(latents.metadata.std, device=device)
        modules = {NETWORK: network, TIME_TO_GO: time_to_go}
        parts: dict[str, Part[Examples]] = {}
        for name, module in modules.items():
            if module is not None:
                if config.standardise:
                    _standardise(module, latents)
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
        first, schedule = self.trainer.done, self.config.schedule

        def show(row: Row) -> None:
            if on_progress is not None:
                examples = (self.trainer.done - first) * schedule.batch
                on_progress(self.trainer.done, examples, f"error {row[NETWORK]:.3g}")

        self.trainer.fit(
            lambda steps: map(self.draw, steps),
            self.validate,
            validate_at=schedule.validate_at(),
            save_seconds=save_seconds,
            on_losses=show,
            send=send,
        )

    def draw(self, step: int) -> Examples:
        """The examples of a step; a function of the seed and the step."""
        config, noise = self.config, self.config.noise
        rng = torch.Generator(self.device).manual_seed(_seed("examples", config.seed, step))
        examples = self.sampler.draw(config.schedule.batch, rng)
        if not noise.sigma:
            return examples
        sigma = torch.tensor(noise.sigma, device=self.device)
        if noise.schedule == "uniform":
            sigma = sigma * torch.rand((), generator=rng, device=self.device)
        return examples.noisy(sigma * self._std_D, rng)

    def _losses(
        self, part: str, module: nn.Module, examples: Examples, step: int
    ) -> Mapping[str, Tensor]:
        torch.manual_seed(_seed(f"dropout-{part}", self.config.seed, step))
        if part == TIME_TO_GO:
            logits_BH = module(examples.z, examples.z_goal)
            return {part: F.cross_entropy(logits_BH, examples.steps - 1)}
        predicted_BA = module(examples.z, examples.z_goal, examples.steps)
        # Eq. (7), as a mean over an action's numbers: the paper's errors are such means.
        return {part: F.mse_loss(predicted_BA, examples.actions)}

    def errors(self) -> tuple[ActionMetrics, ...]:
        """Validation errors of the network as it is now."""
        return action_errors(self.trainer.modules[NETWORK], self.validation)

    def time_to_go(self) -> TimeToGoMetrics | None:
        """Validation errors of the time-to-go head as it is now."""
        if TIME_TO_GO not in self.trainer.modules:
            return None
        return time_to_go_quality(self.trainer.modules[TIME_TO_GO], self.validation)

    def validate(self) -> Row:
        """Figures on validation episodes."""
        errors, quality = self.errors(), self.time_to_go()
        row = {
            "validation/r2": errors[0].r2,
            f"validation/{NETWORK}": errors[0].mse,
            BEST_BY[NETWORK]: balanced_error(errors),
        }
        if quality is not None:
            row |= {BEST_BY[TIME_TO_GO]: quality.loss}
            row |= {"validation/median_error": quality.median_error}
        return row


def training_episodes(latents: Latents, config: ControllerConfig) -> Index:
    """The training episodes, or the share of them that the config asks for."""
    train = latents.split.train
    number = max(1, round(config.data_fraction * len(train)))
    # The draw does not depend on the training's seed: a share holds the smaller shares.
    order = generator("data-fraction", 0).permutation(len(train))
    return np.sort(train[order[:number]])


def validation_examples(sampler: GoalSampler, config: ControllerConfig) -> Examples:
    """The examples that a training is validated by, the same whatever its seed."""
    seed = _seed("validation", 0, config.network.max_horizon)
    rng = torch.Generator(sampler.device).manual_seed(seed)
    return sampler.draw(config.schedule.validation_examples, rng)


def _standardise(module: nn.Module, latents: Latents) -> None:
    for part in module.modules():
        if isinstance(part, PairBackbone):
            part.standardise.fit(latents.metadata.mean, latents.metadata.std)


def _seed(purpose: str, seed: int, *index: int) -> int:
    """A seed for torch's generators."""
    return int(generator(f"controller-{purpose}", seed, *index).integers(2**63))


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
    errors: tuple[ActionMetrics, ...]  # all horizons first
    time_to_go: TimeToGoMetrics | None


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

    Args:
        config: What the result depends on.
        latents: Folder that `embed` wrote.
        folder: Where the result goes; an interrupted training there is resumed.
        device: Where to compute; it holds all latents.
        save_seconds: Between two checkpoints: a killed process loses this much work at most.
        pictures: Draw the training's curves.
        log: Where to show the curves while they grow, beside `curves.jsonl`.
        on_progress: Called now and then with steps, examples and losses.

    Raises:
        ValueError: the latents do not fit the configuration, the folder holds something else, or
            training diverged.
        OSError: the folder cannot be written; the last checkpoint is kept.
    """
    require_log_package(log)
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
        with stage.writing() as partial_folder:
            model = _new_model(config, found, found.world())
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
            report = _conclude(training, model, partial_folder)
            if pictures:
                _draw_curves(training, report, partial_folder)
    (folder / CHECKPOINT).unlink(missing_ok=True)
    return read_config(ControllerReport, folder / REPORT)


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


def _new_model(config: ControllerConfig, latents: Latents, world: World) -> TrainedIDM:
    """Initial weights from the seed alone, whatever was drawn before."""
    metadata = IDMMetadata(
        task=latents.metadata.task,
        world_id=world.id,
        world=world.model.config,
        action_scale=world.actions,
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
        return new_inverse_model(metadata, world)


def _conclude(training: Training, model: TrainedIDM, folder: Path) -> ControllerReport:
    """Write both controller files and the report."""
    trainer, schedule = training.trainer, training.config.schedule
    save_trained_idm(folder / "last.safetensors", model)
    trainer.restore_best()
    save_trained_idm(folder / "best.safetensors", model)
    best, seconds = trainer.best_row(NETWORK), trainer.history[-1]["seconds"]
    assert best is not None
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
        errors=training.errors(),
        time_to_go=training.time_to_go(),
    )
    write_json(folder / REPORT, to_json(report))
    return report


def _draw_curves(training: Training, report: ControllerReport, folder: Path) -> None:
    kind = "GC-IDM" if isinstance(training.config.network, GCIDMConfig) else "Pairwise model"
    title = f"{kind} on {report.task or 'a dataset'}"
    history = training.trainer.history
    save_curves(folder / CURVES, history, report.errors, report.time_to_go, title)
