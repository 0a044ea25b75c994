"""How good a trained model is on held-out episodes, in numbers and as a picture.

matplotlib is imported inside functions only; see `core.figures`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from goalward.control.checkpoint import load_trained_idm
from goalward.control.goals import Examples, GoalSampler
from goalward.control.networks import AnyIDMConfig, TimeToGo, quantile_steps
from goalward.core import figures as draw
from goalward.world.checkpoint import Weights
from goalward.world.latents import Latents, open_latents

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from goalward.control.controller import Index

NETWORK, TIME_TO_GO = "network", "time_to_go"  # the parts of a training
CPU = torch.device("cpu")
BATCH, EXAMPLES = 4096, 16_384  # of a validation
BUCKET_EDGES = (1, 2, 6, 11, 26, 51)  # first horizons of the buckets: 1, 2-5, 6-10, 11-25, 26-50
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
ALL = "all"
LEGEND_ROOM, LABEL_ROOM = 0.3, 0.14  # parts of the range of R² kept free above and below bars


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionMetrics:
    """Errors of the actions towards goals within a range of steps."""

    horizons: str  # such as "6-10"
    count: int
    mse: float  # mean over the numbers of an action
    cosine: float  # between actions, or blocks of actions
    r2: float  # explained share of the actions' variance, all their numbers together


@dataclass(frozen=True, kw_only=True, slots=True)
class Coverage:
    """How often the truth lies within one quantile of the time-to-go."""

    quantile: float
    expected: float  # by the head itself: a whole number of steps overshoots the quantile
    observed: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeToGoMetrics:
    """Errors and calibration of the time-to-go."""

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
    noise: tuple[NoiseError, ...] = ()


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
    """Errors of a stored model on episodes that its training did not learn from."""
    found = open_latents(latents)
    model = load_trained_idm(controller, weights=weights, device=device)
    found.require_made_by(model.metadata.world_id)
    if found.metadata.split != model.metadata.split:
        raise ValueError(
            f"{latents}: held out other episodes ({found.metadata.split}) than the controller's "
            f"training ({model.metadata.split}); give latents with that split"
        )
    chosen = found.split.test if split == "test" else found.split.validation
    sampler = goal_sampler(found, model.metadata.network, device)(chosen)
    examples = sampler.draw(EXAMPLES, torch.Generator(device).manual_seed(seed))
    if not torch.isfinite(examples.z).all():
        raise ValueError(f"{latents}: latents hold NaN or infinity; embed again")
    std_D = torch.tensor(found.metadata.std, device=device)
    noise = []
    for sigma in sigmas:  # a seed's draws are the same for any sigma, but for scale (App. D.3)
        noisy = examples.noisy(sigma * std_D, torch.Generator(device).manual_seed(seed))
        error = _error(ALL, predict(model.network, noisy), noisy.actions)
        noise.append(NoiseError(sigma=sigma, error=error))
    return replace(measure(model.network, model.time_to_go, examples), noise=tuple(noise))


def goal_sampler(
    latents: Latents, network: AnyIDMConfig, device: torch.device
) -> Callable[[Index], GoalSampler]:
    """Draws a network's examples from chosen episodes; the latents are on the device once."""
    return partial(
        GoalSampler,
        torch.from_numpy(latents.z).to(device),
        torch.from_numpy(latents.actions).to(device),
        latents.lengths,
        min_horizon=network.min_horizon,
        max_horizon=network.max_horizon,
        block=network.block,
    )


def measure(
    network: nn.Module, time_to_go: TimeToGo | None, examples: Examples
) -> ControllerMetrics:
    """Errors of the networks as they are now."""
    return ControllerMetrics(
        errors=action_errors(network, examples),
        time_to_go=None if time_to_go is None else time_to_go_metrics(time_to_go, examples),
    )


def action_errors(network: nn.Module, examples: Examples) -> tuple[ActionMetrics, ...]:
    """Errors over all examples, and in buckets of horizons where there are several."""
    predicted_BA = predict(network, examples)
    errors = [_error(ALL, predicted_BA, examples.actions)]
    for first, end in zip(BUCKET_EDGES, (*BUCKET_EDGES[1:], 10**9), strict=True):
        inside = (examples.steps >= first) & (examples.steps < end)
        if inside.any() and not inside.all():
            last = min(end - 1, int(examples.steps.max()))
            name = str(first) if first == last else f"{first}-{last}"
            errors.append(_error(name, predicted_BA[inside], examples.actions[inside]))
    return tuple(errors)


def balanced_error(errors: Sequence[ActionMetrics]) -> float:
    """One figure to choose weights by: the geometric mean of the buckets' errors.

    Actions towards far goals are mostly unpredictable, and would dominate a plain mean over all
    horizons; precision counts near the goal. Here, half the error counts the same at every
    distance.
    """
    buckets = errors[1:] or errors
    return math.exp(sum(math.log(max(e.mse, 1e-12)) for e in buckets) / len(buckets))


def predict(network: nn.Module, examples: Examples) -> Tensor:
    """A network's outputs for all examples, in evaluation mode: (B, ...)."""
    network.eval()
    inputs = (examples.z, examples.z_goal, examples.steps)
    with torch.inference_mode():
        batches = zip(*(tensor.split(BATCH) for tensor in inputs), strict=True)
        return torch.cat([network(*batch) for batch in batches])


def time_to_go_metrics(head: TimeToGo, examples: Examples) -> TimeToGoMetrics:
    """Errors and calibration of the time-to-go."""
    logits_BH, truth_B = predict(head, examples), examples.steps
    cumulative_BH = logits_BH.softmax(dim=1).cumsum(dim=1)

    def coverage(quantile: float) -> Coverage:
        steps_B = quantile_steps(logits_BH, quantile)
        expected = cumulative_BH.gather(1, steps_B[:, None] - 1).mean()
        observed = (truth_B <= steps_B).float().mean()
        return Coverage(quantile=quantile, expected=float(expected), observed=float(observed))

    median_B = quantile_steps(logits_BH, 0.5)
    return TimeToGoMetrics(
        loss=float(F.cross_entropy(logits_BH, truth_B - 1)),
        median_error=float((median_B - truth_B).abs().float().mean()),
        mean_steps=float(truth_B.float().mean()),
        coverage=tuple(map(coverage, QUANTILES)),
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


def save_curves(path: Path, title: str, history: draw.History, found: ControllerMetrics) -> None:
    """Draw training curves, and errors by horizon where there are several, as a PNG."""
    curves = draw.curves_of(history)
    panels = [partial(_draw_loss, curves, NETWORK, "action error (MSE)")]
    if len(found.errors) > 1:
        panels.append(partial(_draw_buckets, found.errors))
    if found.time_to_go is not None:
        title_of_loss = "time-to-go: cross-entropy (nats)"
        panels.append(partial(_draw_loss, curves, TIME_TO_GO, title_of_loss))
        panels.append(partial(_draw_calibration, found.time_to_go))
    draw.save_panels(path, title, history, panels)


def _draw_loss(curves: Mapping[str, draw.Curve], name: str, title: str, axes: Axes) -> None:
    draw.style_axes(axes, title)
    draw.plot_loss(axes, curves.get(name), curves.get(f"validation/{name}"), "validation")
    draw.add_legend(axes)


def _draw_buckets(errors: Sequence[ActionMetrics], axes: Axes) -> None:
    """A bar with its value for each bucket, and a line for all of them."""
    from matplotlib.ticker import MaxNLocator

    overall, *buckets = errors
    draw.style_axes(axes, "explained variance of actions (R²)")
    bars = axes.bar([e.horizons for e in buckets], [e.r2 for e in buckets], 0.65, color=draw.GREEN)
    label = f"all: {overall.r2:.3f}"
    axes.axhline(overall.r2, color=draw.INK, linewidth=1.2, linestyle="--", label=label)
    # The values have a white ground, because the line may pass behind them.
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    axes.bar_label(bars, fmt="{:.2f}", fontsize=draw.SMALL, color=draw.INK, padding=3, bbox=ground)
    # Room for values and legend; no tick above 1, because R² cannot be larger.
    lowest = min(0.0, *(e.r2 for e in errors))
    ticks, span = MaxNLocator(5).tick_values(lowest, 1), 1 - lowest
    axes.set_yticks([tick for tick in ticks if lowest <= tick <= 1])
    axes.set_ylim(lowest - LABEL_ROOM * span * (lowest < 0), 1 + LEGEND_ROOM * span)
    axes.grid(visible=False, axis="x")
    draw.label_axes(axes, f"steps to the goal (n = {overall.count:,} validation examples)")
    draw.add_legend(axes)


def _draw_calibration(metrics: TimeToGoMetrics, axes: Axes) -> None:
    """Points in the order of their quantiles, beside the diagonal that they should lie on."""
    draw.style_axes(axes, "time-to-go: calibration")
    axes.plot((0, 1), (0, 1), color=draw.INK, linewidth=1.2, linestyle="--", label="calibrated")
    expected, observed = zip(*((c.expected, c.observed) for c in metrics.coverage), strict=True)
    label = f"observed, largest gap {metrics.calibration_error:.3f}"
    axes.plot(expected, observed, color=draw.GREEN, linewidth=1.5, marker="o", ms=5, label=label)
    axes.set(xlim=(0, 1.03), ylim=(0, 1.03))
    quantiles = ", ".join(f"{100 * c.quantile:g}" for c in metrics.coverage)
    draw.label_axes(axes, f"expected coverage (quantiles {quantiles} %)", "observed coverage")
    draw.add_legend(axes)
