"""A study: an experiment whose outcome is no success rate, but other numbers, or pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from goalward.experiments.cell import Cell
from goalward.experiments.experiment import TASKS
from goalward.experiments.lab import Lab


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
Measure = Callable[[Lab, str, Path], Findings]


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
    measure: Measure
    uses: Callable[[str], Sequence[Cell]]
    axis: str = ""
    tasks: tuple[str, ...] = TASKS
