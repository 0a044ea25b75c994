"""The paper's figures, as the rows of the catalog ask for them."""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files
from typing import Any

from goalward.core.config import read_json
from goalward.experiments.experiment import ALL_PAIRS, PaperFigure, Variant
from goalward.experiments.variants import CEM, GC_IDM, LINES, TIME_TO_GO

NO_NOISE = "none"  # the point of a table of noise without noise


@cache
def paper_tables() -> dict[str, Any]:
    """Every table by its name; success is in percent, times are of the authors' GPUs."""
    with as_file(files("goalward.experiments") / "paper.json") as path:
        tables: dict[str, Any] = read_json(path)
    return tables


def column(table: str, axis: str, of: Variant = GC_IDM) -> PaperFigure:
    """The figures of a table that has a list for each task."""
    found = paper_tables()[table]
    labels = [value if isinstance(value, str) else f"{value:g}" for value in found[axis]]

    def figure(task: str, point: str, variant: Variant) -> float | None:
        if variant != of or task not in found or point not in labels:
            return None
        return float(found[task][labels.index(point)])

    return figure


def solver_figure(task: str, point: str, variant: Variant) -> float | None:
    """The comparison of solvers; all pairs stand beside its larger protocol."""
    if variant == TIME_TO_GO:
        return None
    found = paper_tables()["table_solvers"][task]["200" if point == ALL_PAIRS else "50"]
    known = found.get(variant.controller.partition(":")[0])
    return None if known is None else float(known["success"])


def trajectory_figure(task: str, controller: str) -> tuple[float, float] | None:
    """Action jerk, and monotonicity in percent (Table 4)."""
    found = paper_tables()["table_trajectory"].get(task)
    name = {GC_IDM.controller: "gc-idm", CEM.controller: "cem"}.get(controller)
    return (
        None
        if name is None or found is None
        else tuple(found[what][name] for what in ("jerk", "monotonicity"))
    )


def held_out_figure(task: str, point: str, variant: Variant) -> float | None:
    """Held-out validation, and the main comparison, whose pairs are of all episodes."""
    if point != "held-out":
        return solver_figure(task, ALL_PAIRS, variant)
    found = paper_tables()["table_heldout"][task]
    return {GC_IDM: float(found["gc-idm"][0]), CEM: float(found["cem"])}.get(variant)


def schedule_figure(task: str, point: str, variant: Variant) -> float | None:
    """Fixed and uniform noise, and none."""
    if point == NO_NOISE:
        return column("table_gcidm_noise", "sigma")(task, "0", variant)
    table = paper_tables()["table_noise_schedule"]
    schedule, sigma = point.split()
    return float(table[schedule][task][table["sigma"].index(float(sigma))])


def pairwise_figure(task: str, point: str, variant: Variant) -> float | None:  # noqa: ARG001
    """Noise in the pairwise model's training."""
    table = paper_tables()["table_pairwise_train_noise"]
    return float(table["success"][table["train_sigma"].index(float(point))])


def planning_figure(task: str, point: str, variant: Variant) -> float | None:  # noqa: ARG001
    """Planning with the pairwise model, and CEM."""
    names = ("lerp", "refine1", "refine3", "refine3_cand10", "cem")
    key = dict(zip((*LINES, CEM), names, strict=True))[variant]
    return float(paper_tables()["table_pairwise_planning"][task][key])
