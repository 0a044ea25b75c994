"""A study: an experiment whose outcome is no success rate, but other numbers, or pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from goalward import defaults
from goalward.core.config import require_at_least, require_types
from goalward.evaluation.pairs import EpisodeSet
from goalward.planning.solvers import CEM as CEMSolver  # noqa: N811

if TYPE_CHECKING:
    from goalward.experiments.run import Lab


GC_IDM, WITH_TIME_TO_GO = "gc-idm:mode=budget", "gc-idm"  # the paper's, and ours
CEM = "cem"
UNTRAINED = (CEM, "icem", "mppi", "gradient", "random", "zero")  # they act without a controller
PATHS = (
    "waypoints:refinements=0",
    "waypoints:refinements=1",
    "waypoints:refinements=3",
    "waypoints:refinements=3,candidates=10",
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


PLAIN = {
    "gc-idm": "GC-IDM (time to go)",
    "gc-idm:mode=budget": "GC-IDM (budget)",
    "cem": "CEM",
    "icem": "iCEM",
    "mppi": "MPPI",
    "hybrid": "hybrid",
}
SEARCH = {"solver.num_samples", "solver.num_iters", "solver.num_elites"}


def method_name(spec: str) -> str:
    """Such as 'CEM 30 x 2' for `cem:solver.num_samples=30,solver.num_iters=2`."""
    if spec in PLAIN:
        return PLAIN[spec]
    name, _, text = spec.partition(":")
    settings = _settings(text)
    if name == "cem" and settings.keys() <= SEARCH:
        samples, iters = search_size(spec)
        return f"CEM {samples} x {iters}"
    if name == "hybrid" and settings.get("search") == "null":
        return f"GC-IDM, {settings.get('commit', '?')} at a look"
    if name == "waypoints":
        words = [f"{value} {key}" for key, value in settings.items()]
        return ", ".join(["line", *words])
    return spec


def search_size(spec: str) -> tuple[int, int]:
    """Samples and iterations that a setting of CEM stands for."""
    settings, default = _settings(spec.partition(":")[2]), CEMSolver()
    return (
        int(settings.get("solver.num_samples", default.num_samples)),
        int(settings.get("solver.num_iters", default.num_iters)),
    )


def _settings(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {key: value for key, _, value in pairs}


SEEDS = (42, 123, 456)  # the paper's


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One method with one seed; what is not said is the preset's.

    Attributes:
        task: What is to be done.
        method: As of `goalward evaluate`.
        demonstrator: Whose demonstrations everything is trained on, and pairs are drawn from.
        world: Changes to the world model's configuration, as of `--set`.
        controller: Changes to the controller's; for interpolation, to the pairwise model's.
        seed: Of the controller's training, and of what the method draws.
        protocol: When an episode counts as a success.
        offset: Recorded steps from start to goal.
        budget: Steps that an episode may take.
        episodes: Those that the pairs come from.
    """

    task: str
    method: str
    demonstrator: str | None = None
    world: tuple[str, ...] = ()
    controller: tuple[str, ...] = ()
    seed: int = SEEDS[0]
    protocol: str = "paper"
    offset: int = defaults.GOAL_OFFSET
    budget: int = defaults.BUDGET
    episodes: EpisodeSet = "test"

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 1, "offset", "budget")
        require_at_least(self, 0, "seed")


TASKS = ("two-room", "reacher", "cube", "push-t")  # in the paper's order of difficulty
MethodName = str
Label = str
ALL_PAIRS = "all pairs"

# (task, point, method) to the paper's figure, in percent; None where it has none.
PaperFigure = Callable[[str, Label, MethodName], float | None]
Quantity = Literal["success", "monotonic", "jerk"]
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


PUSH_T = ("push-t",)
EASIER = ("two-room", "reacher", "cube")  # where the paper finds most settings good enough
AS_GOOD = 3.0  # points that may be lacking

Place = Label | tuple[MethodName, Label]


def more(
    text: str,
    better: Place,
    worse: Place,
    *,
    tasks: tuple[str, ...] = TASKS,
    ours: bool = False,
    apart: bool = False,
) -> Claim:
    """That one succeeds more often than the other."""
    return as_good(text, better, worse, margin=0.0, tasks=tasks, ours=ours, apart=apart)


def as_good(
    text: str,
    better: Place,
    worse: Place,
    *,
    margin: float = AS_GOOD,
    tasks: tuple[str, ...] = TASKS,
    ours: bool = False,
    apart: bool = False,
) -> Claim:
    """That one succeeds as often as the other, but for some points."""
    return Claim(
        text=text,
        better=_place(better),
        worse=_place(worse),
        margin=margin,
        tasks=tasks,
        ours=ours,
        apart=apart,
    )


def _place(place: Place) -> tuple[MethodName, Label]:
    return (GC_IDM, place) if isinstance(place, str) else place


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """One number of a study's table, with the paper's beside it."""

    task: str
    row: str
    column: str
    value: float | None  # None: beyond all bounds
    paper: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """What a study found on one task."""

    facts: tuple[Fact, ...] = ()
    pictures: tuple[Path, ...] = ()


# Measures on a task, and writes pictures into the folder.
Measurement = Callable[["Lab", str, Path], Findings]


@dataclass(frozen=True, kw_only=True)
class Study:
    """One table of numbers, or some pictures.

    Attributes:
        id: What it is called on the command line.
        title: Of its table.
        paper: Where the paper has it, and what it finds.
        axis: What its rows are.
        measure: Does the work.
        uses: Cells of a task whose models it looks at.
        tasks: What it can be done on.
    """

    id: str
    title: str
    paper: str
    measure: Measurement
    uses: Callable[[str], Sequence[Cell]]
    axis: str = ""
    tasks: tuple[str, ...] = TASKS
