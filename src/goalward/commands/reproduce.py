"""The command that measures the paper's tables anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from goalward import defaults
from goalward.commands.base import AsJson, Device, NumThreads, NumWorkers
from goalward.core import console
from goalward.core.console import Update

if TYPE_CHECKING:
    from goalward.experiments.experiment import Experiment, Study
    from goalward.experiments.run import Lab, Outcome, State, Work
    from goalward.experiments.tables import Table


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Measure the paper's tables and figures anew, beside its own; run again to resume."""

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
    """Simulator processes of a cell that runs alone; the result does not depend on their number."""
    jobs: Annotated[
        int | None, arg(metavar="INT", help_behavior_hint="(default: the CPUs, 1 with a GPU)")
    ] = None
    """Trainings and cells at a time, in processes that share the CPUs evenly."""
    device: Device = "auto"
    threads: NumThreads = None
    """CPU threads."""
    as_json: AsJson = False
    """Print one JSON document and no progress."""

    def run(self) -> int:
        """Run what is missing and print the tables."""
        from goalward.core.checks import whole_number
        from goalward.core.config import to_json
        from goalward.core.machine import this_origin, usable_cpus, use_threads
        from goalward.evaluation.simulators import SimulatorPools
        from goalward.experiments.run import Lab
        from goalward.experiments.stored import require_room

        if self.list:
            return self._list()
        chosen = self._chosen()
        pairs = defaults.PRESET_PAIRS[self.preset] if self.pairs is None else self.pairs
        folder = self.out / self.preset
        this_origin()  # tables may be written into the checkout, and change its state
        require_room(folder, chosen, whole_number(pairs, "pairs"), self.tasks)
        folder.mkdir(parents=True, exist_ok=True)  # what cannot be written is told at once
        use_threads(self.threads)
        workers = usable_cpus() if self.workers is None else self.workers
        with SimulatorPools(workers) as pools:
            lab = Lab(
                preset=self.preset,
                runs=self.runs,
                pairs=pairs,
                device=self.device,
                workers=workers,
                bar=self._bar,
                pools=pools,
            )
            found = self._run_cells(lab, chosen)
            tables = [*self._tables(lab, chosen, found, folder)]
        if self.as_json:
            console.show_json([to_json(table) for table in tables])
        if found.failures:
            raise ValueError("; ".join(map(str, found.failures)))
        return 0

    def _run_cells(self, lab: Lab, chosen: Sequence[Experiment | Study]) -> Outcome:
        """Do everything that the tables need."""
        from goalward.core.machine import choose_device, usable_cpus
        from goalward.experiments.run import run_cells
        from goalward.experiments.tables import all_cells, used_cells

        has_gpu = choose_device(self.device).type != "cpu"
        return run_cells(
            lab,
            all_cells(chosen, self.tasks),
            prepared=used_cells(chosen, self.tasks),
            jobs=(1 if has_gpu else usable_cpus()) if self.jobs is None else self.jobs,
            threads=self.threads,
            on_state=self._tell,
        )

    def _tables(
        self, lab: Lab, chosen: Sequence[Experiment | Study], found: Outcome, folder: Path
    ) -> Iterator[Table]:
        """Write and show a table after the other."""
        from goalward.experiments.experiment import Experiment
        from goalward.experiments.stored import save_table
        from goalward.experiments.tables import ready_tasks, tabulate

        for one in chosen:
            tasks = ready_tasks(lab, one, found, self.tasks)
            table = tabulate(lab, one, folder, cells=found.cells, tasks=tasks)
            if table.is_empty:
                continue  # it is about other tasks, or something failed
            chart = one.chart if isinstance(one, Experiment) else "none"
            whole = save_table(folder, table, chart)
            if not self.as_json:
                _show(whole, folder, has_chart=chart != "none")
            yield whole

    def _list(self) -> int:
        """Print what there is."""
        from goalward.experiments.catalog import find_experiments

        header = ("id", "title", "paper")
        rows = [(e.id, e.title, e.paper) for e in find_experiments(())]
        if self.as_json:
            console.show_json([dict(zip(header, row, strict=True)) for row in rows])
        else:
            console.show_table("Experiments", header, rows)
        return 0

    def _chosen(self) -> Sequence[Experiment | Study]:
        """What was asked for, less what the preset cannot do."""
        from goalward.experiments.catalog import find_experiments
        from goalward.experiments.experiment import WITH_TIME_TO_GO, Experiment
        from goalward.presets import learns_time_to_go

        if not self.experiments and not self.all:
            raise ValueError("name experiments, or give --all; --list shows what there is")
        chosen = find_experiments(() if self.all else self.experiments)
        if learns_time_to_go(self.preset):
            return chosen
        return [
            one.without(WITH_TIME_TO_GO) if isinstance(one, Experiment) else one for one in chosen
        ]

    def _tell(self, state: State, work: Work) -> None:
        if self.as_json:
            return
        seconds = state.seconds_left
        left = "" if seconds is None else f", about {console.duration(seconds)} left"
        numbers = f"{state.done} done, {state.running} running, {state.waiting} to come{left}"
        console.show_status(f"[{numbers}] {'finished: ' if state.finished else ''}{work}")

    def _bar(self, stage: str, total: int, unit: str) -> AbstractContextManager[Update]:
        return console.progress(stage, total, unit=unit, quiet=self.as_json)


def _show(table: Table, folder: Path, *, has_chart: bool) -> None:
    from goalward.experiments.experiment import method_name

    title = f"{table.title} ({table.shown_pairs}, preset {table.preset})"
    if table.entries:
        rows = [
            (e.task, method_name(e.method), e.point, str(e.summary.rate), _or_dash(e.paper, "%"))
            for e in table.entries
        ]
        header = ("task", "method", table.axis or "point", "success", "paper")
        console.show_table(title, header, rows)
    if table.facts:
        rows = [
            (f.task, f.row, f.column, _or_dash(f.value), _or_dash(f.paper)) for f in table.facts
        ]
        console.show_table(title, ("task", table.axis, "", "found", "paper"), rows)
    for verdict in table.verdicts:
        console.show_line(f"{verdict.verdict}: {verdict.task}: {verdict.claim} ({verdict.shown})")
    charts = [f"{table.id}.svg"] if has_chart else []
    for name in (f"{table.id}.json", *charts, *(picture.path for picture in table.pictures)):
        console.show_line(f"written: {folder / name}")


def _or_dash(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{value:.4g}{unit}"
