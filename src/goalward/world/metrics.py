"""How good a world model is, on episodes that it was not trained on.

Prediction errors stand beside those of copying the last latent. Probes measure how well the true
state can be read from a latent. The linear probe is quick and follows the training. The MLP probe
comes at its end: it finds what the latent holds, however it is encoded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from goalward.core.arrays import Array
from goalward.core.random import generator
from goalward.data.episodes import Episodes, Index, open_episodes
from goalward.data.splits import Split, split_episodes
from goalward.data.summary import task_name
from goalward.data.windows import Windows, action_scale
from goalward.tasks import find_task
from goalward.tasks.task import ProbeTarget, wrap_angle
from goalward.world.checkpoint import World, require_fits
from goalward.world.frozen import FrameEncoder, normalise
from goalward.world.lewm import LeWM

RIDGE = 1e-6  # of a standardised latent's variance: keeps collapsed latents solvable
ENCODE_BATCH = 256  # frames
ERROR_BATCH = 128  # windows
ERROR_WINDOWS = 1024
FAR_STEPS = 5  # the planners' horizon, in model steps
FEW, MANY = (4_000, 2_000), (60_000, 8_000)  # frames to fit a probe on, and to score it on
# The MLP probe: two hidden layers, trained by AdamW in one cycle with a cosine decay.
MLP_HIDDEN, MLP_STEPS, MLP_BATCH = 512, 4_000, 512
MLP_PEAK_RATE, MLP_WEIGHT_DECAY = 3e-3, 0.1


@dataclass(frozen=True, kw_only=True)
class PredictionError:
    """Mean squared error of a latent's number, predicted some model steps ahead."""

    steps: int
    model: float
    copy_last: float  # error of predicting that nothing changes
    windows: int

    @property
    def ratio(self) -> float:
        """Below 1: better than copying."""
        return self.model / max(self.copy_last, 1e-12)


@dataclass(frozen=True, kw_only=True)
class OutcomeError:
    """Mean squared error of a latent's number, predicted for the end of executed actions."""

    actions: str  # which ones
    model: float
    copy_first: float  # error of predicting that nothing changes
    sequences: int

    @property
    def ratio(self) -> float:
        """Below 1: better than copying."""
        return self.model / max(self.copy_first, 1e-12)


@dataclass(frozen=True, slots=True)
class ProbeScore:
    """How well a probe reads one target, over frames and the target's components."""

    target: str
    unit: str  # of the errors
    rmse: float  # of angles: of wrapped differences
    median: float  # absolute error
    r2: float  # over the probe's outputs (of an angle: cosine and sine); 0 for a constant target


@dataclass(frozen=True, kw_only=True)
class Probes:
    """Both probes of one set of latents."""

    linear: tuple[ProbeScore, ...] = ()
    mlp: tuple[ProbeScore, ...] = ()  # empty if it was not trained


@dataclass(frozen=True, kw_only=True)
class WorldMetrics:
    """The validation of a world model."""

    prediction: tuple[PredictionError, ...]
    probes: Probes  # empty where the dataset has no true states
    outcomes: tuple[OutcomeError, ...] = ()  # empty where nothing was simulated


@dataclass(frozen=True)
class ProbeData:
    """Frozen latents (N, D) and the true states of the same frames, (N, ...) for each column."""

    latents: Array
    columns: Mapping[str, Array]


def validate_world(
    world: World, dataset: Path, *, task: str | None = None, seed: int = 0
) -> WorldMetrics:
    """Validate a world model on the held-out episodes of a dataset, split as in its training."""
    with open_episodes(dataset) as episodes:
        name = task_name(episodes, task)
        require_fits(world.model.config, episodes)
        return world_metrics(world, episodes, name, seed=seed)


def world_metrics(
    world: World, episodes: Episodes, task: str | None, *, seed: int, mlp: bool = True
) -> WorldMetrics:
    """Prediction errors and probes on held-out episodes, with or without the MLP probe.

    A public checkpoint does not store the scale of its actions, which then comes from the dataset.
    """
    model, split = world.model, split_episodes(episodes.num_episodes, world.split)
    scale = world.actions or action_scale(episodes, split.train)
    far = world.history + FAR_STEPS
    long_enough = len(episodes.window_starts((far - 1) * world.frameskip + 1, split.held_out)) > 0
    frames, skip = far if long_enough else world.history + 1, world.frameskip
    windows = Windows(episodes, split.held_out, frames=frames, frameskip=skip, scale=scale)
    targets = probe_targets(episodes, task)
    return WorldMetrics(
        probes=probe_world(model, episodes, targets, split, seed=seed, mlp=mlp),
        prediction=prediction_errors(model, windows, seed=seed),
    )


def prediction_errors(model: LeWM, windows: Windows, *, seed: int) -> tuple[PredictionError, ...]:
    """Errors with full history, one step ahead and at the end of the windows; `seed` chooses them.

    The model is put in evaluation mode.
    """
    model.eval()
    history, device = model.config.history, next(model.parameters()).device
    number = min(ERROR_WINDOWS, len(windows))
    chosen = np.sort(generator("prediction-error", seed).permutation(len(windows))[:number])
    ahead = sorted({1, windows.frames - history})
    sums = np.zeros((2, len(ahead)))
    for at in range(0, number, ERROR_BATCH):
        frames_BTHWC, actions_BTA = windows.read(chosen[at : at + ERROR_BATCH])
        with torch.inference_mode():
            z_ND = model.encode(normalise(frames_BTHWC.flatten(0, 1).to(device)))
            z_BTD = z_ND.unflatten(0, frames_BTHWC.shape[:2])
            rolled_BTD = model.rollout(z_BTD[:, :history], actions_BTA.to(device))
        last_BD = z_BTD[:, history - 1]
        for k, steps in enumerate(ahead):
            truth_BD = z_BTD[:, history - 1 + steps]
            sums[0, k] += float((rolled_BTD[:, steps - 1] - truth_BD).square().mean(1).sum())
            sums[1, k] += float((last_BD - truth_BD).square().mean(1).sum())
    model_errors, copy_errors = sums / number
    return tuple(
        PredictionError(steps=steps, model=float(m), copy_last=float(c), windows=number)
        for steps, m, c in zip(ahead, model_errors, copy_errors, strict=True)
    )


def probe_targets(episodes: Episodes, task: str | None) -> tuple[ProbeTarget, ...]:
    """A task's targets that the file can answer: not every file has the true states."""
    known = find_task(task)
    return tuple(t for t in known.probe_targets if _is_readable(episodes, t)) if known else ()


def _is_readable(episodes: Episodes, target: ProbeTarget) -> bool:
    """Whether the file has the target's column, wide enough and finite."""
    column = episodes.columns.get(target.column)
    if column is None or len(column.shape) != 1 or column.shape[0] <= max(target.index):
        return False
    values = episodes.read(target.column, 0, episodes.num_rows)[:, list(target.index)]
    return bool(np.isfinite(values).all())


def probe_world(
    model: LeWM,
    episodes: Episodes,
    targets: Sequence[ProbeTarget],
    split: Split,
    *,
    seed: int,
    mlp: bool,
) -> Probes:
    """The linear probe on few frames, or both probes on many: fitted on training episodes."""
    if not targets:
        return Probes()
    rng = generator("probe", seed)
    sides = zip((split.train, split.held_out), MANY if mlp else FEW, strict=True)
    rows = [probe_rows(episodes, side, limit, rng) for side, limit in sides]
    names = {target.column for target in targets}
    train, held_out = (
        ProbeData(
            encode_rows(model, episodes, part).numpy(),
            {name: episodes.rows(name, part) for name in names},
        )
        for part in rows
    )
    linear = linear_probe(targets, train, held_out)
    if not mlp:
        return Probes(linear=linear)
    draws = torch.Generator().manual_seed(seed)
    return Probes(linear=linear, mlp=mlp_probe(targets, train, held_out, draws))


def probe_rows(episodes: Episodes, chosen: Index, limit: int, rng: np.random.Generator) -> Index:
    """At most `limit` different rows of the chosen episodes, drawn evenly, sorted: (M,)."""
    rows = episodes.window_starts(1, np.unique(chosen))
    return np.sort(rng.choice(rows, min(limit, len(rows)), replace=False))


def encode_rows(model: LeWM, episodes: Episodes, rows: Index) -> Tensor:
    """Latents of the frames at `rows`, on the CPU: (N, D)."""
    encode = FrameEncoder(model)
    batches = (rows[at : at + ENCODE_BATCH] for at in range(0, len(rows), ENCODE_BATCH))
    return torch.cat(
        [encode(torch.from_numpy(episodes.rows("pixels", batch))).cpu() for batch in batches]
    )


def linear_probe(
    targets: Sequence[ProbeTarget], train: ProbeData, held_out: ProbeData
) -> tuple[ProbeScore, ...]:
    """Scores on `held_out` of a ridge regression on the standardised latents of `train`."""
    latents, wanted_NK = Standardizer.fit(train.latents), probe_outputs(targets, train.columns)
    z_ND, mean_K = latents(train.latents), wanted_NK.mean(axis=0)
    gram_DD = z_ND.T @ z_ND + RIDGE * len(z_ND) * np.eye(z_ND.shape[1])
    weights_DK = np.linalg.solve(gram_DD, z_ND.T @ (wanted_NK - mean_K))
    return _scores(targets, latents(held_out.latents) @ weights_DK + mean_K, held_out.columns)


def mlp_probe(
    targets: Sequence[ProbeTarget], train: ProbeData, held_out: ProbeData, rng: torch.Generator
) -> tuple[ProbeScore, ...]:
    """Scores on `held_out` of an MLP trained on `train`, with the draws of `rng`."""
    wanted_NK = probe_outputs(targets, train.columns)
    latents, outputs = Standardizer.fit(train.latents), Standardizer.fit(wanted_NK)
    x_ND, y_NK, held_out_ND = (
        torch.as_tensor(values, dtype=torch.float32)
        for values in (latents(train.latents), outputs(wanted_NK), latents(held_out.latents))
    )
    mlp = _mlp((x_ND.shape[1], MLP_HIDDEN, MLP_HIDDEN, y_NK.shape[1]), rng)
    _train(mlp, x_ND, y_NK, rng)
    with torch.no_grad():
        read_NK = mlp(held_out_ND).double().numpy()
    return _scores(targets, outputs.undo(read_NK), held_out.columns)


def _mlp(widths: Sequence[int], rng: torch.Generator) -> nn.Sequential:
    """Linear layers with GELU between them; weights as PyTorch's own, but drawn from `rng`."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        linear = nn.utils.skip_init(nn.Linear, inputs, outputs)
        nn.init.kaiming_uniform_(linear.weight, a=math.sqrt(5), generator=rng)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.GELU()]
    return nn.Sequential(*layers[:-1])


def _train(mlp: nn.Module, x_ND: Tensor, y_NK: Tensor, rng: torch.Generator) -> None:
    """Minimise the mean squared error over batches drawn with replacement."""
    optimiser = torch.optim.AdamW(
        mlp.parameters(), lr=MLP_PEAK_RATE, weight_decay=MLP_WEIGHT_DECAY, fused=True
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=MLP_PEAK_RATE, total_steps=MLP_STEPS, cycle_momentum=False
    )
    size = (MLP_STEPS, min(MLP_BATCH, len(x_ND)))
    for rows in torch.randint(len(x_ND), size, generator=rng):
        loss = F.mse_loss(mlp(x_ND[rows]), y_NK[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()


@dataclass(frozen=True)
class Standardizer:
    """Shifts and scales each column to mean 0 and variance 1; a constant column is only shifted."""

    mean: Array
    std: Array

    @classmethod
    def fit(cls, x_ND: Array) -> Standardizer:
        """The standardizer of the columns of `x_ND` (N, D)."""
        x_ND = np.asarray(x_ND, dtype=np.float64)
        mean, std = x_ND.mean(axis=0), x_ND.std(axis=0)
        # The variance of a constant column is rounding; dividing by it would blow up other data.
        return cls(mean, np.where(std > 1e-12 * np.abs(mean), std, 1.0))

    def __call__(self, x_ND: Array) -> Array:
        """Standardised float64 (N, D)."""
        return (x_ND - self.mean) / self.std

    def undo(self, x_ND: Array) -> Array:
        """Back to the units of the data."""
        return x_ND * self.std + self.mean


def probe_outputs(targets: Sequence[ProbeTarget], columns: Mapping[str, Array]) -> Array:
    """What a probe learns to output: (N, K) float64, each target's components side by side.

    Plain components are in the target's unit; angles are their cosines, then their sines.
    """
    outputs: list[Array] = []
    for target in targets:
        true_NC = _components(target, columns)
        is_angle = target.angle
        outputs += [np.cos(true_NC), np.sin(true_NC)] if is_angle else [true_NC * target.scale]
    return np.concatenate(outputs, axis=1)


def probe_error(target: ProbeTarget, output_NK: Array, columns: Mapping[str, Array]) -> Array:
    """Errors (N, C) of one target in its unit."""
    true_NC = _components(target, columns)
    if not target.angle:
        return output_NK - true_NC * target.scale
    cosines, sines = np.split(output_NK, 2, axis=1)
    return wrap_angle(np.arctan2(sines, cosines) - true_NC) * target.scale


def _components(target: ProbeTarget, columns: Mapping[str, Array]) -> Array:
    """The target's part of its column, in the column's unit: (N, C) float64."""
    return columns[target.column][:, list(target.index)].astype(np.float64)


def _scores(
    targets: Sequence[ProbeTarget], outputs_NK: Array, columns: Mapping[str, Array]
) -> tuple[ProbeScore, ...]:
    truths, scores = [probe_outputs([target], columns) for target in targets], []
    ends = np.cumsum([truth.shape[1] for truth in truths])
    outputs = np.split(outputs_NK, ends[:-1], axis=1)
    for target, truth, output in zip(targets, truths, outputs, strict=True):
        error = probe_error(target, output, columns)
        rmse, median = np.sqrt(np.square(error).mean()), np.median(np.abs(error))
        r2 = _r2(output, truth)
        scores.append(ProbeScore(target.name, target.unit, float(rmse), float(median), r2))
    return tuple(scores)


def _r2(output: Array, true: Array) -> float:
    if not np.ptp(true, axis=0).any():
        return 0.0
    spread = np.square(true - true.mean(axis=0)).sum()
    return float(1.0 - np.square(output - true).sum() / spread)
