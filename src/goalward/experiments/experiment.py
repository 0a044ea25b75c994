"""What an experiment is: its runs, its claims, and the numbers of an analysis.

An experiment is a row of data; the catalog lists all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

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
UNTRAINED = ("cem", "icem", "mppi", "gradient", "random", "zero")  # need no trained controller

Quantity = Literal["success", "monotonic", "jerk"]
Chart = Literal["line", "bars", "frontier", "none"]


@dataclass(frozen=True, slots=True)
class Variant:
    """One controller of a table."""

    label: str  # its name in tables and charts
    controller: str  # as `goalward evaluate` takes it
    search_size: tuple[int, int] | None = (
        None  # samples and iterations, where the table varies them
    )


Place = tuple[Variant, str]  # a variant at a point: one entry of a table
# (task, point, variant) to the paper's figure in percent; None where the paper has none.
PaperFigure = Callable[[str, str, Variant], float | None]


def no_figure(task: str, point: str, variant: Variant) -> float | None:  # noqa: ARG001
    """The paper has no figure."""
    return None


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


@dataclass(frozen=True, kw_only=True)
class Point:
    """One value of what a table varies."""

    label: str
    changes: Mapping[str, Any] = field(default_factory=dict)  # fields of the run
    first: int | None = None  # number of pairs; None: all
    subset: Mapping[str, str] = field(default_factory=dict)  # of the pairs that count, by task


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
    unpaired: bool = False  # the two places have different pairs
    as_quick: bool = False  # `worse` stands for the best search that takes no longer than `better`

    @property
    def wording(self) -> str:
        """The claim with its margin and its author."""
        within = f", within {self.margin:g} points" if self.margin else ""
        return f"{self.text}{within}{' (our claim)' if self.ours else ''}"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One table of success rates."""

    id: str  # its name on the command line
    title: str
    paper: str  # where the paper has it, and what it finds
    axis: str  # what the points vary
    points: tuple[Point, ...]  # the columns
    variants: tuple[Variant, ...]  # the rows
    tasks: tuple[str, ...]
    seeds: tuple[int, ...] = SEEDS[:1]
    slow: tuple[Variant, ...] = ()  # have the first seed only: they take long, or draw nothing
    figure: PaperFigure = no_figure
    claims: tuple[Claim, ...] = ()
    timed: bool = False  # decisions are timed as well, of all variants in one session
    chart: Chart = "line"

    def without(self, variant: Variant) -> Experiment:
        """The experiment without a variant and without the claims about it."""
        return replace(
            self,
            variants=tuple(one for one in self.variants if one != variant),
            claims=tuple(c for c in self.claims if variant not in (c.better[0], c.worse[0])),
        )

    def runs(self, task: str) -> Iterator[tuple[Point, Variant, RunSpec]]:
        """Every run of a task with its place in the table."""
        for variant in self.variants:
            for point in self.points:
                changes = {**point.changes}
                if variant.controller.partition(":")[0] in UNTRAINED:
                    changes.pop("controller_changes", None)  # they would change nothing
                for seed in self.seeds[:1] if variant in self.slow else self.seeds:
                    yield (
                        point,
                        variant,
                        RunSpec(task=task, controller=variant.controller, seed=seed, **changes),
                    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One number of an analysis, in the unit that its row or column names."""

    task: str
    row: str
    column: str
    value: float | None  # None: infinite
    low: float | None = None  # of the 95% interval
    high: float | None = None
    count: int | None = None  # of the cases that the interval is over
    paper: float | None = None


def row_metrics(task: str, row: str, values: Mapping[str, float | None]) -> list[Metric]:
    """The numbers of a row, by column."""
    return [Metric(task=task, row=row, column=name, value=value) for name, value in values.items()]


def rate_metric(task: str, row: str, column: str, rate: Rate) -> Metric:
    """A success rate in percent."""
    return Metric(
        task=task,
        row=row,
        column=column,
        value=100 * rate.mean,
        low=100 * rate.low,
        high=100 * rate.high,
        count=rate.count,
    )


# Measures a task: gives numbers, and the paths of pictures that it writes into the folder.
Measurement = Callable[["Runner", str, Path], Iterable[Metric | Path]]


def no_runs(task: str) -> Sequence[RunSpec]:  # noqa: ARG001
    """Nothing needs to be trained first."""
    return ()


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """One table of other numbers, or pictures."""

    id: str  # its name on the command line
    title: str
    paper: str  # where the paper has it, and what it finds
    measure: Measurement
    tasks: tuple[str, ...]
    uses: Callable[[str], Sequence[RunSpec]] = no_runs  # whose models are trained first
    axis: str = ""  # what its rows are
    bundled: bool = False  # the bundled controllers are enough for it
