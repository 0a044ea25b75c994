"""A picture of a controller's training: its errors, and how calibrated its time to go is.

matplotlib is imported inside functions only; see `drawing`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from goalward.control.checkpoint import load_trained_idm
from goalward.control.goals import Examples, GoalSampler
from goalward.control.networks import quantile_steps
from goalward.core.figures import (
    GREEN,
    INK,
    SMALL,
    Curve,
    add_heading,
    add_legend,
    curves_of,
    effort,
    label_axes,
    new_figure,
    panels_size,
    plot_loss,
    rows_and_columns,
    save_figure,
    style_axes,
)
from goalward.world.checkpoint import Weights
from goalward.world.latents import open_latents

if TYPE_CHECKING:
    from matplotlib.axes import Axes


NETWORK, TIME_TO_GO = "network", "time_to_go"

CPU = torch.device("cpu")
BATCH, EXAMPLES = 4096, 16_384  # of a validation
BUCKET_EDGES = (1, 2, 6, 11, 26, 51)  # first horizons of the buckets: 1, 2-5, 6-10, 11-25, 26-50
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
ALL = "all"


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionMetrics:
    """Errors of the actions for goals so many steps away."""

    horizons: str  # such as "6-10"
    count: int
    mse: float  # a number of an action each
    cosine: float  # between actions, or blocks of actions
    r2: float  # share of the actions' variance that is explained, all their numbers together


@dataclass(frozen=True, kw_only=True, slots=True)
class Coverage:
    """One quantile of the time to go: how often the truth lies within it."""

    level: float
    expected: float  # by the head itself: a whole number of steps overshoots the level
    observed: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeToGoMetrics:
    """How good the time to go is."""

    loss: float  # cross-entropy, nats
    median_error: float  # mean distance of the median from the truth, in steps
    mean_steps: float  # of the truth
    coverage: tuple[Coverage, ...]

    @property
    def calibration_error(self) -> float:
        """The largest difference between expected and observed coverage."""
        return max(abs(c.expected - c.observed) for c in self.coverage)


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseError:
    """Errors with Gaussian noise on both latents, in standard deviations of each number."""

    sigma: float
    error: ActionMetrics


@dataclass(frozen=True, kw_only=True)
class ControllerMetrics:
    """Errors on held-out episodes."""

    errors: tuple[ActionMetrics, ...]  # all horizons first
    time_to_go: TimeToGoMetrics | None
    noise: tuple[NoiseError, ...]


def validate_controller(
    controller: Path,
    latents: Path,
    *,
    weights: Weights = "best",
    split: Literal["test", "validation"] = "test",
    sigmas: Sequence[float] = (),
    seed: int = 0,
    device: torch.device = CPU,
) -> ControllerMetrics:
    """Errors of a stored model on episodes that its training did not see.

    Args:
        controller: A controller file, or the folder of a training.
        latents: Folder that `embed` wrote, with the model's own encoder.
        weights: Which of the folder's files.
        split: `validation` has the episodes by which the training chose its best weights.
        sigmas: Levels of noise on both latents, in their standard deviations: an error for each.
        seed: Of the examples and the noise.
        device: Where to compute.

    Raises:
        ValueError: the latents are another encoder's, or they are too few.
    """
    found = open_latents(latents)
    model = load_trained_idm(controller, weights=weights, device=device)
    found.require_made_by(model.metadata.world_id)
    if found.metadata.split != model.metadata.split:
        raise ValueError(
            f"{latents}: held out other episodes ({found.metadata.split}) than the controller's "
            f"training ({model.metadata.split}); give latents with that split"
        )
    chosen = found.split.test if split == "test" else found.split.validation
    if not len(chosen):
        raise ValueError(f"{latents}: no {split} episodes; collect more episodes")
    network = model.metadata.network
    sampler = GoalSampler(
        torch.from_numpy(found.z).to(device),
        torch.from_numpy(found.actions).to(device),
        found.lengths,
        chosen,
        min_horizon=network.min_horizon,
        max_horizon=network.max_horizon,
        block=network.block,
    )
    examples = sampler.draw(EXAMPLES, torch.Generator(device).manual_seed(seed))
    if not torch.isfinite(examples.z).all():
        raise ValueError(f"{latents}: latents hold NaN or infinity; embed again")
    head, std_D = model.time_to_go, torch.tensor(found.metadata.std, device=device)
    return ControllerMetrics(
        errors=action_errors(model.network, examples),
        time_to_go=None if head is None else time_to_go_quality(head, examples),
        noise=noise_errors(model.network, examples, std_D, sigmas, seed=seed),
    )


def action_errors(network: nn.Module, examples: Examples) -> tuple[ActionMetrics, ...]:
    """Errors over all examples, and in buckets of horizons where there are several."""
    predicted_BA = predict(network, examples)
    errors = [_error(ALL, predicted_BA, examples.actions)]
    for first, end in zip(BUCKET_EDGES, (*BUCKET_EDGES[1:], 10**9), strict=True):
        inside = (examples.steps >= first) & (examples.steps < end)
        if inside.any() and not inside.all():
            name = _bucket_name(first, min(end - 1, int(examples.steps.max())))
            errors.append(_error(name, predicted_BA[inside], examples.actions[inside]))
    return tuple(errors)


def balanced_error(errors: Sequence[ActionMetrics]) -> float:
    """One figure to choose weights by: the geometric mean of the buckets' errors.

    Actions towards far goals are mostly unpredictable, so that the plain mean over all horizons is
    decided by how little is guessed there; and it is near the goal that precision counts. Here an
    error that is halved counts the same at every distance.
    """
    buckets = errors[1:] or errors
    return math.exp(sum(math.log(max(e.mse, 1e-12)) for e in buckets) / len(buckets))


def predict(network: nn.Module, examples: Examples) -> Tensor:
    """The network's actions for all examples, in evaluation mode: (B, A)."""
    network.eval()
    return _in_batches(lambda p: network(p.z, p.z_goal, p.steps), examples)


def noise_errors(
    network: nn.Module, examples: Examples, std_D: Tensor, sigmas: Sequence[float], *, seed: int
) -> tuple[NoiseError, ...]:
    """Errors under growing noise, the same draws scaled (Appendix D.3)."""
    found = []
    for sigma in sigmas:
        rng = torch.Generator(std_D.device).manual_seed(seed)
        noisy = examples.noisy(sigma * std_D, rng)
        error = _error(ALL, predict(network, noisy), noisy.actions)
        found.append(NoiseError(sigma=sigma, error=error))
    return tuple(found)


def time_to_go_quality(head: nn.Module, examples: Examples) -> TimeToGoMetrics:
    """Errors and calibration of the time to go."""
    head.eval()
    logits_BH = _in_batches(lambda p: head(p.z, p.z_goal), examples)
    truth_B = examples.steps
    cumulative_BH = logits_BH.softmax(dim=1).cumsum(dim=1)
    coverage = []
    for level in LEVELS:
        steps_B = quantile_steps(logits_BH, level)
        expected = cumulative_BH.gather(1, steps_B[:, None] - 1).mean()
        observed = (truth_B <= steps_B).float().mean()
        coverage.append(Coverage(level=level, expected=float(expected), observed=float(observed)))
    median_B = quantile_steps(logits_BH, 0.5)
    return TimeToGoMetrics(
        loss=float(F.cross_entropy(logits_BH, truth_B - 1)),
        median_error=float((median_B - truth_B).abs().float().mean()),
        mean_steps=float(truth_B.float().mean()),
        coverage=tuple(coverage),
    )


def _in_batches(compute: Callable[[Examples], Tensor], examples: Examples) -> Tensor:
    fields = (examples.z, examples.z_goal, examples.steps, examples.actions)
    with torch.inference_mode():
        parts = zip(*(field.split(BATCH) for field in fields), strict=True)
        return torch.cat(
            [
                compute(Examples(z=z, z_goal=goal, steps=steps, actions=actions))
                for z, goal, steps, actions in parts
            ]
        )


def _error(name: str, predicted_BA: Tensor, true_BA: Tensor) -> ActionMetrics:
    predicted_BA, true_BA = predicted_BA.cpu().double(), true_BA.cpu().double()
    squares = (predicted_BA - true_BA).square()
    spread = (true_BA - true_BA.mean(dim=0)).square().sum()
    return ActionMetrics(
        horizons=name,
        count=len(true_BA),
        mse=float(squares.mean()),
        cosine=float(F.cosine_similarity(predicted_BA, true_BA, dim=1).mean()),
        r2=float(1 - squares.sum() / spread.clamp(min=1e-12)),
    )


def _bucket_name(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


VALIDATION = "validation"
LEGEND_ROOM, LABEL_ROOM = 0.3, 0.14  # parts of the range of R² kept free above and below bars


def save_curves(
    path: Path,
    history: Sequence[Mapping[str, float]],
    errors: Sequence[ActionMetrics],
    time_to_go: TimeToGoMetrics | None,
    title: str,
) -> None:
    """Write training curves and validation results as a PNG, which appears whole or not at all.

    Args:
        path: The file to write.
        history: Rows with "step", perhaps "seconds" since the start, and any of: the training
            losses "network" and "time_to_go", "validation/network", "validation/time_to_go".
        errors: Errors over all horizons first, then those of each bucket of horizons, if any.
        time_to_go: Quality of the time to go, if the controller has it.
        title: Heading; number of steps and time are added to it.

    Raises:
        ValueError: No row holds an action error, of training or of validation.
    """
    curves = curves_of(history)
    if NETWORK not in curves and f"{VALIDATION}/{NETWORK}" not in curves:
        raise ValueError(
            f"no curve to draw: rows need a step and {NETWORK} or validation/{NETWORK}"
        )
    draws = _draws(curves, errors, time_to_go)
    rows, columns = rows_and_columns(len(draws))
    figure = new_figure(*panels_size(rows, columns))
    add_heading(figure, title, effort(history))
    panels = figure.subplots(rows, columns, squeeze=False).flat
    for axes, draw in zip(panels, draws, strict=True):
        draw(axes)
    save_figure(figure, path)


def _draws(
    curves: Mapping[str, Curve], errors: Sequence[ActionMetrics], time_to_go: TimeToGoMetrics | None
) -> Sequence[Callable[[Axes], None]]:
    """What to draw into each panel, only where there is something to show."""
    draws = [partial(_draw_loss, curves, NETWORK, "action error (MSE)")]
    if len(errors) > 1:
        draws.append(partial(_draw_buckets, errors))
    if TIME_TO_GO in curves or f"{VALIDATION}/{TIME_TO_GO}" in curves:
        draws.append(partial(_draw_loss, curves, TIME_TO_GO, "time to go: cross-entropy (nats)"))
    if time_to_go is not None:
        draws.append(partial(_draw_calibration, time_to_go))
    return draws


def _draw_loss(curves: Mapping[str, Curve], name: str, title: str, axes: Axes) -> None:
    style_axes(axes, title)
    plot_loss(axes, curves.get(name), curves.get(f"{VALIDATION}/{name}"), VALIDATION)
    add_legend(axes)


def _draw_buckets(errors: Sequence[ActionMetrics], axes: Axes) -> None:
    """A bar with its value for each bucket, and a line for all of them."""
    overall, *buckets = errors
    style_axes(axes, "explained variance of actions (R²)")
    bars = axes.bar([e.horizons for e in buckets], [e.r2 for e in buckets], 0.65, color=GREEN)
    label = f"all: {overall.r2:.3f}"
    axes.axhline(overall.r2, color=INK, linewidth=1.2, linestyle="--", label=label)
    # The values stand on white, because the line may pass behind them.
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    axes.bar_label(bars, fmt="{:.2f}", fontsize=SMALL, color=INK, padding=3, bbox=ground)
    _limit_r2(axes, min(0.0, *(e.r2 for e in errors)))
    axes.grid(visible=False, axis="x")
    label_axes(axes, f"steps to the goal (n = {overall.count:,} validation examples)")
    add_legend(axes)


def _limit_r2(axes: Axes, lowest: float) -> None:
    """Room for values and legend; no tick above 1, because R² cannot be larger."""
    from matplotlib.ticker import MaxNLocator

    span = 1 - lowest
    ticks = MaxNLocator(5).tick_values(lowest, 1)
    axes.set_yticks([tick for tick in ticks if lowest <= tick <= 1])
    axes.set_ylim(lowest - LABEL_ROOM * span * (lowest < 0), 1 + LEGEND_ROOM * span)


def _draw_calibration(quality: TimeToGoMetrics, axes: Axes) -> None:
    """Points in the order of their levels, beside the diagonal that they should lie on."""
    style_axes(axes, "time to go: calibration")
    axes.plot((0, 1), (0, 1), color=INK, linewidth=1.2, linestyle="--", label="calibrated")
    expected, observed = zip(*((c.expected, c.observed) for c in quality.coverage), strict=True)
    label = f"observed, largest gap {quality.calibration_error:.3f}"
    axes.plot(expected, observed, color=GREEN, linewidth=1.5, marker="o", ms=5, label=label)
    axes.set(xlim=(0, 1.03), ylim=(0, 1.03))
    levels = ", ".join(f"{100 * c.level:g}" for c in quality.coverage)
    label_axes(axes, f"expected coverage (quantiles {levels} %)", "observed coverage")
    add_legend(axes)
