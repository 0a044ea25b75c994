"""An experiment as data: which cells, what the paper found, and what it claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from goalward.experiments.cell import SEEDS, Cell
from goalward.experiments.specs import GC_IDM, UNTRAINED

TASKS = ("two-room", "reacher", "cube", "push-t")  # in the paper's order of difficulty
MethodName = str
Label = str
ALL_PAIRS = "all pairs"

# (task, point, method) to the paper's figure, in percent; None where it has none.
PaperFigure = Callable[[str, Label, MethodName], float | None]
Quantity = Literal["success", "monotone", "jerk"]
Chart = Literal["line", "bars", "frontier", "none"]


def no_figure(task: str, point: Label, method: MethodName) -> float | None:  # noqa: ARG001
    """The paper has none."""
    return None


@dataclass(frozen=True, kw_only=True)
class Point:
    """One column of a table: a value of what is varied."""

    label: Label
    changes: Mapping[str, Any] = field(default_factory=dict)  # to the cell
    first: int | None = None  # only so many of the pairs


@dataclass(frozen=True, kw_only=True)
class Claim:
    """That one method at one point succeeds more often than another, or as often.

    Or that its latent distance to the goal falls at every step more often; of jerk it claims less.
    """

    text: str
    better: tuple[MethodName, Label]
    worse: tuple[MethodName, Label]
    margin: float = 0.0  # points by which `better` may fall behind: > 0 claims "as good as"
    tasks: tuple[str, ...] = TASKS
    ours: bool = False  # the paper does not claim it
    about: Quantity = "success"
    apart: bool = False  # its sides have pairs of their own, since that is what is varied
    as_quick: bool = False  # `worse` names a family: the best of its settings that are as quick

    @property
    def wording(self) -> str:
        """The claim with the margin that it is judged by, and whose it is."""
        within = f", within {self.margin:g} points" if self.margin else ""
        return f"{self.text}{within}{' (our claim)' if self.ours else ''}"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One table of success rates.

    Attributes:
        id: What it is called on the command line.
        title: Of its table.
        paper: Where the paper has it, and what it finds.
        axis: What the points vary.
        points: The columns.
        methods: The rows.
        seeds: Of every cell.
        slow: Those of the methods that take too long for more than the first seed.
        figure: The paper's figures.
        claims: What can be judged.
        timed: Whether decisions are timed, too, all methods in one sitting.
        chart: How it is drawn.
    """

    id: str
    title: str
    paper: str
    axis: str
    points: tuple[Point, ...]
    methods: tuple[MethodName, ...] = (GC_IDM,)
    tasks: tuple[str, ...] = TASKS
    seeds: tuple[int, ...] = SEEDS[:1]
    slow: tuple[MethodName, ...] = ()
    figure: PaperFigure = no_figure
    claims: tuple[Claim, ...] = ()
    timed: bool = False
    chart: Chart = "line"

    def without(self, method: MethodName) -> Experiment:
        """The same less a method, and less the claims about it."""
        return replace(
            self,
            methods=tuple(name for name in self.methods if name != method),
            claims=tuple(c for c in self.claims if method not in (c.better[0], c.worse[0])),
        )

    def cells(self, task: str) -> Iterator[tuple[Point, MethodName, Cell]]:
        """Every cell of a task, with its place in the table."""
        for method in self.methods:
            for point in self.points:
                changes = {**point.changes}
                if method in UNTRAINED:  # it is the same whatever controller is trained
                    changes.pop("controller", None)
                for seed in self.seeds[:1] if method in self.slow else self.seeds:
                    cell = Cell(task=task, method=method, seed=seed)
                    yield point, method, replace(cell, **changes)
