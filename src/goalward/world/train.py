"""The stage `train-world`: a dataset in; weights, curves and quality figures out."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from goalward import defaults
from goalward.core.artifacts import Stage
from goalward.core.config import (
    read_config,
    read_json,
    require_at_least,
    require_types,
    to_json,
    write_json,
)
from goalward.core.distributed import Replica, as_only_replica, joined_replicas, local_processes
from goalward.core.random import generator
from goalward.core.training import make_optimiser, restore_state, save_state
from goalward.data.episodes import Episodes, Index, available_memory, episodes_id, open_episodes
from goalward.data.splits import SplitConfig, split_episodes
from goalward.data.summary import task_name
from goalward.data.windows import (
    Windows,
    action_scale,
    batch_numbers,
    prefetched,
    require_finite_actions,
    sizes,
)
from goalward.tasks.task import ProbeTarget
from goalward.world.checkpoint import STAGE, load_world, save_world
from goalward.world.figures import save_curves, save_latent_path
from goalward.world.frozen import normalise
from goalward.world.lewm import LeWM, LeWMConfig, num_parameters
from goalward.world.metrics import (
    WorldMetrics,
    encode_rows,
    probe_rows,
    probe_targets,
    probe_world,
    validate_world,
    world_metrics,
)
from goalward.world.objective import TERMS, Objective, ObjectiveConfig, Terms, sample_directions
from goalward.world.tsne import MIN_POINTS


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleConfig:
    """Length and pace of the optimisation (AdamW, linear warm-up, then half a cosine)."""

    steps: int  # optimiser steps
    batch: int = 128  # windows a step, over all replicas
    lr: float = 5e-5
    weight_decay: float = 1e-3
    warmup: float = 0.01  # share of the steps
    clip: float = 1.0  # largest norm of a step's gradient

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 1, "steps")
        for name in ("lr", "clip"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if self.batch < 2:
            raise ValueError(f"batch must be at least 2 (BatchNorm), got {self.batch}")
        if self.weight_decay < 0 or not 0 <= self.warmup < 1:
            raise ValueError(
                "weight_decay must be at least 0 and warmup in [0, 1), got "
                f"{self.weight_decay} and {self.warmup}"
            )

    def lr_at(self, step: int) -> float:
        """The learning rate of step 0, 1, ..."""
        warmup = max(1, int(self.warmup * self.steps + 1e-9))
        if step < warmup:
            return self.lr * (step + 1) / warmup
        return self.lr * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (self.steps - warmup)))


@dataclass(frozen=True, kw_only=True, slots=True)
class WorldConfig:
    """One training of a world model."""

    model: LeWMConfig
    schedule: ScheduleConfig
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: bfloat16 on CUDA alone
    min_latent_std: float = 0.01  # below it latents have collapsed and training stops; 0: never
    seed: int = 0
    split: SplitConfig = field(default_factory=SplitConfig)

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 0, "seed", "min_latent_std")

    def uses_bfloat16(self, device: torch.device) -> bool:
        """Whether to compute in mixed precision there."""
        return self.precision == "bfloat16" or (self.precision == "auto" and device.type == "cuda")


HISTORY = "history.json"
STATE, SNAPSHOTS = ".state.safetensors", ".snapshots"  # hidden: no payload, dropped at the end
LOG_EVERY = 20  # steps; losses are shown, noted and checked so often
SNAPSHOT_SHARES = (0.02, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)  # of the steps
HELD_OUT_BATCHES = 8
THUMBNAIL_FRAMES = 1_000
PICTURE_FRAMES = 400

State = dict[str, float]
OnProgress = Callable[[int, int, str], None]  # (steps done, frames of this sitting, losses)


class Training:
    """One training under way.

    Args:
        config: What the result depends on.
        episodes: The dataset.
        folder: Where weights, history and the state to resume from are kept.
        replica: This process among those that train together.
        measures: What the quick probe reads from latents; none for an unknown task.

    Attributes:
        history: Rows of losses, errors and seconds, by step.
        done: Steps done.
    """

    def __init__(
        self,
        config: WorldConfig,
        episodes: Episodes,
        folder: Path,
        *,
        replica: Replica,
        measures: Sequence[ProbeTarget],
    ) -> None:
        self.config, self.folder, self.replica, self.measures = config, folder, replica, measures
        room = available_memory() // 2 // local_processes()
        self.episodes = episodes.in_memory(["pixels", "action"], room)
        self.split = split_episodes(episodes.num_episodes, config.split)
        self.scale = action_scale(episodes, self.split.train)
        frames = config.model.history + 1
        self.train_windows = self.windows(self.split.train, frames)
        self.validation_windows = self.windows(self.split.validation, frames)
        self.steps = config.schedule.steps
        self.objective = _new_objective(config, replica)
        self._fit_thumbnails()
        self.optimiser = make_optimiser(
            self.objective, lr=config.schedule.lr, weight_decay=config.schedule.weight_decay
        )
        self.done = restore_state(
            folder / STATE, self.objective, self.optimiser, is_first=replica.is_first
        )
        self.history = self._read_history()

    @property
    def model(self) -> LeWM:
        """The model that is being trained."""
        return self.objective.model

    def windows(self, chosen: Index, frames: int) -> Windows:
        """Windows of so many frames of the chosen episodes."""
        skip = self.config.model.frameskip
        return Windows(self.episodes, chosen, frames=frames, frameskip=skip, scale=self.scale)

    def run(self, *, save_seconds: float, on_progress: OnProgress | None = None) -> None:
        """Train to the end, saving the state every `save_seconds`.

        Raises:
            ValueError: the loss is no longer finite, or the latents have collapsed.
        """
        snapshots = {max(1, round(share * self.steps)) for share in SNAPSHOT_SHARES}
        stopwatch = _Stopwatch(self.history)
        replicated = self._replicated()
        saved, first, sums = time.monotonic(), self.done, torch.zeros(len(TERMS))
        frames = self.config.schedule.batch * self.train_windows.frames
        batches = prefetched(self._read, range(first, self.steps))
        for step in range(first, self.steps):
            with stopwatch.waiting():
                batch = next(batches)
            sums += self._step(replicated, batch, step).cpu()
            self.done = step + 1
            if self.done % LOG_EVERY == 0 or self.done == self.steps:
                row = self._note(sums / ((self.done - 1) % LOG_EVERY + 1), stopwatch)
                sums = torch.zeros(len(TERMS))
                if on_progress is not None:
                    on_progress(self.done, (self.done - first) * frames, _losses(row))
            if self.done in snapshots:
                self._snapshot(stopwatch)
            due = time.monotonic() - saved >= save_seconds and self.done % LOG_EVERY == 0
            if due or self.done == self.steps:
                self._save()
                saved = time.monotonic()

    def _fit_thumbnails(self) -> None:
        """Take the thumbnails' scale from a sample of training frames."""
        if self.objective.thumbnail is not None:
            rng = generator("thumbnails", self.config.seed)
            rows = probe_rows(self.episodes, self.split.train, THUMBNAIL_FRAMES, rng)
            frames = torch.from_numpy(self.episodes.rows("pixels", rows)).to(self.replica.device)
            self.objective.thumbnail.fit(normalise(frames))

    def _read(self, step: int) -> tuple[Tensor, ...]:
        """This replica's frames (B, T, H, W, 3) and action blocks of a step."""
        schedule = self.config.schedule
        numbers = batch_numbers(
            len(self.train_windows), schedule.batch, seed=self.config.seed, step=step
        )
        return self.train_windows.read(numbers[self.replica.share(schedule.batch)])

    def _step(self, replicated: nn.Module, batch: tuple[Tensor, ...], step: int) -> Tensor:
        """One step of the optimiser; returns the terms, in the order of TERMS."""
        schedule = self.config.schedule
        for group in self.optimiser.param_groups:
            group["lr"] = schedule.lr_at(step)
        torch.manual_seed(_draw("dropout", self.config.seed, step, self.replica.rank))
        replicated.train()
        terms = self._terms(replicated, batch, step)
        self.optimiser.zero_grad()
        terms.loss.backward()
        nn.utils.clip_grad_norm_(self.objective.parameters(), schedule.clip)
        self.optimiser.step()
        return terms.stacked()

    def _terms(self, module: nn.Module, batch: tuple[Tensor, ...], step: int) -> Terms:
        """The loss of a batch, in the configured precision; `step` chooses SIGReg's directions."""
        device, config = self.replica.device, self.config
        frames_BTHWC, actions_BTA = (part.to(device, non_blocking=True) for part in batch)
        pixels = normalise(frames_BTHWC.flatten(0, 1)).unflatten(0, frames_BTHWC.shape[:2])
        rng = torch.Generator().manual_seed(_draw("directions", config.seed, step))
        directions_DP = sample_directions(
            config.model.latent_dim, config.objective.projections, rng
        ).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=config.uses_bfloat16(device)):
            return module(pixels, actions_BTA, directions_DP)

    def _note(self, means: Tensor, stopwatch: _Stopwatch) -> State:
        """Check the losses since the last note and add them to the history."""
        row: State = {"step": self.done, **stopwatch.read()}
        row["lr"] = self.config.schedule.lr_at(self.done - 1)
        row.update(zip(TERMS, means.tolist(), strict=True))
        self._require_finite(row)
        if row["latent_std"] < self.config.min_latent_std:
            raise ValueError(
                f"the latents collapsed: their standard deviation is {row['latent_std']:.2g} at "
                f"step {self.done}; start anew with a larger objective.regulariser_weight and "
                f"another --out, or delete {self.folder}"
            )
        self.history.append(row)
        return row

    def _require_finite(self, row: State) -> None:
        if not np.isfinite(list(row.values())).all():
            raise ValueError(
                f"the loss is no longer finite at step {self.done} of {self.steps}; start anew "
                f"with a lower learning rate and another --out, or delete {self.folder}"
            )

    def _snapshot(self, stopwatch: _Stopwatch) -> None:
        """Judge the model on held-out episodes, and keep its weights if they are the best yet."""
        if not self.replica.is_first:
            return
        with stopwatch.stopped():
            row: State = {"step": self.done, **stopwatch.read()}
            row.update(self._held_out_terms())
            self._require_finite(row)
            for score in probe_world(
                self.model,
                self.episodes,
                self.measures,
                self.split,
                seed=self.config.seed,
                mlp=False,
            ).linear:
                row[f"probe/{score.measure}"] = score.rmse
            earlier = [r["held_out_loss"] for r in self.history if "held_out_loss" in r]
            self.history.append(row)
            self._save_episode_latents()
            if row["held_out_loss"] < min(earlier, default=np.inf):
                save_world(self.folder, "best", self.model, self.scale)

    def _held_out_terms(self) -> State:
        self.objective.eval()
        windows, batch = self.validation_windows, min(128, len(self.validation_windows))
        order = generator("held-out-windows", self.config.seed).permutation(len(windows))
        sums = torch.zeros(len(TERMS))
        number = min(HELD_OUT_BATCHES, len(windows) // batch)
        with torch.inference_mode(), as_only_replica():
            for k in range(number):
                part = windows.read(order[k * batch : (k + 1) * batch])
                sums += self._terms(self.objective, part, k).stacked().cpu()
        names = (f"held_out_{name}" for name in TERMS)
        return dict(zip(names, (sums / number).tolist(), strict=True))

    def picture_rows(self) -> Index:
        """Rows of the longest held-out episode, evenly thinned: its latents are drawn."""
        lengths = self.episodes.lengths[self.split.held_out]
        rows = self.episodes.window_starts(1, self.split.held_out[[np.argmax(lengths)]])
        chosen = np.linspace(0, len(rows) - 1, min(len(rows), PICTURE_FRAMES))
        return rows[chosen.round().astype(np.int64)]

    def _save_episode_latents(self) -> None:
        """One episode's latents now, for the picture of how they take shape."""
        (self.folder / SNAPSHOTS).mkdir(exist_ok=True)
        latents = encode_rows(self.model, self.episodes, self.picture_rows()).numpy()
        np.save(self.folder / SNAPSHOTS / f"{self.done:08d}.npy", latents)

    def _save(self) -> None:
        if not self.replica.is_first:
            return
        if self.done == self.steps:
            save_world(self.folder, "last", self.model, self.scale)
        write_json(self.folder / HISTORY, self.history)
        save_state(self.folder / STATE, self.objective, self.optimiser, self.done)

    def _read_history(self) -> list[State]:
        """The rows up to the restored step: a later one may have been noted before a kill."""
        path = self.folder / HISTORY
        rows = read_json(path) if path.exists() and self.done else []
        return [row for row in rows if row["step"] <= self.done]

    def _replicated(self) -> nn.Module:
        if self.replica.count == 1:
            return self.objective
        return DistributedDataParallel(self.objective)


class _Stopwatch:
    """Seconds of a training, all sittings together, and those spent waiting for data."""

    def __init__(self, history: Sequence[State]) -> None:
        last: State = history[-1] if history else {}
        self._seconds, self._data = last.get("seconds", 0.0), last.get("data_seconds", 0.0)
        self._started = time.perf_counter()

    def read(self) -> State:
        seconds = self._seconds + time.perf_counter() - self._started
        return {"seconds": seconds, "data_seconds": self._data}

    @contextmanager
    def waiting(self) -> Iterator[None]:
        before = time.perf_counter()
        yield
        self._data += time.perf_counter() - before

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Leave out what is not training, such as judging."""
        before = time.perf_counter()
        yield
        self._started += time.perf_counter() - before


def require_matching(config: WorldConfig, episodes: Episodes, replica: Replica) -> None:
    """Refuse a dataset that the configuration does not fit, before anything is written."""
    model, schedule = config.model, config.schedule
    action_dim, size = sizes(episodes)
    if size != model.encoder.image_size:
        raise ValueError(
            f"{episodes.path}: frames have {size} pixels a side, the model takes "
            f"{model.encoder.image_size}; collect with --image-size {model.encoder.image_size}, or "
            f"train for these frames with --set model.encoder.image_size={size}"
        )
    if action_dim != model.action_dim:
        raise ValueError(
            f"{episodes.path}: actions have {action_dim} numbers, the model takes "
            f"{model.action_dim}; leave model.action_dim out"
        )
    require_finite_actions(episodes)
    split = split_episodes(episodes.num_episodes, config.split)
    span = model.history * model.frameskip + 1
    for side, least in ((split.train, schedule.batch), (split.validation, 1)):
        if (found := len(episodes.window_starts(span, side))) < least:
            name = "training" if side is split.train else "validation"
            raise ValueError(
                f"{episodes.path}: its {len(side)} {name} episodes hold {found} windows of {span} "
                f"rows, but {least} are needed; collect more or longer episodes"
            )
    if schedule.batch % replica.count:
        raise ValueError(
            f"a batch of {schedule.batch} cannot be shared evenly by {replica.count} processes; "
            "change it with --set schedule.batch=..., or their number"
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


def _draw(purpose: str, seed: int, *index: int) -> int:
    """A seed for torch's generators."""
    return int(generator(f"world-{purpose}", seed, *index).integers(2**63))


def _losses(row: State) -> str:
    """What the progress bar shows."""
    shown = ("prediction", "regulariser", "inverse", "thumbnail")
    return ", ".join(f"{name} {row[name]:.3g}" for name in shown if row[name])


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
    quality: WorldMetrics


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
            `validate_world` can do it later.
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
        name = task_name(episodes, task)
        measures = probe_targets(episodes, name)
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
                        _draw_pictures(training, partial, _title(report))
    if not replica.is_first:
        return None
    (folder / STATE).unlink(missing_ok=True)
    shutil.rmtree(folder / SNAPSHOTS, ignore_errors=True)
    report = read_config(WorldReport, folder / REPORT)
    if thorough and measures and not report.quality.probes.network:  # made by a quicker command
        quality = validate_world(folder, dataset, task=task, seed=config.seed, device=device)
        return replace(report, quality=quality)
    return report


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
        quality=world_metrics(
            best.model,
            training.episodes,
            training.measures,
            training.split,
            training.scale,
            seed=config.seed,
            mlp=thorough,
        ),
    )


def _draw_pictures(training: Training, folder: Path, title: str) -> None:
    """Curves, and latents of an episode that is long enough."""
    save_curves(folder / CURVES, training.history, title)
    paths = sorted((folder / SNAPSHOTS).glob("*.npy"))
    frames = training.episodes.rows("pixels", training.picture_rows())
    if len(frames) >= MIN_POINTS:  # else there is nothing to draw
        latents = {int(path.stem): np.load(path) for path in paths}
        save_latent_path(folder / LATENTS, latents, frames, title)


def _is_judged(row: State) -> bool:
    return "held_out_loss" in row


def _parameters(model: LeWM) -> dict[str, int]:
    parts = {name: num_parameters(part) for name, part in model.named_children()}
    return {**parts, "total": num_parameters(model)}


def _title(report: WorldReport) -> str:
    return f"LeWM on {report.task or 'a dataset'}"
