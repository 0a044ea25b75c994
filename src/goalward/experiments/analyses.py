"""Analyses of latents and decisions: geometry, noise on true pairs, latency.

Shapes: N latents, D latent numbers, A numbers of an action.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

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
from goalward.experiments.experiment import Measurement, Metric, RunSpec, row_metrics
from goalward.experiments.paper import paper_tables
from goalward.experiments.runner import Runner
from goalward.experiments.variants import CEM, EXPORTED, GC_IDM, LINE, TIME_TO_GO
from goalward.planning.mpc import MPCConfig
from goalward.world.frozen import FrameEncoder

JACOBIANS = 40  # states at which actions are varied
BLOCK = ("network.frameskip=5",)  # a pairwise model of blocks of actions, as the paper's
PAPER_BATCH = 50
BATCHES = (1, PAPER_BATCH)  # environments at once; the paper has 200, too
TIMED = (GC_IDM, TIME_TO_GO, EXPORTED, CEM)


def gc_idm_runs(task: str) -> list[RunSpec]:
    """The preset's GC-IDM."""
    return [RunSpec(task=task, controller=TIME_TO_GO.controller)]


def pairwise_runs(
    worlds: Iterable[tuple[str, ...]] = ((),), changes: Iterable[tuple[str, ...]] = ((),)
) -> Callable[[str], list[RunSpec]]:
    """Runs with a pairwise model for each world model and each change to its own configuration."""
    found = [(world, change) for world in worlds for change in changes]
    return lambda task: [
        RunSpec(
            task=task, controller=LINE.controller, world_changes=world, controller_changes=change
        )
        for world, change in found
    ]


def oracle_noise(runner: Runner, task: str, folder: Path) -> Iterator[Metric]:  # noqa: ARG001
    """Errors of the pairwise model on true pairs of latents, under growing noise."""
    known, device = paper_tables()["table_oracle_noise"], choose_device(runner.device)
    one_step, block = pairwise_runs(changes=((), BLOCK))(task)
    latents = runner.pipeline(one_step).latents().folder
    found = validate_controller(
        runner.trained(one_step),
        latents,
        sigmas=[float(sigma) for sigma in known["test_sigma"]],
        device=device,
    )
    for place, noisy in enumerate(found.noise):
        paper = {name: float(known[name][place]) for name in ("mse", "cos", "r2")}
        yield from _errors(task, f"{noisy.sigma:g}", noisy.error, paper)
    over_block = validate_controller(runner.trained(block), latents, device=device).errors[0]
    yield from _errors(task, "0, blocks of 5 actions", over_block, {})


def _errors(
    task: str, row: str, error: ActionMetrics, paper: Mapping[str, float]
) -> Iterator[Metric]:
    for column, value in {"mse": error.mse, "cos": error.cosine, "r2": error.r2}.items():
        yield Metric(task=task, row=row, column=column, value=value, paper=paper.get(column))


def decision_cost(runner: Runner, task: str, folder: Path) -> Iterator[Metric]:  # noqa: ARG001
    """Time of a decision from frame to action, alone and in batches, all in one session."""
    specs = {one: RunSpec(task=task, controller=one.controller) for one in TIMED}
    controllers = {one: runner.controller(spec) for one, spec in specs.items()}
    goals = [pair.goal_frame for pair in runner.pairs_of(specs[CEM]).pairs]
    known = paper_tables()["table1_main"].get(task, {}).get("50", {})
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
            paper = known.get("speedup_plan") if one == GC_IDM and size == PAPER_BATCH else None
            yield from latency_metrics(task, one.label, latency, found[CEM], paper)


def latency_metrics(
    task: str, row: str, latency: Latency, reference: Latency, paper: float | None
) -> Iterator[Metric]:
    """The numbers of one controller in batches of one size."""
    where = "alone" if latency.environments == 1 else f"in batches of {latency.environments}"
    values = {
        f"ms a decision {where}": latency.mean,
        f"CEM's time / its time {where}": SpeedUp.of(latency, reference).decision,
        f"ms a plan {where}": latency.plan,
        f"99th percentile {where}, ms": latency.p99,
        f"MB {where}": latency.memory_mb,
    }
    for column, value in values.items():
        if value is not None:
            ratio = paper if column.startswith("CEM's") else None
            yield Metric(task=task, row=row, column=column, value=value, paper=ratio)


def latent_geometry(worlds: Mapping[str, tuple[str, ...]]) -> Measurement:
    """The latents of several world models, given by name and changes to the preset."""

    def measure(runner: Runner, task: str, folder: Path) -> Iterator[Metric]:  # noqa: ARG001
        for name, changes in worlds.items():
            yield from row_metrics(task, name, dict(_geometry(runner, task, changes)))

    return measure


def _geometry(
    runner: Runner, task: str, changes: tuple[str, ...]
) -> Iterator[tuple[str, float | None]]:
    (spec,) = pairwise_runs([changes])(task)
    latents, device = runner.pipeline(spec).latents(), choose_device(runner.device)
    variances_D = spectrum(latents.of_episodes(latents.split.test))
    yield "isotropy", isotropy(variances_D)
    yield f"effective rank of {len(variances_D)}", effective_rank(variances_D)
    pairs = runner.pairs_of(spec)
    encode = FrameEncoder(latents.world().model.to(device))
    with runner.simulators(pairs, number=1) as pool:
        states = pairs.pairs[:JACOBIANS]
        yield "κ (median)", conditioning([action_jacobian(encode, pool, a) for a in states])
    validated = validate_controller(runner.trained(spec), latents.folder, device=device)
    yield "inverse R²", validated.errors[0].r2


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
