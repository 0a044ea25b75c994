"""What an experiment is, and what the rows of the catalog share: tasks, controllers, claims.

An experiment is a row of data; the catalog lists all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from goalward import defaults
from goalward.core.config import NonNegative, Positive, config
from goalward.defaults import ModelKind, SplitPart
from goalward.evaluation.statistics import Rate

if TYPE_CHECKING:
    from goalward.experiments.runner import Runner

SEEDS = (42, 123, 456)  # the paper's
ALL_PAIRS = "all pairs"
AS_GOOD = 3.0  # points by which "as good" may fall behind
ONNX = "gc-idm-onnx"  # the trained controller, exported and run by ONNX Runtime
WITHOUT_TRAINING = (
    "cem",
    "icem",
    "mppi",
    "gradient",
    "random",
    "zero",
)  # need no trained controller
NOT_IN_PAPER = "Not in the paper"

TASKS = ("two-room", "reacher", "cube", "push-t")  # in the paper's order of difficulty
PUSH_T = ("push-t",)
EASIER = ("two-room", "reacher", "cube")  # where the paper finds most settings good enough

Quantity = Literal["success", "monotonic", "jerk"]
Chart = Literal["line", "bars", "frontier", "none"]


@dataclass(frozen=True, slots=True)
class Variant:
    """One controller of a table."""

    label: str  # its name in tables and charts
    controller: str  # as `goalward evaluate` takes it
    # Samples and iterations, where the table varies them.
    search_size: tuple[int, int] | None = None
    first_seed_only: bool = False  # it takes long, or draws nothing


GC_IDM = Variant("GC-IDM, budget horizon", "gc-idm:mode=budget")  # the paper's
TIME_TO_GO = Variant("GC-IDM, time-to-go horizon", "gc-idm")  # ours
EXPORTED = Variant("GC-IDM, time-to-go horizon, ONNX", ONNX, first_seed_only=True)
HYBRID = Variant("hybrid", "hybrid")
CEM = Variant("CEM", "cem", (300, 30), first_seed_only=True)
ICEM = Variant("iCEM", "icem")
MPPI = Variant("MPPI", "mppi")
GRADIENT = Variant("gradient", "gradient")
RANDOM = Variant("random", "random")
ZERO = Variant("zero", "zero", first_seed_only=True)

LINE = Variant("line", "waypoints:refinements=0")
LINES = (
    LINE,
    Variant("line, 1 refinement", "waypoints:refinements=1"),
    Variant("line, 3 refinements", "waypoints:refinements=3"),
    Variant("line, 3 refinements, 10 candidates", "waypoints:refinements=3,candidates=10"),
)


@config
class RunSpec:
    """One controller with one seed on one set of pairs."""

    task: str
    controller: str  # as `goalward evaluate` takes it
    demonstrator: str | None = None  # whose demonstrations are used; None: the preset's
    world_changes: tuple[str, ...] = ()  # to the world model's configuration, as of `--set`
    controller_changes: tuple[str, ...] = ()  # to the configuration of the trained controller
    seed: NonNegative = SEEDS[0]  # of the controller's training and of its random draws
    protocol: str = "paper"  # when an episode counts as a success
    goal_offset: Positive = defaults.GOAL_OFFSET  # recorded steps from start to goal
    budget: Positive = defaults.BUDGET  # steps that an episode may take
    split: SplitPart = "test"  # episodes that the pairs are drawn from

    @property
    def kind(self) -> ModelKind:
        """The kind of model that is trained; planners take the world model out of its file."""
        return "pairwise" if self.controller.startswith("waypoints") else "gc-idm"


def preset_run(task: str) -> RunSpec:
    """A run of the preset's GC-IDM."""
    return RunSpec(task=task, controller=TIME_TO_GO.controller)


@dataclass(frozen=True)
class Point:
    """One value of what a table varies."""

    label: str
    changes: Mapping[str, Any] = field(default_factory=dict)  # fields of the run
    first: int | None = None  # number of pairs; None: all
    subset: Mapping[str, str] = field(default_factory=dict)  # of the pairs that count, by task


PAIRS = "pairs"  # the axis of tables whose points are the first 50 pairs and all pairs
SIZES = (Point("first 50", first=50), Point(ALL_PAIRS))

Place = tuple[Variant, str]  # a variant at a point: one entry of a table


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One place of a table has a better quantity than another, or one as good."""

    text: str
    better: Place  # that should be better; of jerk, less is better
    worse: Place  # that it is compared with
    tasks: tuple[str, ...]
    margin: float = 0.0  # points by which `better` may fall behind; above 0 it is "as good as"
    ours: bool = False  # the paper does not make this claim
    about: Quantity = "success"
    as_quick: bool = False  # `worse` stands for the best search that takes no longer than `better`

    @property
    def wording(self) -> str:
        """The claim with its margin and its author."""
        within = f", within {self.margin:g} points" if self.margin else ""
        return f"{self.text}{within}{' (our claim)' if self.ours else ''}"


def more(
    text: str,
    better: str | Variant | Place,
    worse: str | Variant | Place,
    *,
    tasks: tuple[str, ...] = TASKS,
    **options: Any,
) -> Claim:
    """One place succeeds more often; the options are those of `Claim`.

    A point alone is GC-IDM's, budget horizon; a variant alone is on all pairs.
    """
    return Claim(text=text, better=_place(better), worse=_place(worse), tasks=tasks, **options)


def _place(place: str | Variant | Place) -> Place:
    if isinstance(place, str):
        return GC_IDM, place
    return (place, ALL_PAIRS) if isinstance(place, Variant) else place


as_good = partial(more, margin=AS_GOOD)  # one place succeeds as often as the other


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One table of success rates."""

    id: str  # its name on the command line, and in `paper.json`
    title: str
    paper: str  # where the paper has it, and what it finds
    axis: str = PAIRS  # what the points vary
    points: tuple[Point, ...] = SIZES  # the columns
    variants: tuple[Variant, ...] = (GC_IDM,)  # the rows
    tasks: tuple[str, ...] = TASKS
    seeds: tuple[int, ...] = SEEDS[:1]
    claims: tuple[Claim, ...] = ()
    timed: bool = False  # decisions are timed as well, of all variants in one session
    chart: Chart = "bars"

    @property
    def bundled(self) -> bool:
        """Whether the bundled controllers and pairs are enough for it."""
        varied = {name for point in self.points for name in point.changes}
        pairwise = any(variant.controller.startswith("waypoints") for variant in self.variants)
        return varied <= {"protocol", "budget"} and not pairwise

    def without(self, variant: Variant) -> Experiment:
        """The experiment without a variant and without the claims about it."""
        return replace(
            self,
            variants=tuple(one for one in self.variants if one != variant),
            claims=tuple(c for c in self.claims if variant not in (c.better[0], c.worse[0])),
        )

    def uses(self, task: str) -> list[RunSpec]:
        """Every run of a task."""
        return [spec for _, _, spec in self.runs(task)]

    def runs(self, task: str) -> Iterator[tuple[Point, Variant, RunSpec]]:
        """Every run of a task with its place in the table."""
        for variant in self.variants:
            for point in self.points:
                changes = {**point.changes}
                if variant.controller.partition(":")[0] in WITHOUT_TRAINING:
                    changes.pop("controller_changes", None)  # they would change nothing
                for seed in self.seeds[:1] if variant.first_seed_only else self.seeds:
                    spec = RunSpec(task=task, controller=variant.controller, seed=seed, **changes)
                    yield point, variant, spec


class Beside(NamedTuple):
    """A number with the paper's, if it has one."""

    value: float | None
    paper: float | None


# One row of an analysis: its name, and its numbers by column. A rate is shown in percent with its
# interval; None stands for infinity.
Row = tuple[str, Mapping[str, "float | Rate | Beside | None"]]


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """One table of other numbers, or pictures."""

    id: str  # its name on the command line
    title: str
    paper: str = NOT_IN_PAPER  # where the paper has it, and what it finds
    axis: str = ""  # what its rows are
    tasks: tuple[str, ...] = TASKS
    measure: Callable[[Runner, str], Iterable[Row]] | None = None  # a task
    # Writes pictures of a task into a folder.
    draw: Callable[[Runner, str, Path], Sequence[Path]] | None = None
    # Whose models are trained first.
    uses: Callable[[str], Sequence[RunSpec]] = lambda task: [preset_run(task)]
    bundled: bool = False  # the bundled controllers are enough for it
