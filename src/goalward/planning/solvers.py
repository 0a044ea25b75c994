"""The solvers by name, with the settings of the paper's solver-family comparison."""

from __future__ import annotations

from typing import Literal, get_args

from goalward.checks import shown
from goalward.planning.cem import CEM
from goalward.planning.gradient import Gradient
from goalward.planning.icem import ICEM
from goalward.planning.mppi import MPPI

AnySolver = CEM | ICEM | MPPI | Gradient
SolverName = Literal["cem", "icem", "mppi", "gradient"]
SOLVERS: tuple[SolverName, ...] = get_args(SolverName)

_TYPES: dict[str, type[AnySolver]] = {
    "cem": CEM,
    "icem": ICEM,
    "mppi": MPPI,
    "gradient": Gradient,
}


def make_solver(name: SolverName) -> AnySolver:
    """A solver with the paper's settings, which are stable-worldmodel's defaults.

    Raises:
        ValueError: there is no such solver.
    """
    if not isinstance(name, str) or name not in _TYPES:
        raise ValueError(f"solver {shown(name)} is not one of {', '.join(SOLVERS)}")
    return _TYPES[name]()
