"""The catalog's methods, as `goalward evaluate` spells them."""

from __future__ import annotations

GC_IDM, WITH_TIME_TO_GO = "gc-idm:mode=budget", "gc-idm"  # the paper's, and ours
CEM = "cem"
UNTRAINED = (CEM, "icem", "mppi", "gradient", "random", "zero")  # they act without a controller
PATHS = (
    "interpolation:refinements=0",
    "interpolation:refinements=1",
    "interpolation:refinements=3",
    "interpolation:refinements=3,candidates=10",
)
FRONTIER = tuple(  # 4 x 4 settings without the four largest; a tenth are elites
    f"cem:solver.num_samples={samples},solver.num_iters={iters},solver.num_elites={elites}"
    for samples, elites in ((30, 3), (100, 10), (300, 30), (1000, 100))
    for iters in (2, 5, 10, 30)
    if samples * iters <= 3_000
)


def blindly(actions: int) -> str:
    """GC-IDM that carries out so many actions before it looks again."""
    return f"hybrid:search=null,steps_left.mode=budget,commit={actions}"
