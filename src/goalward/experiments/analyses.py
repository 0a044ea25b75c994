"""Analyses of latents and decisions: geometry, noise on true pairs, latency.

Shapes: N latents, D latent numbers, A numbers of an action.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from goalward import defaults
from goalward.control.metrics import ActionMetrics, validate_controller
from goalward.core.arrays import Array
from goalward.core.machine import choose_device
from goalward.evaluation.latency import WARM_UP, Latency, SpeedUp, measure_latency
from goalward.evaluation.pairs import Pair
from goalward.evaluation.run import TIMED_DECISIONS
from goalward.evaluation.simulators import SimulatorPools
from goalward.experiments.ablations import WORLDS
from goalward.experiments.experiment import (
    CEM,
    EXPORTED,
    GC_IDM,
    LINE,
    TIME_TO_GO,
    Beside,
    Row,
    RunSpec,
)
from goalward.experiments.paper import paper_numbers
from goalward.experiments.runner import Runner
from goalward.planning.mpc import MPCConfig
from goalward.world.frozen import FrameEncoder

JACOBIANS = 40  # states at which actions are varied
BLOCK = ("network.frameskip=5",)  # a pairwise model of blocks of actions, as the paper's
PAPER_BATCH = 50
BATCHES = (1, PAPER_BATCH)  # environments at once; the paper has 200, too
TIMED = (GC_IDM, TIME_TO_GO, EXPORTED, CEM)


def decision_cost(runner: Runner, task: str) -> Iterator[Row]:
    """Time of a decision from frame to action, alone and in batches, all in one session."""
    specs = {one: RunSpec(task=task, controller=one.controller) for one in TIMED}
    controllers = {one: runner.controller(spec) for one, spec in specs.items()}
    goals = [pair.goal_frame for pair in runner.pairs_of(specs[CEM]).pairs]
    paper = paper_numbers()["decision-cost"].get(task)
    for size in BATCHES:
        # A batch of plans takes a minute: it is timed once, over the steps of whole plans.
        alone = size == 1
        steps = MPCConfig().receding_horizon * defaults.FRAMESKIP
        found = {
            one: measure_latency(
                made.make(specs[CEM].seed),  # type: ignore[arg-type]
                np.stack([goals[k % len(goals)] for k in range(size)]),
                decisions=TIMED_DECISIONS if alone else steps,
                budget=defaults.BUDGET,
                warm_up=WARM_UP if alone or one != CEM else 0,
            )
            for one, made in controllers.items()
        }
        for one, latency in found.items():
            known = paper if one == GC_IDM and size == PAPER_BATCH else None
            yield one.label, latency_columns(latency, found[CEM], known)


def latency_columns(
    latency: Latency, reference: Latency, paper: float | None
) -> dict[str, float | Beside]:
    """The numbers of one controller in batches of one size; the paper's is the ratio to CEM."""
    where = "alone" if latency.environments == 1 else f"in batches of {latency.environments}"
    columns: dict[str, float | Beside] = {
        f"ms a decision {where}": latency.mean,
        f"CEM's time / its time {where}": Beside(SpeedUp.of(latency, reference).decision, paper),
        f"ms a plan {where}": latency.plan,
        f"99th percentile {where}, ms": latency.p99,
    }
    memory = {} if latency.memory_mb is None else {f"MB {where}": latency.memory_mb}
    return columns | memory


def noise_runs(task: str) -> list[RunSpec]:
    """Runs with a pairwise model of single actions, and with one of blocks of actions."""
    single = RunSpec(task=task, controller=LINE.controller)
    return [single, replace(single, controller_changes=BLOCK)]


def oracle_noise(runner: Runner, task: str) -> Iterator[Row]:
    """Errors of the pairwise model on true pairs of latents, under growing noise."""
    known, device = paper_numbers()["oracle-noise"], choose_device(runner.device)
    single, block = noise_runs(task)
    latents = runner.pipeline(single).latents().folder
    trained, sigmas = runner.trained(single), [*map(float, known)]
    found = validate_controller(trained, latents, sigmas=sigmas, device=device)
    for noisy in found.noise:
        paper, errors = known[f"{noisy.sigma:g}"], _errors(noisy.error)
        yield f"{noisy.sigma:g}", {name: Beside(e, paper[name]) for name, e in errors.items()}
    over_block = validate_controller(runner.trained(block), latents, device=device).errors[0]
    yield "0, blocks of 5 actions", _errors(over_block)


def _errors(error: ActionMetrics) -> dict[str, float]:
    return {"mse": error.mse, "cos": error.cosine, "r2": error.r2}


def geometry_runs(task: str) -> list[RunSpec]:
    """Runs with a pairwise model for each of the world models."""
    return [
        RunSpec(task=task, controller=LINE.controller, world_changes=changes)
        for changes in WORLDS.values()
    ]


def latent_geometry(runner: Runner, task: str) -> Iterator[Row]:
    """The latents of several world models."""
    device = choose_device(runner.device)
    for name, spec in zip(WORLDS, geometry_runs(task), strict=True):
        latents = runner.pipeline(spec).latents()
        variances_D = spectrum(latents.of_episodes(latents.split.test))
        pairs = runner.pairs_of(spec)
        encode = FrameEncoder(latents.world().model.to(device))
        with runner.simulators(pairs, number=1) as pool:
            jacobians = [action_jacobian(encode, pool, a) for a in pairs.pairs[:JACOBIANS]]
        validated = validate_controller(runner.trained(spec), latents.folder, device=device)
        geometry = {
            "isotropy": isotropy(variances_D),
            f"effective rank of {len(variances_D)}": effective_rank(variances_D),
            "κ (median)": conditioning(jacobians),
            "inverse R²": validated.errors[0].r2,
        }
        yield name, geometry


STEP = 0.5  # of an action's range of [-1, 1]: frames are whole numbers, small steps drown in them
INVISIBLE = 1e-6  # a singular value below this part of the greatest: an action that does not show


def spectrum(z_ND: Array) -> Array:
    """Variances along the principal axes (D,), greatest first."""
    covariance_DD = np.cov(z_ND, rowvar=False, dtype=np.float64)
    return np.clip(np.linalg.eigvalsh(covariance_DD)[::-1], 0, None)


def isotropy(variances_D: Array) -> float:
    """(Sum of variances)² / (D x sum of their squares).

    Between 1 / D, all variance along one axis, and 1, as much along each.
    """
    return float(variances_D.sum() ** 2 / (len(variances_D) * (variances_D**2).sum()))


def effective_rank(variances_D: Array) -> float:
    """exp(H) of the shares of the variance (Roy & Vetterli, 2007): between 1 and D."""
    shares = variances_D / variances_D.sum()
    shares = shares[shares > 0]
    return float(np.exp(-(shares * np.log(shares)).sum()))


def action_jacobian(encode: FrameEncoder, pool: SimulatorPools, attempt: Pair) -> Array:
    """B = dF / da of Eq. (17) at an attempt's start, near its first action: (D, A).

    F is one step of the simulator, drawn and encoded. B is the slope over half of each action's
    range around it, not the tangent, so it also shows what happens at a contact; and it includes
    the simulator's own conditioning, so that it compares encoders on one task, never tasks.
    """
    action = np.clip(attempt.recorded[0], STEP - 1, 1 - STEP)
    frames = []
    for number in range(len(action)):
        for sign in (1.0, -1.0):
            moved = action.copy()
            moved[number] += sign * STEP
            pool.begin({0: attempt})
            frames.append(pool.step({0: moved})[0].frame)
    z = encode(torch.from_numpy(np.stack(frames))).cpu().numpy().reshape(len(action), 2, -1)
    return ((z[:, 0] - z[:, 1]) / (2 * STEP)).T


def conditioning(jacobians: Sequence[Array]) -> float | None:
    """Median of the condition numbers κ(B); None if half of them have none.

    An action that shows in nothing, such as that of a gripper that is closed already, makes κ
    infinite.
    """
    values = [np.linalg.svd(jacobian, compute_uv=False) for jacobian in jacobians]
    kappas = [s[0] / s[-1] if s[-1] > INVISIBLE * s[0] else np.inf for s in values]
    median = float(np.median(kappas))
    return median if np.isfinite(median) else None
