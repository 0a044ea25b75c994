"""How good a world model is, on episodes it was not trained on.

Prediction errors stand beside those of copying the last latent; probes say how well the true state
can be read from a latent. The linear probe is quick and follows the training; the network probe,
which asks what is there rather than how plainly it is written, comes at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from goalward.data.episodes import Episodes, Index
from goalward.data.pixels import normalise
from goalward.data.splits import Split
from goalward.seeding import generator
from goalward.tasks import TASKS
from goalward.tasks.spec import Measure
from goalward.world.checkpoint import ActionScale
from goalward.world.frame_encoder import FrameEncoder
from goalward.world.lewm import LeWM
from goalward.world.probe import ProbeData, ProbeScore, linear_probe, mlp_probe, probe_rows
from goalward.world.windows import Windows

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
class Quality:
    """Everything a world model is judged by."""

    prediction: tuple[PredictionError, ...]
    probes: Probes  # empty where the dataset tells no true states


def judge(
    model: LeWM,
    episodes: Episodes,
    measures: Sequence[Measure],
    split: Split,
    scale: ActionScale,
    *,
    seed: int,
    thorough: bool = True,
) -> Quality:
    """Prediction errors and probes on held-out episodes; the network probe only if thorough."""
    windows = _error_windows(model, episodes, split, scale)
    if thorough:
        probes = full_probes(model, episodes, measures, split, seed=seed)
    else:
        probes = Probes(linear=quick_probe(model, episodes, measures, split, seed=seed), network=())
    return Quality(prediction=prediction_errors(model, windows, seed=seed), probes=probes)


def known_measures(episodes: Episodes, task: str | None) -> tuple[Measure, ...]:
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
    model: LeWM, episodes: Episodes, measures: Sequence[Measure], split: Split, *, seed: int
) -> tuple[ProbeScore, ...]:
    """The linear probe on few frames: the figure that follows a training."""
    if not measures:
        return ()
    return linear_probe(measures, *_probe_data(model, episodes, measures, split, seed, QUICK))


def full_probes(
    model: LeWM, episodes: Episodes, measures: Sequence[Measure], split: Split, *, seed: int
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
    measures: Sequence[Measure],
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


def _is_readable(episodes: Episodes, measure: Measure) -> bool:
    """Whether the file has the measure's column, wide enough and finite."""
    column = episodes.columns.get(measure.column)
    if column is None or len(column.shape) != 1 or column.shape[0] <= max(measure.index):
        return False
    values = episodes.read(measure.column, 0, episodes.num_rows)[:, list(measure.index)]
    return bool(np.isfinite(values).all())


def _error_windows(model: LeWM, episodes: Episodes, split: Split, scale: ActionScale) -> Windows:
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
