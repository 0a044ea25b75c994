"""What the rows of the catalog share: tasks, controllers with their display names, claims."""

from __future__ import annotations

from functools import partial
from typing import Any

from goalward.experiments.experiment import ALL_PAIRS, AS_GOOD, ONNX, Claim, Place, Point, Variant

TASKS = ("two-room", "reacher", "cube", "push-t")  # in the paper's order of difficulty
PUSH_T = ("push-t",)
EASIER = ("two-room", "reacher", "cube")  # where the paper finds most settings good enough

GC_IDM = Variant("GC-IDM, budget horizon", "gc-idm:mode=budget")  # the paper's
TIME_TO_GO = Variant("GC-IDM, time-to-go horizon", "gc-idm")  # ours
EXPORTED = Variant("GC-IDM, time-to-go horizon, ONNX", ONNX)
HYBRID = Variant("hybrid", "hybrid")
CEM = Variant("CEM", "cem", (300, 30))
ICEM, MPPI, GRADIENT = (
    Variant("iCEM", "icem"),
    Variant("MPPI", "mppi"),
    Variant("gradient", "gradient"),
)
RANDOM, ZERO = Variant("random", "random"), Variant("zero", "zero")

LINE = Variant("line", "waypoints:refinements=0")
LINES = (
    LINE,
    Variant("line, 1 refinement", "waypoints:refinements=1"),
    Variant("line, 3 refinements", "waypoints:refinements=3"),
    Variant("line, 3 refinements, 10 candidates", "waypoints:refinements=3,candidates=10"),
)


def search(samples: int, iterations: int, elites: int) -> Variant:
    """CEM with a search of this size."""
    settings = {"num_samples": samples, "num_iters": iterations, "num_elites": elites}
    text = ",".join(f"solver.{name}={value}" for name, value in settings.items())
    return Variant(f"CEM {samples} x {iterations}", f"cem:{text}", (samples, iterations))


FRONTIER = tuple(  # 4 x 4 sizes without the four largest; a tenth of the samples are elites
    search(samples, iterations, samples // 10)
    for samples in (30, 100, 300, 1000)
    for iterations in (2, 5, 10, 30)
    if samples * iterations <= 3_000
)


def open_loop(actions: int) -> Variant:
    """GC-IDM that executes a number of actions before it sees the next frame."""
    settings = f"search=null,steps_left.mode=budget,commit={actions}"
    return Variant(f"GC-IDM, open loop {actions}", f"hybrid:{settings}")


PAIRS = "pairs"  # the axis of tables whose points are the first 50 pairs and all pairs
SIZES = (Point(label="first 50", first=50), Point(label=ALL_PAIRS))


def more(
    text: str,
    better: str | Place,
    worse: str | Place,
    *,
    tasks: tuple[str, ...] = TASKS,
    **options: Any,
) -> Claim:
    """One place succeeds more often; a point alone is GC-IDM's, budget horizon.

    The options are those of `Claim`.
    """
    places = [(GC_IDM, place) if isinstance(place, str) else place for place in (better, worse)]
    return Claim(text=text, better=places[0], worse=places[1], tasks=tasks, **options)


as_good = partial(more, margin=AS_GOOD)  # one place succeeds as often as the other
