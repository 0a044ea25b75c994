"""How good a world model is, on episodes it was not trained on.

Prediction errors stand beside those of copying the last latent; probes say how well the true state
can be read from a latent. The linear probe is quick and follows the training; the network probe,
which asks what is there rather than how plainly it is written, comes at its end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from goalward.core.arrays import Array
from goalward.core.config import require_at_least, require_at_most, require_types
from goalward.core.random import generator
from goalward.data.episodes import Episodes, Index
from goalward.data.splits import Split
from goalward.data.windows import ActionScaler, Windows
from goalward.tasks import TASKS
from goalward.tasks.task import ProbeTarget, wrap_angle
from goalward.world.encoders import MOST_WIDTH
from goalward.world.frozen import FrameEncoder, normalise
from goalward.world.lewm import LeWM

RIDGE = 1e-6  # of a standardised latent's variance: keeps collapsed latents solvable, no more


@dataclass(frozen=True)
class ProbeData:
    """Frozen latents (N, D) and the true states of the same frames, (N, ...) for each column."""

    latents: Array
    columns: Mapping[str, Array]

    def __post_init__(self) -> None:
        if self.latents.ndim != 2 or len(self.latents) < 2:
            raise ValueError(
                "a probe needs latents of shape (N, D) with at least 2 frames, not "
                f"{self.latents.shape}; give it more frames"
            )
        if not np.isfinite(self.latents).all():
            raise ValueError("the latents hold NaN or infinity; has training diverged?")
        for name, values in self.columns.items():
            if len(values) != len(self.latents):
                raise ValueError(
                    f"{len(self.latents)} latents, but {len(values)} rows of '{name}'; "
                    "take both from the same frames"
                )


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
        require_at_most(self, MOST_WIDTH, "hidden", "batch")
        if self.learning_rate <= 0 or self.weight_decay < 0:
            raise ValueError(
                f"learning_rate must be above 0 and weight_decay at least 0, "
                f"got {self.learning_rate} and {self.weight_decay}"
            )


_DEFAULT = MLPProbeConfig()


@dataclass(frozen=True, slots=True)
class ProbeScore:
    """How well one measure was read; `rmse` and `median` are in `unit`.

    Attributes:
        measure: Name of the measure.
        unit: Unit of the errors.
        rmse: Root mean square error over frames and components; angles by wrapped differences.
        median: Median absolute error over frames and components.
        r2: 1 - squared error / variance, both summed over the measure's regression targets (of an
            angle: cosine and sine). A target that never changes has no R²: it is given as 0.
    """

    measure: str
    unit: str
    rmse: float
    median: float
    r2: float


def targets(measures: Sequence[ProbeTarget], columns: Mapping[str, Array]) -> Array:
    """What a probe regresses: (N, K) float64, each measure's components side by side.

    Plain components are in the measure's unit; angles are their cosines, then their sines.

    Raises:
        ValueError: A column is missing, too narrow, or holds NaN.
    """
    return np.concatenate([_target(measure, columns) for measure in measures], axis=1)


def errors(
    measures: Sequence[ProbeTarget], outputs_NK: Array, columns: Mapping[str, Array]
) -> dict[str, Array]:
    """Errors (N, C) of each measure in its own unit; `outputs_NK` is ordered as `targets`."""
    return {
        measure.name: _error(measure, part, columns)
        for measure, part in zip(measures, _parts(measures, outputs_NK), strict=True)
    }


def linear_probe(
    measures: Sequence[ProbeTarget], train: ProbeData, held_out: ProbeData
) -> tuple[ProbeScore, ...]:
    """Scores on `held_out` of a ridge regression on the standardised latents of `train`."""
    latents, wanted = Standardizer.fit(train.latents), targets(measures, train.columns)
    z_ND, mean_K = latents(train.latents), wanted.mean(axis=0)
    gram_DD = z_ND.T @ z_ND + RIDGE * len(z_ND) * np.eye(z_ND.shape[1])
    weights_DK = np.linalg.solve(gram_DD, z_ND.T @ (wanted - mean_K))
    return _scores(measures, latents(held_out.latents) @ weights_DK + mean_K, held_out.columns)


def mlp_probe(
    measures: Sequence[ProbeTarget],
    train: ProbeData,
    held_out: ProbeData,
    rng: torch.Generator,
    config: MLPProbeConfig = _DEFAULT,
) -> tuple[ProbeScore, ...]:
    """Scores on `held_out` of an MLP that was trained on `train`.

    Initial weights and batches are drawn from `rng`, on whose device the probe is trained.
    """
    wanted_NK = targets(measures, train.columns)
    latents, outputs = Standardizer.fit(train.latents), Standardizer.fit(wanted_NK)
    x_ND = _tensor(latents(train.latents), rng.device)
    y_NK = _tensor(outputs(wanted_NK), rng.device)
    mlp = _mlp((x_ND.shape[1], config.hidden, config.hidden, y_NK.shape[1]), rng)
    _train(mlp, x_ND, y_NK, rng, config)
    with torch.no_grad():
        read_NK = mlp(_tensor(latents(held_out.latents), rng.device)).double().cpu().numpy()
    return _scores(measures, outputs.undo(read_NK), held_out.columns)


def probe_rows(
    episodes: Episodes, chosen: npt.ArrayLike, limit: int, rng: np.random.Generator
) -> Index:
    """At most `limit` different rows of the chosen episodes, drawn evenly, sorted: (M,)."""
    if limit < 1:
        raise ValueError(f"a probe's limit of frames must be at least 1, got {limit}")
    rows = episodes.window_starts(1, np.unique(np.asarray(chosen, dtype=np.int64)))
    return np.sort(rng.choice(rows, min(limit, len(rows)), replace=False))


@dataclass(frozen=True)
class Standardizer:
    """Shifts and scales each column to mean 0 and variance 1; a constant column is only shifted."""

    mean: Array
    std: Array

    @classmethod
    def fit(cls, x_ND: Array) -> Standardizer:
        """The standardiser of the columns of `x_ND` (N, D)."""
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


def _target(measure: ProbeTarget, columns: Mapping[str, Array]) -> Array:
    true_NC = _components(measure, columns)
    if measure.angle:
        return np.concatenate([np.cos(true_NC), np.sin(true_NC)], axis=1)
    return true_NC * measure.scale


def _error(measure: ProbeTarget, output: Array, columns: Mapping[str, Array]) -> Array:
    true_NC = _components(measure, columns)
    if not measure.angle:
        return output - true_NC * measure.scale
    cosines, sines = np.split(output, 2, axis=1)
    return wrap_angle(np.arctan2(sines, cosines) - true_NC) * measure.scale


def _components(measure: ProbeTarget, columns: Mapping[str, Array]) -> Array:
    """The measure's part of its column, in the column's unit: (N, C) float64."""
    if measure.column not in columns:
        raise ValueError(
            f"measure '{measure.name}' needs the column '{measure.column}'; "
            f"the columns are: {', '.join(columns) or 'none'}"
        )
    values = columns[measure.column]
    if values.ndim != 2 or values.shape[1] <= max(measure.index):
        raise ValueError(
            f"measure '{measure.name}' needs components {measure.index} of '{measure.column}', "
            f"whose shape is {values.shape}; was the dataset made for another task?"
        )
    true_NC = values[:, list(measure.index)].astype(np.float64)
    if not np.isfinite(true_NC).all():
        raise ValueError(f"'{measure.column}' holds NaN or infinity; leave those frames out")
    return true_NC


def _parts(measures: Sequence[ProbeTarget], x_NK: Array) -> list[Array]:
    widths = [len(measure.index) * (2 if measure.angle else 1) for measure in measures]
    return np.split(x_NK, np.cumsum(widths)[:-1], axis=1)


def _scores(
    measures: Sequence[ProbeTarget], outputs_NK: Array, columns: Mapping[str, Array]
) -> tuple[ProbeScore, ...]:
    missed = errors(measures, outputs_NK, columns)
    true_parts = _parts(measures, targets(measures, columns))
    return tuple(
        ProbeScore(
            measure=measure.name,
            unit=measure.unit,
            rmse=float(np.sqrt(np.square(missed[measure.name]).mean())),
            median=float(np.median(np.abs(missed[measure.name]))),
            r2=_r2(output, true),
        )
        for measure, output, true in zip(
            measures, _parts(measures, outputs_NK), true_parts, strict=True
        )
    )


def _r2(output: Array, true: Array) -> float:
    if not np.ptp(true, axis=0).any():
        return 0.0
    spread = np.square(true - true.mean(axis=0)).sum()
    return float(1.0 - np.square(output - true).sum() / spread)


def _tensor(x: Array, device: torch.device) -> Tensor:
    return torch.as_tensor(x, dtype=torch.float32, device=device)


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


ENCODE_BATCH = 256
ERROR_BATCH = 128  # windows
ERROR_WINDOWS = 1024
FAR_STEPS = 5  # the planners' horizon, in model steps
QUICK = (4_000, 2_000)  # frames to fit a probe on and to judge it by
FULL = (60_000, 8_000)


@dataclass(frozen=True, kw_only=True)
class PredictionError:
    """Mean squared error of the latent after so many model steps, a number of the latent each."""

    steps: int
    model: float
    copy_last: float  # error of predicting that nothing changes
    windows: int

    @property
    def ratio(self) -> float:
        """Below 1: better than copying."""
        return self.model / max(self.copy_last, 1e-12)


@dataclass(frozen=True, kw_only=True)
class Probes:
    """Both probes of one set of latents."""

    linear: tuple[ProbeScore, ...]
    network: tuple[ProbeScore, ...]  # empty if the judging was not thorough


@dataclass(frozen=True, kw_only=True)
class WorldMetrics:
    """Everything a world model is judged by."""

    prediction: tuple[PredictionError, ...]
    probes: Probes  # empty where the dataset tells no true states


def judge(
    model: LeWM,
    episodes: Episodes,
    measures: Sequence[ProbeTarget],
    split: Split,
    scale: ActionScaler,
    *,
    seed: int,
    thorough: bool = True,
) -> WorldMetrics:
    """Prediction errors and probes on held-out episodes; the network probe only if thorough."""
    windows = _error_windows(model, episodes, split, scale)
    if thorough:
        probes = full_probes(model, episodes, measures, split, seed=seed)
    else:
        probes = Probes(linear=quick_probe(model, episodes, measures, split, seed=seed), network=())
    return WorldMetrics(prediction=prediction_errors(model, windows, seed=seed), probes=probes)


def known_measures(episodes: Episodes, task: str | None) -> tuple[ProbeTarget, ...]:
    """A task's measures that the file can answer: not every file tells the true states."""
    measures = TASKS[task].measures if task in TASKS else ()
    return tuple(measure for measure in measures if _is_readable(episodes, measure))


def encode_rows(model: LeWM, episodes: Episodes, rows: Index) -> Tensor:
    """Latents of the frames at `rows`, on the CPU: (N, D)."""
    encode = FrameEncoder(model)
    batches = (rows[at : at + ENCODE_BATCH] for at in range(0, len(rows), ENCODE_BATCH))
    return torch.cat(
        [encode(torch.from_numpy(episodes.rows("pixels", batch))).cpu() for batch in batches]
    )


def prediction_errors(model: LeWM, windows: Windows, *, seed: int) -> tuple[PredictionError, ...]:
    """Errors with full history, one step ahead and as far as the windows reach.

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


def quick_probe(
    model: LeWM, episodes: Episodes, measures: Sequence[ProbeTarget], split: Split, *, seed: int
) -> tuple[ProbeScore, ...]:
    """The linear probe on few frames: the figure that follows a training."""
    if not measures:
        return ()
    return linear_probe(measures, *_probe_data(model, episodes, measures, split, seed, QUICK))


def full_probes(
    model: LeWM, episodes: Episodes, measures: Sequence[ProbeTarget], split: Split, *, seed: int
) -> Probes:
    """Both probes, fitted on training episodes and judged on held-out ones."""
    if not measures:
        return Probes(linear=(), network=())
    train, held_out = _probe_data(model, episodes, measures, split, seed, FULL)
    rng = torch.Generator().manual_seed(seed)
    return Probes(
        linear=linear_probe(measures, train, held_out),
        network=mlp_probe(measures, train, held_out, rng),
    )


def _probe_data(
    model: LeWM,
    episodes: Episodes,
    measures: Sequence[ProbeTarget],
    split: Split,
    seed: int,
    frames: tuple[int, int],
) -> tuple[ProbeData, ProbeData]:
    """Latents and states to fit a probe on, and others to judge it by."""
    rng = generator("probe", seed)
    sides = zip((split.train, split.held_out), frames, strict=True)
    rows = [probe_rows(episodes, side, limit, rng) for side, limit in sides]
    columns = {measure.column for measure in measures}
    train, held_out = (
        ProbeData(
            encode_rows(model, episodes, part).numpy(),
            {name: episodes.rows(name, part) for name in columns},
        )
        for part in rows
    )
    return train, held_out


def _is_readable(episodes: Episodes, measure: ProbeTarget) -> bool:
    """Whether the file has the measure's column, wide enough and finite."""
    column = episodes.columns.get(measure.column)
    if column is None or len(column.shape) != 1 or column.shape[0] <= max(measure.index):
        return False
    values = episodes.read(measure.column, 0, episodes.num_rows)[:, list(measure.index)]
    return bool(np.isfinite(values).all())


def _error_windows(model: LeWM, episodes: Episodes, split: Split, scale: ActionScaler) -> Windows:
    """Held-out windows for `FAR_STEPS` predictions, or for one where episodes are too short."""
    history, skip = model.config.history, model.config.frameskip
    far = history + FAR_STEPS
    long = len(episodes.window_starts((far - 1) * skip + 1, split.held_out)) > 0
    frames = far if long else history + 1
    return Windows(episodes, split.held_out, frames=frames, frameskip=skip, scale=scale)


def _latent_windows(model: LeWM, windows: Windows, numbers: Index) -> tuple[Tensor, Tensor]:
    frames_BTHWC, actions_BTA = windows.read(numbers)
    device = next(model.parameters()).device
    with torch.inference_mode():
        pixels = normalise(frames_BTHWC.flatten(0, 1).to(device), model.config.encoder.image_size)
        z_ND = model.encode(pixels)
    return z_ND.view(*frames_BTHWC.shape[:2], -1), actions_BTA.to(device)
