"""The geometry of a latent space: how even it is, and how plainly actions show in it.

Shapes: N latents, D latent numbers, A numbers of an action.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from goalward.control.metrics import validate_controller
from goalward.core.arrays import Array
from goalward.core.machine import choose_device
from goalward.evaluation.pairs import Pair
from goalward.evaluation.simulators import SimulatorPool
from goalward.experiments.experiment import Cell, Fact, Findings, Measurement
from goalward.experiments.paper import paper_tables
from goalward.experiments.run import NEEDS_PAIRWISE, Lab
from goalward.world.frozen import FrameEncoder

JACOBIANS = 40  # states at which actions are varied


def pairwise_cells(worlds: Iterable[tuple[str, ...]] = ((),)) -> Callable[[str], list[Cell]]:
    """Cells with the pairwise model of each of these world models, given by changes."""
    found = list(worlds)
    return lambda task: [Cell(task=task, method=NEEDS_PAIRWISE, world=world) for world in found]


def oracle_noise(lab: Lab, task: str, folder: Path) -> Findings:  # noqa: ARG001
    """The pairwise model's errors on true pairs of latents, under growing noise."""
    known = paper_tables()["table_oracle_noise"]
    (cell,) = pairwise_cells()(task)
    found = validate_controller(
        lab.controller(cell),
        lab.pipeline(task).latents().folder,
        sigmas=[float(sigma) for sigma in known["test_sigma"]],
        device=choose_device(lab.device),
    )
    facts = []
    for place, noisy in enumerate(found.noise):
        error = noisy.error
        values = {"mse": error.mse, "cos": error.cosine, "r2": error.r2}
        facts += [
            Fact(
                task=task,
                row=f"{noisy.sigma:g}",
                column=name,
                value=value,
                paper=float(known[name][place]) if task == "two-room" else None,
            )
            for name, value in values.items()
        ]
    return Findings(facts=tuple(facts))


def latent_geometry(worlds: Mapping[str, tuple[str, ...]]) -> Measurement:
    """A study of the latents of several world models, given by name and changes to the preset."""

    def measure(lab: Lab, task: str, folder: Path) -> Findings:  # noqa: ARG001
        facts = [
            Fact(task=task, row=name, column=column, value=value)
            for name, changes in worlds.items()
            for column, value in _geometry(lab, task, changes)
        ]
        return Findings(facts=tuple(facts))

    return measure


def _geometry(lab: Lab, task: str, changes: tuple[str, ...]) -> Iterator[tuple[str, float | None]]:
    (cell,) = pairwise_cells([changes])(task)
    latents = lab.pipeline(task, changes).latents()
    variances_D = spectrum(latents.of_episodes(latents.split.test))
    yield "isotropy", isotropy(variances_D)
    yield f"effective rank of {len(variances_D)}", effective_rank(variances_D)
    pairs = lab.pairs_of(cell)
    encode = FrameEncoder(latents.world().model.to(choose_device(lab.device)))
    with lab.simulators(pairs, number=1) as pool:
        states = pairs.attempts[:JACOBIANS]
        yield "κ (median)", conditioning([action_jacobian(encode, pool, a) for a in states])
    judged = validate_controller(
        lab.controller(cell), latents.folder, device=choose_device(lab.device)
    )
    yield "inverse R²", judged.errors[0].r2


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


def action_jacobian(encode: FrameEncoder, pool: SimulatorPool, attempt: Pair) -> Array:
    """B = dF / da of Eq. (17) at an attempt's start, near its first action: (D, A).

    F is one step of the simulator, drawn and encoded. B is the slope over half of each action's
    range around it, not the tangent, so it also tells what happens at a contact; and it includes
    the simulator's own conditioning, so that it compares encoders on one task, never tasks.
    """
    action = np.clip(attempt.recorded[0], STEP - 1, 1 - STEP)
    frames = []
    for number in range(len(action)):
        for sign in (1.0, -1.0):
            moved = action.copy()
            moved[number] += sign * STEP
            pool.begin({0: (attempt.start, attempt.goal)})
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
