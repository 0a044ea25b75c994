"""How good an inverse dynamics model, and its time to go, is on episodes it was not trained on.

Shapes: B examples, A numbers of an action, H horizons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from goalward.controllers.goals import Examples
from goalward.controllers.time_to_go import TimeToGo, quantile_steps

JUDGE_BATCH = 4096
BUCKET_EDGES = (1, 2, 6, 11, 26, 51)  # first horizons of the buckets: 1, 2-5, 6-10, 11-25, 26-50
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
ALL = "all"


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionError:
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
class TimeToGoQuality:
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
    error: ActionError


def action_errors(network: nn.Module, examples: Examples) -> tuple[ActionError, ...]:
    """Errors over all examples, and in buckets of horizons where there are several."""
    predicted_BA = predict(network, examples)
    errors = [_error(ALL, predicted_BA, examples.actions)]
    for first, end in zip(BUCKET_EDGES, (*BUCKET_EDGES[1:], 10**9), strict=True):
        inside = (examples.steps >= first) & (examples.steps < end)
        if inside.any() and not inside.all():
            name = _bucket_name(first, min(end - 1, int(examples.steps.max())))
            errors.append(_error(name, predicted_BA[inside], examples.actions[inside]))
    return tuple(errors)


def balanced_error(errors: Sequence[ActionError]) -> float:
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


def time_to_go_quality(head: TimeToGo, examples: Examples) -> TimeToGoQuality:
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
    return TimeToGoQuality(
        loss=float(F.cross_entropy(logits_BH, truth_B - 1)),
        median_error=float((median_B - truth_B).abs().float().mean()),
        mean_steps=float(truth_B.float().mean()),
        coverage=tuple(coverage),
    )


def _in_batches(compute: Callable[[Examples], Tensor], examples: Examples) -> Tensor:
    fields = (examples.z, examples.z_goal, examples.steps, examples.actions)
    with torch.inference_mode():
        parts = zip(*(field.split(JUDGE_BATCH) for field in fields), strict=True)
        return torch.cat(
            [
                compute(Examples(z=z, z_goal=goal, steps=steps, actions=actions))
                for z, goal, steps, actions in parts
            ]
        )


def _error(name: str, predicted_BA: Tensor, true_BA: Tensor) -> ActionError:
    predicted_BA, true_BA = predicted_BA.cpu().double(), true_BA.cpu().double()
    squares = (predicted_BA - true_BA).square()
    spread = (true_BA - true_BA.mean(dim=0)).square().sum()
    return ActionError(
        horizons=name,
        count=len(true_BA),
        mse=float(squares.mean()),
        cosine=float(F.cosine_similarity(predicted_BA, true_BA, dim=1).mean()),
        r2=float(1 - squares.sum() / spread.clamp(min=1e-12)),
    )


def _bucket_name(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
