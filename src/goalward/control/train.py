"""The stage `train`: latents in; a controller file, curves and validation errors out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
    load_trained_idm,
    new_inverse_model,
    save_trained_idm,
)
from goalward.control.goals import MOST_EXAMPLES, Examples, GoalSampler
from goalward.control.horizon import HorizonConfig
from goalward.control.metrics import (
    NETWORK,
    TIME_TO_GO,
    ActionMetrics,
    NoiseError,
    TimeToGoMetrics,
    action_errors,
    balanced_error,
    noise_errors,
    save_curves,
    time_to_go_quality,
)
from goalward.control.networks import (
    GCIDM,
    GCIDMConfig,
    PairBackbone,
    PairwiseConfig,
    TimeToGo,
    TimeToGoConfig,
)
from goalward.core.artifacts import Stage
from goalward.core.config import (
    read_config,
    read_json,
    require_at_least,
    require_at_most,
    require_types,
    to_json,
    write_json,
)
from goalward.core.random import generator
from goalward.core.tensors import fill, read_tensors, write_tensors
from goalward.core.training import make_optimiser, restore_state, save_state
from goalward.data.episodes import Index
from goalward.world.checkpoint import Weights, World
from goalward.world.latents import Latents, open_latents
from goalward.world.lewm import num_parameters


@dataclass(frozen=True, kw_only=True, slots=True)
class IDMSchedule:
    """Length and pace of the optimisation: AdamW, half a cosine down to a share of the rate."""

    steps: int  # optimiser steps
    batch: int = 1024
    lr: float = 1e-3
    final_lr: float = 0.01  # share of the rate that is left at the end
    weight_decay: float = 1e-4
    clip: float = 1.0  # largest norm of a step's gradient
    validations: int = 20  # so often the weights are judged, and the best kept
    validation_examples: int = 16_384

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 1, "steps", "batch", "validations", "validation_examples")
        require_at_most(self, MOST_EXAMPLES, "batch", "validation_examples")
        if self.lr <= 0 or self.clip <= 0:
            raise ValueError(f"lr and clip must be positive, got {self.lr} and {self.clip}")
        if self.weight_decay < 0 or not 0 <= self.final_lr <= 1:
            raise ValueError(
                "weight_decay must be at least 0 and final_lr in [0, 1], got "
                f"{self.weight_decay} and {self.final_lr}"
            )

    def lr_at(self, step: int) -> float:
        """The learning rate of step 0, 1, ..."""
        way = 0.5 * (1 + math.cos(math.pi * step / self.steps))
        return self.lr * (self.final_lr + (1 - self.final_lr) * way)


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseConfig:
    """Gaussian noise on both latents during training, in standard deviations of each number."""

    sigma: float = 0.0
    schedule: Literal["fixed", "uniform"] = "fixed"  # uniform: sigma is the largest of a batch's

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 0, "sigma")


@dataclass(frozen=True, kw_only=True, slots=True)
class ControllerConfig:
    """One training of an inverse dynamics model."""

    network: GCIDMConfig | PairwiseConfig
    schedule: IDMSchedule
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    standardise: bool = True  # latents by their training mean and standard deviation
    data_fraction: float = 1.0  # share of the training episodes
    time_to_go: TimeToGoConfig | None = None
    horizon: HorizonConfig = field(default_factory=HorizonConfig)  # at test time
    seed: int = 0

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 0, "seed")
        if not 0 < self.data_fraction <= 1:
            raise ValueError(f"data_fraction must lie in (0, 1], got {self.data_fraction}")
        if isinstance(self.network, PairwiseConfig) and self.time_to_go is not None:
            raise ValueError("time_to_go: a pairwise model has no horizon; leave it out")
        if self.horizon.mode == "time-to-go" and self.time_to_go is None:
            raise ValueError("horizon.mode is time-to-go, but time_to_go says not to train it")


HISTORY = "history.json"
STATE, BEST = ".state.safetensors", ".best.{}.{}.safetensors"  # hidden: dropped at the end
LOG_EVERY = 50  # steps; losses are shown, noted and checked so often
# The figure of the history by which each part's best weights are chosen: the lower, the better.
CHOSEN_BY = {NETWORK: "validation/balanced", TIME_TO_GO: f"validation/{TIME_TO_GO}"}

State = dict[str, float]
OnProgress = Callable[[int, int, str], None]  # (steps done, examples of this sitting, losses)


class Training:
    """One training under way.

    Args:
        config: What the result depends on.
        latents: What to train on.
        network: With initial weights, which are trained in place.
        folder: Where the history and the state to resume from are kept.
        device: Where to compute; the latents are put there whole.
        time_to_go: The head that learns from the same examples.

    Attributes:
        modules: What is trained: the network, and the time-to-go head if there is one.
        history: Rows of losses and validation errors, by step.
        done: Steps done.
    """

    def __init__(
        self,
        config: ControllerConfig,
        latents: Latents,
        network: nn.Module,
        folder: Path,
        *,
        device: torch.device,
        time_to_go: TimeToGo | None = None,
    ) -> None:
        self.config, self.latents, self.folder, self.device = config, latents, folder, device
        self._z_ND = torch.from_numpy(latents.z).to(device)
        self._actions_NA = torch.from_numpy(latents.actions).to(device)
        self.std_D = torch.tensor(latents.metadata.std, device=device)
        chosen = training_episodes(latents, config)
        self.num_episodes, self.sampler = len(chosen), self.goal_sampler(chosen)
        self.validation = validation_examples(self.goal_sampler(latents.split.validation), config)
        parts = {NETWORK: network, TIME_TO_GO: time_to_go}
        self.modules = nn.ModuleDict({k: part for k, part in parts.items() if part is not None})
        self.modules.to(device)
        self._standardise()
        schedule = config.schedule
        self.optimiser = make_optimiser(
            self.modules, lr=schedule.lr, weight_decay=schedule.weight_decay
        )
        self.done = restore_state(folder / STATE, self.modules, self.optimiser, is_first=True)
        self.history = self._read_history()

    def goal_sampler(self, episodes: Index) -> GoalSampler:
        """Examples of the chosen episodes."""
        network = self.config.network
        return GoalSampler(
            self._z_ND,
            self._actions_NA,
            self.latents.lengths,
            episodes,
            min_horizon=network.min_horizon,
            max_horizon=network.max_horizon,
            block=network.block,
        )

    def run(self, *, save_seconds: float, on_progress: OnProgress | None = None) -> None:
        """Train to the end, saving the state every `save_seconds`.

        Raises:
            ValueError: the loss is no longer finite.
        """
        steps, first, saved = self.config.schedule.steps, self.done, time.monotonic()
        times = min(self.config.schedule.validations, steps)
        marks = {max(1, round(steps * k / times)) for k in range(1, times + 1)}
        earlier = self.history[-1]["seconds"] if self.history else 0.0
        started, judged = time.perf_counter(), 0.0
        losses: list[Tensor] = []
        for step in range(first, steps):
            losses.append(self._step(step))
            self.done = step + 1
            seconds = earlier + time.perf_counter() - started - judged
            if self.done % LOG_EVERY == 0 or self.done == steps:
                row = self._note(torch.stack(losses).mean(dim=0), seconds)
                losses.clear()
                if on_progress is not None:
                    examples = (self.done - first) * self.config.schedule.batch
                    on_progress(self.done, examples, f"error {row[NETWORK]:.3g}")
            if self.done in marks:
                before = time.perf_counter()
                self._validate(seconds)
                judged += time.perf_counter() - before
            due = time.monotonic() - saved >= save_seconds and self.done % LOG_EVERY == 0
            if due or self.done == steps:
                write_json(self.folder / HISTORY, self.history)
                save_state(self.folder / STATE, self.modules, self.optimiser, self.done)
                self._drop_worse()
                saved = time.monotonic()

    def best_row(self, part: str) -> State | None:
        """The validation in which a part did best; None before the first."""
        name = CHOSEN_BY[part]
        judged = [row for row in self.history if name in row]
        return min(judged, key=lambda row: row[name]) if judged else None

    def _best_path(self, part: str, step: int) -> Path:
        """By step: what a killed process wrote beyond its saved state is never mistaken."""
        return self.folder / BEST.format(part, step)

    def errors(self) -> tuple[ActionMetrics, ...]:
        """Validation errors of the network as it is."""
        return action_errors(self.modules[NETWORK], self.validation)

    def time_to_go(self) -> TimeToGoMetrics | None:
        """Validation errors of the time-to-go head as it is."""
        if TIME_TO_GO not in self.modules:
            return None
        return time_to_go_quality(self.modules[TIME_TO_GO], self.validation)  # type: ignore[arg-type]

    def restore_best(self) -> None:
        """Fill every part with its best weights."""
        for part, module in self.modules.items():
            row = self.best_row(part)
            assert row is not None
            path = self._best_path(part, int(row["step"]))
            fill(module.state_dict(), read_tensors(path)[0], path)

    def _drop_worse(self) -> None:
        """Delete weights that are no longer the best, once a state that says so is saved."""
        for part in self.modules:
            row = self.best_row(part)
            kept = None if row is None else self._best_path(part, int(row["step"]))
            for path in self.folder.glob(BEST.format(part, "*")):
                if path != kept:
                    path.unlink()

    def _standardise(self) -> None:
        if self.config.standardise:
            for module in self.modules.modules():
                if isinstance(module, PairBackbone):
                    module.standardise.fit(self.latents.metadata.mean, self.latents.metadata.std)

    def _step(self, step: int) -> Tensor:
        """One step of the optimiser; returns the losses, in the order of the modules."""
        config, schedule = self.config, self.config.schedule
        rng = torch.Generator(self.device).manual_seed(_draw("examples", config.seed, step))
        examples = self._noisy(self.sampler.draw(schedule.batch, rng), rng)
        for group in self.optimiser.param_groups:
            group["lr"] = schedule.lr_at(step)
        self.modules.train()
        self.optimiser.zero_grad()
        losses = []
        for part, module in self.modules.items():
            torch.manual_seed(_draw(f"dropout-{part}", config.seed, step))
            losses.append(_loss(part, module, examples))
            losses[-1].backward()
            nn.utils.clip_grad_norm_(module.parameters(), schedule.clip)
        self.optimiser.step()
        return torch.stack(losses).detach()

    def _noisy(self, examples: Examples, rng: torch.Generator) -> Examples:
        noise = self.config.noise
        if not noise.sigma:
            return examples
        sigma = torch.tensor(noise.sigma, device=self.device)
        if noise.schedule == "uniform":
            sigma = sigma * torch.rand((), generator=rng, device=self.device)
        return examples.noisy(sigma * self.std_D, rng)

    def _note(self, losses: Tensor, seconds: float) -> State:
        row: State = {"step": self.done, "seconds": seconds}
        row["lr"] = self.config.schedule.lr_at(self.done - 1)
        row.update(zip(self.modules, losses.tolist(), strict=True))
        self._require_finite(row)
        self.history.append(row)
        return row

    def _require_finite(self, row: State) -> None:
        if not np.isfinite(list(row.values())).all():
            raise ValueError(
                f"the loss is no longer finite at step {self.done} of "
                f"{self.config.schedule.steps}; start anew with a lower schedule.lr and another "
                f"--out, or delete {self.folder}"
            )

    def _validate(self, seconds: float) -> None:
        """Judge on validation episodes, and keep each part that is the best yet."""
        errors = self.errors()
        row: State = {"step": self.done, "seconds": seconds, "validation/r2": errors[0].r2}
        row[f"validation/{NETWORK}"] = errors[0].mse
        row[CHOSEN_BY[NETWORK]] = balanced_error(errors)
        quality = self.time_to_go()
        if quality is not None:
            row[CHOSEN_BY[TIME_TO_GO]] = quality.loss
            row["validation/median_error"] = quality.median_error
        self._require_finite(row)
        for part, module in self.modules.items():
            best = self.best_row(part)
            if best is None or row[CHOSEN_BY[part]] < best[CHOSEN_BY[part]]:
                write_tensors(self._best_path(part, self.done), module.state_dict())
        self.history.append(row)

    def _read_history(self) -> list[State]:
        """The rows up to the restored step: a later one may have been noted before a kill."""
        path = self.folder / HISTORY
        rows = read_json(path) if path.exists() and self.done else []
        return [row for row in rows if row["step"] <= self.done]


def training_episodes(latents: Latents, config: ControllerConfig) -> Index:
    """The training episodes, or the share of them that the config asks for."""
    train = latents.split.train
    number = max(1, round(config.data_fraction * len(train)))
    # The draw does not depend on the training's seed: a share holds the smaller shares.
    order = generator("data-fraction", 0).permutation(len(train))
    return np.sort(train[order[:number]])


def validation_examples(sampler: GoalSampler, config: ControllerConfig) -> Examples:
    """The examples that a training is judged by, the same whatever its seed."""
    device = sampler.device
    rng = torch.Generator(device).manual_seed(_draw("validation", 0, config.network.max_horizon))
    return sampler.draw(config.schedule.validation_examples, rng)


def _loss(part: str, module: nn.Module, examples: Examples) -> Tensor:
    if part == TIME_TO_GO:
        logits_BH = module(examples.z, examples.z_goal)
        return F.cross_entropy(logits_BH, examples.steps - 1)
    predicted_BA = module(examples.z, examples.z_goal, examples.steps)
    # Eq. (7), as a mean over an action's numbers: that is what the paper's errors are told in.
    return F.mse_loss(predicted_BA, examples.actions)


def _draw(purpose: str, seed: int, *index: int) -> int:
    """A seed for torch's generators."""
    return int(generator(f"controller-{purpose}", seed, *index).integers(2**63))


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
                _draw_curves(training, model, report, partial)
    for leftover in (folder / STATE, *folder.glob(BEST.format("*", "*"))):
        leftover.unlink(missing_ok=True)
    return read_config(ControllerReport, folder / REPORT)


@dataclass(frozen=True, kw_only=True)
class ControllerQuality:
    """What `judge_controller` finds."""

    errors: tuple[ActionMetrics, ...]
    time_to_go: TimeToGoMetrics | None
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
        load_trained_idm(controller, weights=weights, device=device),
    )
    found.require_made_by(model.metadata.world_id)
    if found.metadata.split != model.metadata.split:
        raise ValueError(
            f"{latents}: held out other episodes ({found.metadata.split}) than the controller's "
            f"training ({model.metadata.split}); judge it on latents with that split"
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
            torch.tensor(found.metadata.std, device=device),
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
    latents: Latents, model: TrainedIDM, episodes: Index, *, seed: int, device: torch.device
) -> Examples:
    network = model.metadata.network
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
    save_trained_idm(folder / "last.safetensors", model)
    training.restore_best()
    save_trained_idm(folder / "best.safetensors", model)
    report = _report(training, model)
    write_json(folder / REPORT, to_json(report))
    return report


def _draw_curves(
    training: Training, model: TrainedIDM, report: ControllerReport, folder: Path
) -> None:
    kind = "GC-IDM" if isinstance(model.network, GCIDM) else "Pairwise model"
    title = f"{kind} on {report.task or 'a dataset'}"
    save_curves(folder / CURVES, training.history, report.errors, report.time_to_go, title)


def _report(training: Training, model: TrainedIDM) -> ControllerReport:
    best = training.best_row(NETWORK)
    assert best is not None
    seconds = training.history[-1]["seconds"]
    parts = {name: num_parameters(module) for name, module in training.modules.items()}
    schedule = training.config.schedule
    return ControllerReport(
        world_id=model.metadata.world_id,
        task=model.metadata.task,
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
