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

from goalward import defaults
from goalward.core.arrays import Array
from goalward.core.config import require_at_least, require_types
from goalward.core.random import generator
from goalward.data.episodes import Episodes, Index, open_episodes
from goalward.data.splits import Split, split_episodes
from goalward.data.summary import task_name
from goalward.data.windows import (
    ActionScaler,
    Windows,
    action_scale,
    require_finite_actions,
    sizes,
)
from goalward.tasks import find_task
from goalward.tasks.task import ProbeTarget, wrap_angle
from goalward.world.checkpoint import Weights, load_world, require_fits
from goalward.world.frozen import FrameEncoder, normalise
from goalward.world.lewm import LeWM

CPU = torch.device("cpu")
RIDGE = 1e-6  # of a standardised latent's variance: keeps collapsed latents solvable
ENCODE_BATCH = 256  # frames
ERROR_BATCH = 128  # windows
ERROR_WINDOWS = 1024
FAR_STEPS = 5  # the planners' horizon, in model steps
FEW, MANY = (4_000, 2_000), (60_000, 8_000)  # frames to fit a probe on, and to score it on


@dataclass(frozen=True, kw_only=True)
class PredictionError:
    """Mean squared error of a latent's number, so many model steps ahead."""

    steps: int
    model: float
    copy_last: float  # error of predicting that nothing changes
    windows: int

    @property
    def ratio(self) -> float:
        """Below 1: better than copying."""
        return self.model / max(self.copy_last, 1e-12)


@dataclass(frozen=True, slots=True)
class ProbeScore:
    """How well a probe reads one target; `rmse` and `median` are in `unit`.

    Attributes:
        measure: Name of the target.
        unit: Unit of the errors.
        rmse: Root mean square error over frames and components; angles by wrapped differences.
        median: Median absolute error over frames and components.
        r2: 1 - squared error / variance, both summed over the probe's outputs for the target (of
            an angle: cosine and sine). 0 for a target that never changes.
    """

    measure: str
    unit: str
    rmse: float
    median: float
    r2: float


@dataclass(frozen=True, kw_only=True)
class Probes:
    """Both probes of one set of latents."""

    linear: tuple[ProbeScore, ...] = ()
    network: tuple[ProbeScore, ...] = ()  # the MLP's; empty if it was not trained


@dataclass(frozen=True, kw_only=True)
class WorldMetrics:
    """The validation of a world model."""

    prediction: tuple[PredictionError, ...]
    probes: Probes  # empty where the dataset has no true states


@dataclass(frozen=True)
class ProbeData:
    """Frozen latents (N, D) and the true states of the same frames, (N, ...) for each column."""

    latents: Array
    columns: Mapping[str, Array]


@dataclass(frozen=True, kw_only=True, slots=True)
class MLPProbeConfig:
    """How the MLP probe is trained: AdamW, one cycle with a cosine decay."""

    hidden: int = 512  # units of each of the two hidden layers
    steps: int = 4000
    batch: int = 512
    learning_rate: float = 3e-3  # at the cycle's peak
    weight_decay: float = 0.1

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 1, "hidden", "steps", "batch")


_DEFAULT = MLPProbeConfig()


def validate_world(
    world: Path,
    dataset: Path,
    *,
    weights: Weights = "best",
    task: str | None = None,
    seed: int = 0,
    frameskip: int = defaults.FRAMESKIP,
    device: torch.device = CPU,
) -> WorldMetrics:
    """Validate a stored world model on the held-out episodes of a dataset.

    The split is that of its training. A public checkpoint states neither its frameskip nor the
    scale of its actions; the scale is then taken from the dataset.
    """
    loaded = load_world(world, weights=weights, device=device, frameskip=frameskip)
    with open_episodes(dataset) as episodes:
        targets = probe_targets(episodes, task_name(episodes, task))
        action_dim, image_size = sizes(episodes)
        require_fits(loaded, action_dim=action_dim, image_size=image_size)
        require_finite_actions(episodes)
        split = split_episodes(episodes.num_episodes, loaded.split)
        scale = loaded.actions or action_scale(episodes, split.train)
        return world_metrics(loaded.model, episodes, targets, split, scale, seed=seed)


def world_metrics(
    model: LeWM,
    episodes: Episodes,
    targets: Sequence[ProbeTarget],
    split: Split,
    scale: ActionScaler,
    *,
    seed: int,
    mlp: bool = True,
) -> WorldMetrics:
    """Prediction errors and probes on held-out episodes, with or without the MLP probe."""
    history, skip = model.config.history, model.config.frameskip
    far = history + FAR_STEPS
    long_enough = len(episodes.window_starts((far - 1) * skip + 1, split.held_out)) > 0
    frames = far if long_enough else history + 1
    windows = Windows(episodes, split.held_out, frames=frames, frameskip=skip, scale=scale)
    return WorldMetrics(
        probes=probe_world(model, episodes, targets, split, seed=seed, mlp=mlp),
        prediction=prediction_errors(model, windows, seed=seed),
    )


def prediction_errors(model: LeWM, windows: Windows, *, seed: int) -> tuple[PredictionError, ...]:
    """Errors with full history, one step ahead and to the end of the windows.

    Args:
        model: Put in evaluation mode.
        windows: Of held-out episodes, each of more frames than the history.
        seed: Of the choice of windows.
    """
    model.eval()
    history = model.config.history
    number = min(ERROR_WINDOWS, len(windows))
    chosen = np.sort(generator("prediction-error", seed).permutation(len(windows))[:number])
    ahead = sorted({1, windows.frames - history})
    sums = np.zeros((2, len(ahead)))
    for at in range(0, number, ERROR_BATCH):
        z_BTD, actions_BTA = _latent_windows(model, windows, chosen[at : at + ERROR_BATCH])
        with torch.inference_mode():
            rolled_BTD = model.rollout(z_BTD[:, :history], actions_BTA)
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


def _latent_windows(model: LeWM, windows: Windows, numbers: Index) -> tuple[Tensor, Tensor]:
    frames_BTHWC, actions_BTA = windows.read(numbers)
    device = next(model.parameters()).device
    with torch.inference_mode():
        z_ND = model.encode(normalise(frames_BTHWC.flatten(0, 1).to(device)))
    return z_ND.view(*frames_BTHWC.shape[:2], -1), actions_BTA.to(device)


def probe_targets(episodes: Episodes, task: str | None) -> tuple[ProbeTarget, ...]:
    """A task's targets that the file can answer: not every file has the true states."""
    known = find_task(task)
    targets = () if known is None else known.probe_targets
    return tuple(target for target in targets if _is_readable(episodes, target))


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
    """The linear probe on few frames, or both probes on many.

    They are fitted on training episodes and scored on held-out ones.
    """
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
    return Probes(linear=linear, network=mlp_probe(targets, train, held_out, draws))


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
    targets: Sequence[ProbeTarget],
    train: ProbeData,
    held_out: ProbeData,
    rng: torch.Generator,
    config: MLPProbeConfig = _DEFAULT,
) -> tuple[ProbeScore, ...]:
    """Scores on `held_out` of an MLP that was trained on `train`.

    Initial weights and batches are drawn from `rng`, on whose device the probe is trained.
    """
    wanted_NK = probe_outputs(targets, train.columns)
    latents, outputs = Standardizer.fit(train.latents), Standardizer.fit(wanted_NK)
    x_ND, y_NK, held_out_ND = (
        torch.as_tensor(values, dtype=torch.float32, device=rng.device)
        for values in (latents(train.latents), outputs(wanted_NK), latents(held_out.latents))
    )
    mlp = _mlp((x_ND.shape[1], config.hidden, config.hidden, y_NK.shape[1]), rng)
    _train(mlp, x_ND, y_NK, rng, config)
    with torch.no_grad():
        read_NK = mlp(held_out_ND).double().cpu().numpy()
    return _scores(targets, outputs.undo(read_NK), held_out.columns)


def _mlp(widths: Sequence[int], rng: torch.Generator) -> nn.Sequential:
    """Linear layers with GELU between them; weights as PyTorch's own, but drawn from `rng`."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        linear = nn.utils.skip_init(nn.Linear, inputs, outputs, device=rng.device)
        nn.init.kaiming_uniform_(linear.weight, a=math.sqrt(5), generator=rng)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.GELU()]
    return nn.Sequential(*layers[:-1])


def _train(
    mlp: nn.Module, x_ND: Tensor, y_NK: Tensor, rng: torch.Generator, config: MLPProbeConfig
) -> None:
    """Minimise the mean squared error over batches drawn with replacement."""
    optimiser = torch.optim.AdamW(
        mlp.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=config.learning_rate, total_steps=config.steps, cycle_momentum=False
    )
    size = (config.steps, min(config.batch, len(x_ND)))
    for rows in torch.randint(len(x_ND), size, generator=rng, device=rng.device):
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
        if target.angle:
            outputs += [np.cos(true_NC), np.sin(true_NC)]
        else:
            outputs.append(true_NC * target.scale)
    return np.concatenate(outputs, axis=1)


def probe_errors(
    targets: Sequence[ProbeTarget], outputs_NK: Array, columns: Mapping[str, Array]
) -> list[Array]:
    """Errors (N, C) of each target in its unit; `outputs_NK` is ordered as `probe_outputs`."""
    errors = []
    for target, output in zip(targets, _parts(targets, outputs_NK), strict=True):
        true_NC = _components(target, columns)
        if target.angle:
            cosines, sines = np.split(output, 2, axis=1)
            errors.append(wrap_angle(np.arctan2(sines, cosines) - true_NC) * target.scale)
        else:
            errors.append(output - true_NC * target.scale)
    return errors


def _components(target: ProbeTarget, columns: Mapping[str, Array]) -> Array:
    """The target's part of its column, in the column's unit: (N, C) float64."""
    return columns[target.column][:, list(target.index)].astype(np.float64)


def _parts(targets: Sequence[ProbeTarget], x_NK: Array) -> list[Array]:
    widths = [len(target.index) * (2 if target.angle else 1) for target in targets]
    return np.split(x_NK, np.cumsum(widths)[:-1], axis=1)


def _scores(
    targets: Sequence[ProbeTarget], outputs_NK: Array, columns: Mapping[str, Array]
) -> tuple[ProbeScore, ...]:
    errors = probe_errors(targets, outputs_NK, columns)
    outputs = _parts(targets, outputs_NK)
    truths = _parts(targets, probe_outputs(targets, columns))
    return tuple(
        ProbeScore(
            measure=target.name,
            unit=target.unit,
            rmse=float(np.sqrt(np.square(error).mean())),
            median=float(np.median(np.abs(error))),
            r2=_r2(output, truth),
        )
        for target, error, output, truth in zip(targets, errors, outputs, truths, strict=True)
    )


def _r2(output: Array, true: Array) -> float:
    if not np.ptp(true, axis=0).any():
        return 0.0
    spread = np.square(true - true.mean(axis=0)).sum()
    return float(1.0 - np.square(output - true).sum() / spread)
