"""The stage `train-world`: a dataset in; weights, curves and validation metrics out."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from goalward import defaults
from goalward.core.arrays import spread
from goalward.core.artifacts import Stage
from goalward.core.config import (
    AtLeastTwo,
    Fraction,
    NonNegative,
    NonNegativeFloat,
    PositiveFloat,
    config,
    read_config,
    to_json,
    write_json,
)
from goalward.core.curves import LogTarget, Row, SendRow, log_to, require_log_package
from goalward.core.distributed import Replica, as_only_replica, joined_replicas, local_processes
from goalward.core.random import generator, torch_seed
from goalward.core.training import CHECKPOINT, OnProgress, Part, Schedule, Trainer, cosine_lr
from goalward.data.episodes import Episodes, Index, available_memory, episodes_id, open_episodes
from goalward.data.splits import SplitConfig, split_episodes
from goalward.data.summary import task_name
from goalward.data.windows import Windows, action_scale, batch_numbers, prefetched
from goalward.world.checkpoint import STAGE, load_world, require_fits, save_world, world_id
from goalward.world.figures import MIN_POINTS, save_curves, save_latent_path
from goalward.world.frozen import normalise
from goalward.world.lewm import LeWM, LeWMConfig, num_parameters
from goalward.world.metrics import (
    WorldMetrics,
    encode_rows,
    probe_rows,
    probe_targets,
    probe_world,
    world_metrics,
)
from goalward.world.objective import Objective, ObjectiveConfig, sample_directions

STAGE_VERSION = 1
METRICS, CURVES, LATENTS = "metrics.json", "curves.png", "latents.png"
SNAPSHOTS = ".snapshots"  # hidden: no payload, deleted at the end
VALIDATION_SHARES = (0.02, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)  # of the steps
VALIDATION_BATCHES, VALIDATION_BATCH = 8, 128
RECONSTRUCTION_FRAMES = 1_000  # to take their mean picture from
PICTURE_FRAMES = 400  # of the episode whose latents are drawn
CPU = torch.device("cpu")
PART, BEST_BY = "world", "held_out_loss"

Batch = tuple[Tensor, ...]  # uint8 frames (B, T, H, W, 3) and z-scored action blocks (B, T - 1, A)


@config
class ScheduleConfig(Schedule):
    """Length and pace of the optimisation: AdamW, linear warm-up, then half a cosine."""

    batch: AtLeastTwo = 128  # windows a step, over all replicas; BatchNorm needs two
    lr: PositiveFloat = 5e-5
    weight_decay: NonNegativeFloat = 1e-3
    warmup: Fraction = 0.01  # share of the steps

    def lr_at(self, step: int) -> float:
        """The learning rate of step 0, 1, ...; there is at least one step of warm-up."""
        warmup = max(1, int(self.warmup * self.steps + 1e-9))
        return cosine_lr(step, self.steps, self.lr, warmup=warmup)

    def validate_at(self) -> set[int]:
        """Numbers of steps after which to validate; the last is one of them."""
        return {max(1, round(share * self.steps)) for share in VALIDATION_SHARES}


@config
class WorldConfig:
    """One training of a world model."""

    model: LeWMConfig
    schedule: ScheduleConfig
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: bfloat16 on CUDA alone
    min_latent_std: NonNegativeFloat = 0.01  # below it training stops: latents collapsed
    seed: NonNegative = 0
    split: SplitConfig = field(default_factory=SplitConfig)

    @property
    def window_frames(self) -> int:
        """Frames of a training window, a model step apart."""
        return max(self.model.history, len(self.objective.open_loop_weights)) + 1

    def uses_bfloat16(self, device: torch.device) -> bool:
        """Whether to compute in mixed precision there."""
        return self.precision == "bfloat16" or (self.precision == "auto" and device.type == "cuda")


class Training:
    """The data, losses and validation of a training; `trainer` runs its steps.

    Args:
        config: What the result depends on.
        episodes: The dataset.
        folder: Where the checkpoint and the curves are.
        replica: This process among those that train together.
        task: Whose state the probes read from latents; none if it is unknown.
    """

    def __init__(
        self,
        config: WorldConfig,
        episodes: Episodes,
        folder: Path,
        replica: Replica,
        task: str | None,
    ) -> None:
        self.config, self.folder, self.replica, self.task = config, folder, replica, task
        room = available_memory() // 2 // local_processes()
        self.episodes = episodes.in_memory(["pixels", "action"], room)
        self.targets = probe_targets(episodes, task)
        self.split = split_episodes(episodes.num_episodes, config.split)
        self.scale = action_scale(episodes, self.split.train)
        self.windows = self._windows(self.split.train)
        self._held_out = self._windows(self.split.validation)
        self.objective = _new_objective(config, replica)
        if self.objective.reconstruction is not None:
            rng = generator("thumbnails", config.seed)
            rows = probe_rows(self.episodes, self.split.train, RECONSTRUCTION_FRAMES, rng)
            frames = torch.from_numpy(self.episodes.rows("pixels", rows)).to(replica.device)
            self.objective.reconstruction.fit(normalise(frames))
        part = Part(module=self.objective, losses=self._losses, best_by=BEST_BY)
        self.trainer = Trainer({PART: part}, config.schedule, folder, replica=replica)
        self._replicated: nn.Module = self.objective
        if replica.count > 1:
            self._replicated = DistributedDataParallel(self.objective)

    def run(
        self, *, save_seconds: float, on_progress: OnProgress | None, send: SendRow | None
    ) -> None:
        """Train to the end."""
        self.trainer.fit(
            lambda steps: prefetched(self._read, steps),
            self.validate,
            validate_at=self.config.schedule.validate_at(),
            save_seconds=save_seconds,
            note=self._note,
            on_progress=on_progress,
            frames=self.windows.frames,
            send=send,
        )

    def _windows(self, chosen: Index) -> Windows:
        frames, skip = self.config.window_frames, self.config.model.frameskip
        return Windows(self.episodes, chosen, frames=frames, frameskip=skip, scale=self.scale)

    def _read(self, step: int) -> Batch:
        """This replica's windows of a step."""
        batch = self.config.schedule.batch
        numbers = batch_numbers(len(self.windows), batch, seed=self.config.seed, step=step)
        return self.windows.read(numbers[self.replica.share(batch)])

    def _losses(self, batch: Batch, step: int) -> Mapping[str, Tensor]:
        seed, rank = self.config.seed, self.replica.rank
        torch.manual_seed(torch_seed("world-dropout", seed, step, rank))
        return self._terms(self._replicated, batch, step)

    def _terms(self, module: nn.Module, batch: Batch, step: int) -> dict[str, Tensor]:
        """The loss of a batch, in the configured precision; `step` chooses SIGReg's directions."""
        device, config = self.replica.device, self.config
        frames_BTHWC, actions_BTA = (part.to(device, non_blocking=True) for part in batch)
        pixels = normalise(frames_BTHWC.flatten(0, 1)).unflatten(0, frames_BTHWC.shape[:2])
        rng = torch.Generator().manual_seed(torch_seed("world-directions", config.seed, step))
        number = config.objective.projections
        directions_DP = sample_directions(config.model.latent_dim, number, rng).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=config.uses_bfloat16(device)):
            return module(pixels, actions_BTA, directions_DP)

    def _note(self, row: Row) -> str:
        """The terms of the loss, for the progress bar; refuses collapsed latents."""
        if row["latent_std"] < self.config.min_latent_std:
            raise ValueError(
                f"the latents collapsed: their standard deviation is {row['latent_std']:.2g} at "
                f"step {self.trainer.done}; train again with a larger objective.regulariser_weight "
                f"into another folder, or delete {self.folder} first"
            )
        terms = ("prediction", "open_loop", "regulariser", "inverse_dynamics", "reconstruction")
        return ", ".join(f"{name.replace('_', ' ')} {row[name]:.3g}" for name in terms if row[name])

    def validate(self) -> Row:
        """Losses and linear probes on held-out episodes; keeps one episode's latents."""
        row = self._held_out_terms()
        if not math.isfinite(row[BEST_BY]):
            return row  # the trainer refuses it
        model, seed = self.objective.model, self.config.seed
        probes = probe_world(model, self.episodes, self.targets, self.split, seed=seed, mlp=False)
        (self.folder / SNAPSHOTS).mkdir(exist_ok=True)
        latents = encode_rows(model, self.episodes, self.picture_rows()).numpy()
        np.save(self.folder / SNAPSHOTS / f"{self.trainer.done:08d}.npy", latents)
        return {**row, **{f"probe/{score.target}": score.rmse for score in probes.linear}}

    def _held_out_terms(self) -> Row:
        self.objective.eval()
        windows, batch = self._held_out, min(VALIDATION_BATCH, len(self._held_out))
        order = generator("held-out-windows", self.config.seed).permutation(len(windows))
        number, sums = min(VALIDATION_BATCHES, len(windows) // batch), dict[str, Tensor]()
        with torch.inference_mode(), as_only_replica():
            for k in range(number):
                part = windows.read(order[k * batch : (k + 1) * batch])
                for name, term in self._terms(self.objective, part, k).items():
                    sums[name] = sums.get(name, 0) + term.float().cpu()
        return {f"held_out_{name}": float(total / number) for name, total in sums.items()}

    def picture_rows(self) -> Index:
        """Rows of the longest held-out episode, evenly thinned: its latents are drawn."""
        lengths = self.episodes.lengths[self.split.held_out]
        rows = self.episodes.window_starts(1, self.split.held_out[[np.argmax(lengths)]])
        return rows[spread(len(rows), PICTURE_FRAMES)]


def require_matching(config: WorldConfig, episodes: Episodes, replica: Replica) -> None:
    """Refuse a dataset that the configuration does not fit, before anything is written."""
    model, schedule = config.model, config.schedule
    require_fits(model, episodes)
    split = split_episodes(episodes.num_episodes, config.split)
    span = (config.window_frames - 1) * model.frameskip + 1
    needed = (("training", split.train, schedule.batch), ("validation", split.validation, 1))
    for name, side, least in needed:
        if (found := len(episodes.window_starts(span, side))) < least:
            raise ValueError(
                f"{episodes.path}: its {len(side)} {name} episodes hold {found} windows of {span} "
                f"rows, but {least} are needed; collect more or longer episodes"
            )
    if schedule.batch % replica.count:
        raise ValueError(
            f"a batch of {schedule.batch} cannot be shared evenly by {replica.count} processes; "
            "choose another number of processes, or set schedule.batch"
        )


def _new_objective(config: WorldConfig, replica: Replica) -> Objective:
    """Initial weights from the seed alone, whatever was drawn before."""
    with torch.random.fork_rng(devices=[]):  # weights are drawn on the CPU
        torch.manual_seed(config.seed)
        objective = Objective(LeWM(config.model), config.objective).to(replica.device)
    if replica.device.type == "cuda" and replica.count > 1:
        # On CPUs torch has none: there each replica normalises its own part of the batch.
        return nn.SyncBatchNorm.convert_sync_batchnorm(objective)
    return objective


@dataclass(frozen=True, kw_only=True)
class WorldReport:
    """What a training achieved, by its best weights on held-out episodes."""

    world_id: str  # of the last weights
    best_world_id: str  # of those with the lowest held-out loss
    task: str | None
    parameters: dict[str, int]  # trainable numbers of each part
    steps: int
    seconds: float  # of training, over all sessions
    frames_per_second: float
    data_share: float  # of that time, spent waiting for data
    train_windows: int
    held_out_loss: float
    metrics: WorldMetrics


def train_world(
    config: WorldConfig,
    dataset: Path,
    folder: Path,
    *,
    device: torch.device = CPU,
    task: str | None = None,
    save_seconds: float = defaults.SAVE_SECONDS,
    mlp_probe: bool = True,
    pictures: bool = True,
    log: LogTarget | None = None,
    on_progress: OnProgress | None = None,
) -> WorldReport | None:
    """Train a world model into the stage folder `folder`, or find it complete there.

    Under `torchrun` all processes train together, and those after the first return None. The MLP
    probe takes a minute or two; `validate_world` trains it, too.
    """
    require_log_package(log)
    with open_episodes(dataset) as episodes, joined_replicas(device) as replica:
        name = task_name(episodes, task)
        inputs = {"episodes": episodes_id(episodes), **({"task": task} if task else {})}
        stage = Stage(
            folder=folder, name=STAGE, version=STAGE_VERSION, config=config, inputs=inputs
        )
        if not stage.is_complete():
            require_matching(config, episodes, replica)
            with stage.writing() if replica.is_first else nullcontext(stage.partial) as partial:
                training = Training(config, episodes, partial, replica, name)
                target = log if replica.is_first else None
                with log_to(target, stage, first_step=training.trainer.done) as send:
                    training.run(save_seconds=save_seconds, on_progress=on_progress, send=send)
                if replica.is_first:
                    _conclude(training, mlp_probe=mlp_probe, pictures=pictures)
    if not replica.is_first:
        return None
    (folder / CHECKPOINT).unlink(missing_ok=True)
    shutil.rmtree(folder / SNAPSHOTS, ignore_errors=True)
    return read_config(WorldReport, folder / METRICS)


def _conclude(training: Training, *, mlp_probe: bool, pictures: bool) -> None:
    """Write weights, report and pictures."""
    config, folder, trainer = training.config, training.folder, training.trainer
    model, scale = training.objective.model, training.scale
    last_id = world_id(model, scale)
    save_world(folder, "last", model, scale)
    trainer.restore_best()
    save_world(folder, "best", model, scale)
    best = load_world(folder, device=training.replica.device)  # also without SyncBatchNorm
    timed, best_row = trainer.history[-1], trainer.best_row(PART)
    assert best_row is not None
    frames = config.schedule.steps * config.schedule.batch * training.windows.frames
    best = replace(best, split=config.split)
    parts = {name: num_parameters(part) for name, part in best.model.named_children()}
    report = WorldReport(
        world_id=last_id,
        best_world_id=best.id,
        task=training.task,
        parameters={**parts, "total": sum(parts.values())},
        steps=config.schedule.steps,
        seconds=timed["seconds"],
        frames_per_second=frames / timed["seconds"],
        data_share=timed["data_seconds"] / timed["seconds"],
        train_windows=len(training.windows),
        held_out_loss=best_row[BEST_BY],
        metrics=world_metrics(
            best, training.episodes, training.task, seed=config.seed, mlp=mlp_probe
        ),
    )
    write_json(folder / METRICS, to_json(report))
    if pictures:
        _draw_pictures(training)


def _draw_pictures(training: Training) -> None:
    """Curves, and latents of an episode that is long enough."""
    folder, title = training.folder, f"LeWM on {training.task or 'a dataset'}"
    save_curves(folder / CURVES, training.trainer.history, title)
    frames = training.episodes.rows("pixels", training.picture_rows())
    if len(frames) >= MIN_POINTS:
        paths = sorted((folder / SNAPSHOTS).glob("*.npy"))
        latents = {int(path.stem): np.load(path) for path in paths}
        save_latent_path(folder / LATENTS, latents, frames, title)
