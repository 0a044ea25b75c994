"""The command that measures the paper's tables anew."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from goalward import console, defaults
from goalward.commands.base import AsJson, Device, NumThreads, NumWorkers
from goalward.console import Update

if TYPE_CHECKING:
    from goalward.experiments.cell import Cell
    from goalward.experiments.runner import Table


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Measure the paper's tables of success anew, beside its own figures; run again to resume."""

    experiments: Annotated[Positional[tuple[str, ...]], arg(metavar="[ID ...]")] = ()
    """Which ones; `--all` for every one, `--list` to see them."""
    all: bool = False
    """Every experiment."""
    list: bool = False
    """Tell what there is, and stop."""
    preset: defaults.PresetName = "cpu"
    """Size and length of everything that is trained."""
    tasks: tuple[str, ...] = ()
    """Only these tasks."""
    pairs: Annotated[
        int | None, arg(metavar="INT", help_behavior_hint="(default: the preset's)")
    ] = None
    """Start and goal pairs of every cell."""
    runs: Path = Path("runs", "experiments")
    """Where everything is trained and run; what is there is used."""
    out: Path = Path("runs", "experiments", "tables")
    """Where tables and figures go, by preset."""
    workers: NumWorkers = None
    """Simulator processes; the result does not depend on their number."""
    device: Device = "auto"
    threads: NumThreads = None
    """CPU threads."""
    as_json: AsJson = False
    """Print one JSON document and no progress."""

    def run(self) -> int:
        """Run what is missing and print the tables."""
        from goalward.config import to_json
        from goalward.devices import use_threads
        from goalward.evaluate.simulators import SimulatorPools
        from goalward.experiments.catalog import EXPERIMENTS, find_experiments
        from goalward.experiments.figures import save_table_figure
        from goalward.experiments.lab import Lab
        from goalward.experiments.runner import all_cells, run_cells, save_table, tabulate
        from goalward.workers import usable_cpus

        if self.list:
            rows = [(e.id, e.title, e.paper) for e in EXPERIMENTS]
            console.show_table("Experiments", ("id", "title", "paper"), rows)
            return 0
        if not self.experiments and not self.all:
            raise ValueError("name experiments, or give --all; --list shows what there is")
        chosen = find_experiments(() if self.all else self.experiments)
        use_threads(self.threads)
        workers = usable_cpus() if self.workers is None else self.workers
        tables, folder = [], self.out / self.preset
        with SimulatorPools(workers) as pools:
            lab = Lab(
                preset=self.preset,
                runs=self.runs,
                pairs=defaults.PRESET_PAIRS[self.preset] if self.pairs is None else self.pairs,
                device=self.device,
                workers=workers,
                bar=self._bar,
                pools=pools,
            )
            run_cells(lab, all_cells(chosen, self.tasks), self._tell)
            for experiment in chosen:
                table = tabulate(lab, experiment, self.tasks)
                if not table.entries:
                    continue  # it is about other tasks
                paths = [save_table(folder, table)]
                if experiment.chart != "none":
                    paths.append(folder / f"{experiment.id}.svg")
                    save_table_figure(paths[-1], table, experiment.chart)
                tables.append(table)
                if not self.as_json:
                    _show(table, paths)
        if self.as_json:
            console.show_json([to_json(table) for table in tables])
        return 0

    def _tell(self, number: int, total: int, cell: Cell) -> None:
        if not self.as_json:
            what = " ".join((cell.task, cell.method, *cell.world, *cell.controller))
            console.show_status(f"cell {number + 1} of {total}: {what}, seed {cell.seed}")

    def _bar(self, stage: str, total: int, unit: str) -> AbstractContextManager[Update]:
        return console.progress(stage, total, unit=unit, quiet=self.as_json)


def _show(table: Table, paths: list[Path]) -> None:
    rows = [
        (
            entry.task,
            entry.method,
            entry.point,
            str(entry.summary.rate),
            "-" if entry.paper is None else f"{entry.paper:g}%",
        )
        for entry in table.entries
    ]
    title = f"{table.title} ({table.pairs} pairs, preset {table.preset})"
    console.show_table(title, ("task", "method", table.axis or "point", "success", "paper"), rows)
    for verdict in table.verdicts:
        console.show_line(
            f"{verdict.verdict}: {verdict.task}: {verdict.claim} ({verdict.difference} points)"
        )
    for path in paths:
        console.show_line(f"written: {path}")
