"""Studies that measure numbers other than success."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from goalward.controllers.stage import judge_controller
from goalward.devices import choose_device
from goalward.experiments.cell import Cell
from goalward.experiments.geometry import (
    action_jacobian,
    conditioning,
    effective_rank,
    isotropy,
    spectrum,
)
from goalward.experiments.lab import NEEDS_PAIRWISE, Lab
from goalward.experiments.paper import paper_tables
from goalward.experiments.study import Fact, Findings, Measure
from goalward.world.frame_encoder import FrameEncoder

JACOBIANS = 40  # states at which actions are varied


def pairwise_cells(worlds: Iterable[tuple[str, ...]] = ((),)) -> Callable[[str], list[Cell]]:
    """Cells with the pairwise model of each of these world models, given by changes."""
    found = list(worlds)
    return lambda task: [Cell(task=task, method=NEEDS_PAIRWISE, world=world) for world in found]


def oracle_noise(lab: Lab, task: str, folder: Path) -> Findings:  # noqa: ARG001
    """The pairwise model's errors on true pairs of latents, under growing noise."""
    known = paper_tables()["table_oracle_noise"]
    (cell,) = pairwise_cells()(task)
    found = judge_controller(
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


def latent_geometry(worlds: Mapping[str, tuple[str, ...]]) -> Measure:
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
    judged = judge_controller(
        lab.controller(cell), latents.folder, device=choose_device(lab.device)
    )
    yield "inverse R²", judged.errors[0].r2
