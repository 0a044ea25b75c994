"""The work behind cells, in levels: what is on one level can be done side by side."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from statistics import mean
from typing import Literal

from goalward import defaults
from goalward.control.checkpoint import TrainedIDM, load_trained_idm
from goalward.core.checks import whole_number
from goalward.core.machine import Provenance, choose_device, usable_cpus, use_threads
from goalward.data.splits import SplitConfig
from goalward.defaults import BUDGET, GOAL_OFFSET, ModelKind, PresetName
from goalward.engines.local import Pool, process_pool
from goalward.evaluation.cells import EvaluationConfig, Observer
from goalward.evaluation.latency import Latency
from goalward.evaluation.pairs import Pairs, PairsConfig
from goalward.evaluation.results import EpisodeResult
from goalward.evaluation.run import Run, compare_latencies, evaluate, prepare_pairs
from goalward.evaluation.simulators import SimulatorPool, SimulatorPools, simulator_pool
from goalward.evaluation.specs import Models, make_method
from goalward.experiments.experiment import Cell
from goalward.pipeline import Bar, Pipeline, silent_bar
from goalward.tasks import get_task
from goalward.world.frozen import FrameEncoder

NEEDS_PAIRWISE = "waypoints"
KEPT_MODELS = 4  # in memory


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Everything that a cell is run with."""

    folder: Path
    setting: EvaluationConfig
    run: Run


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a cell gave."""

    rows: Sequence[EpisodeResult]
    origins: Sequence[Provenance]


@dataclass(frozen=True, kw_only=True)
class Lab:
    """Where experiments of a preset are run.

    Args:
        preset: Size and length of everything.
        runs: Folder of all presets and tasks; what is there is used.
        pairs: Start and goal pairs of every cell.
        device: Where to compute: cpu, cuda, mps or auto.
        workers: Simulator processes.
        bar: Shows how far a stage is.
        pools: Simulators that the cells share (default: each starts its own).
    """

    preset: PresetName
    runs: Path
    pairs: int
    device: str = "auto"
    workers: int = 1
    bar: Bar = silent_bar
    pools: SimulatorPools | None = None

    def pipeline(
        self, task: str, world: tuple[str, ...] = (), demonstrator: str | None = None
    ) -> Pipeline:
        """The stages of a task, with other demonstrations or world model, or the preset's."""
        usual = Pipeline(
            task=get_task(task),
            preset=self.preset,
            folder=self.runs / self.preset / task,
            device=self.device,
            workers=self.workers,
            bar=self.bar,
            world_changes=world,
            curves=False,
        )
        if demonstrator in (None, usual.usual_demonstrator):
            return usual
        folder = usual.folder.with_name(f"{task}-{demonstrator}")
        return replace(usual, folder=folder, demonstrator=demonstrator)

    def plain(self, cell: Cell) -> Cell:
        """The same cell; demonstrations that are the usual ones are not named."""
        demonstrator = self.pipeline_of(cell).demonstrator
        return replace(cell, demonstrator=demonstrator)

    def pipeline_of(self, cell: Cell) -> Pipeline:
        """The stages of a cell."""
        return self.pipeline(cell.task, cell.world, cell.demonstrator)

    def run(self, cell: Cell) -> Measured:
        """Every row of a cell; what is missing is trained and run."""
        bench = self.bench(cell)
        with self.bar("evaluate", self.pairs, "episodes") as update:
            found = evaluate(
                bench.folder,
                bench.setting.pairs,
                [bench.run],
                observer=bench.setting.observer,
                budget=cell.budget,
                workers=self.workers,
                pools=self.pools,
                timed=False,
                on_progress=update,
            )
        return Measured(rows=found.rows[cell.method], origins=found.origins[cell.method])

    def times(self, cells: Sequence[Cell]) -> dict[str, Latency]:
        """Times of the methods of cells that differ in nothing else but the seed."""
        benches = [self.bench(cell) for cell in cells]
        first = benches[0]
        return compare_latencies(first.folder, first.setting, [bench.run for bench in benches])

    def controller(self, cell: Cell) -> Path:
        """The folder of a cell's trained model."""
        return _controller(self, kind_of(cell), _trained(cell))

    def folder_of(self, cell: Cell, what: Literal["world", "model"]) -> Path:
        """Where a cell's world model or trained model is, or will be.

        Different changes may say the same, and then have the same folder.
        """
        pipeline = self.pipeline_of(cell)
        if what == "world":
            return pipeline.world_folder()
        return pipeline.controller_folder(
            kind=kind_of(cell), seed=cell.seed, changes=cell.controller
        )

    def bench(self, cell: Cell) -> Bench:
        """What a cell is run with; trained if it is missing."""
        pipeline = self.pipeline_of(cell)
        model = self.model(cell)
        pairwise = cell.method.startswith(NEEDS_PAIRWISE)
        models = Models(pairwise=model) if pairwise else Models(controller=model)
        method = make_method(cell.method, models, action_dim=pipeline.task.action_dim)
        observer = Observer(world_id=model.metadata.world_id, encode=FrameEncoder(model.world))
        setting = EvaluationConfig(
            pairs=self.pairs_of(cell),
            budget=cell.budget,
            environments=min(defaults.ENVIRONMENTS, self.pairs),
            observer=observer,
        )
        run = Run(method=method, seed=cell.seed)
        return Bench(folder=self._pairs_folder(cell), setting=setting, run=run)

    def pairs_of(self, cell: Cell) -> Pairs:
        """The start and goal pairs of a cell."""
        return prepare_pairs(
            self._pairs_folder(cell),
            self.pairs_config(cell),
            self.pipeline_of(cell).episodes(),
        )

    def pairs_config(self, cell: Cell) -> PairsConfig:
        """How a cell's pairs are drawn."""
        return PairsConfig(
            task=cell.task,
            protocol=cell.protocol,
            count=self.pairs,
            offset=cell.offset,
            episodes=cell.episodes,
            split=_split(self, _trained(cell)),
        )

    def _pairs_folder(self, cell: Cell) -> Path:
        return self.pipeline_of(cell).pairs_folder(self.pairs_config(cell))

    @contextmanager
    def simulators(self, pairs: Pairs, number: int) -> Iterator[SimulatorPool]:
        """So many simulators of the pairs' task."""
        config, scene = pairs.metadata.config, pairs.metadata.scene
        if self.pools is not None:
            yield self.pools.pool(config.task, config.protocol, scene, number)
        else:
            with simulator_pool(
                config.task, config.protocol, scene, number=number, workers=self.workers
            ) as pool:
                yield pool

    def model(self, cell: Cell) -> TrainedIDM:
        """The trained model of a cell; planners take the world model out of it."""
        return _loaded(self.controller(cell), str(choose_device(self.device)))


def kind_of(cell: Cell) -> ModelKind:
    """Which model a cell's method needs."""
    return "pairwise" if cell.method.startswith(NEEDS_PAIRWISE) else "gc-idm"


# Stages check what they find; that is done once a process, not for each of hundreds of cells.


def _trained(cell: Cell) -> Cell:
    """The cell as far as its training depends on it."""
    kept = {name: getattr(cell, name) for name in ("demonstrator", "world", "controller", "seed")}
    return Cell(task=cell.task, method="", **kept)


@cache
def _controller(lab: Lab, kind: ModelKind, cell: Cell) -> Path:
    pipeline = lab.pipeline_of(cell)
    return pipeline.controller(kind=kind, seed=cell.seed, changes=cell.controller)


@cache
def _split(lab: Lab, cell: Cell) -> SplitConfig:
    return lab.pipeline_of(cell).world_config().split


@lru_cache(maxsize=KEPT_MODELS)
def _loaded(path: Path, device: str) -> TrainedIDM:
    return load_trained_idm(path, device=device)


Doing = Literal["collect", "draw pairs", "train world", "train", "run"]
FOUND = 1.0  # seconds; what takes less was done before, and tells nothing of what is to come
OnState = Callable[["State", "Work"], None]
Kind = tuple[Doing, str]  # what takes about the same time
NEEDS: dict[Doing, Callable[[Cell], Hashable]] = {  # cells that need the same have the same
    "collect": lambda c: (c.task, c.demonstrator),
    "draw pairs": lambda c: (c.task, c.demonstrator, c.protocol, c.offset, c.episodes),
    "train world": lambda c: (c.task, c.demonstrator, c.world),
    "train": lambda c: (kind_of(c), c.task, c.demonstrator, c.world, c.controller, c.seed),
    "run": lambda c: c,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """One thing to be done for a cell, and for others that need the same."""

    doing: Doing
    cell: Cell

    def __str__(self) -> str:
        cell = self.cell
        data = [cell.task, *filter(None, [cell.demonstrator])]
        trained = (*data, *cell.world, *cell.controller, f"seed {cell.seed}")
        far = [] if cell.offset == GOAL_OFFSET else [f"goals {cell.offset} steps off"]
        budget = [] if cell.budget == BUDGET else [f"budget {cell.budget}"]
        of = [] if cell.episodes == "test" else [f"{cell.episodes} episodes"]
        words = {
            "collect": data,
            "draw pairs": (*data, cell.protocol, *far, *of),
            "train world": (*data, *cell.world),
            "train": (kind_of(cell), *trained),
            "run": (cell.method, *trained, *far, *budget, *of),
        }[self.doing]
        return " ".join([self.doing, *words])

    @property
    def kind(self) -> Kind:
        """Settings of a method and of a training may differ in time, but not by much."""
        method = self.cell.method.partition(":")[0] if self.doing == "run" else ""
        return self.doing, f"{self.cell.task} {method}"

    def is_for(self, cell: Cell) -> bool:
        """Whether the cell needs this."""
        need = NEEDS[self.doing]
        return need(self.cell) == need(cell)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Work that could not be done, and why."""

    work: Work
    why: str

    def __str__(self) -> str:
        return f"{self.work}: {self.why}"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the cells gave that could be run, and what stood in the way of the others."""

    cells: Mapping[Cell, Measured]
    failures: tuple[Failure, ...]


@dataclass(kw_only=True)
class State:
    """How far the work is."""

    jobs: int
    left: Counter[Kind]  # what is not done yet
    done: int = 0
    running: int = 0
    spent: dict[Kind, list[float]] = field(default_factory=dict)  # seconds of what was really done
    finished: bool = False  # whether the work that is told of is

    @property
    def waiting(self) -> int:
        """What is neither done nor under way."""
        return self.left.total() - self.running

    @property
    def seconds_left(self) -> float | None:
        """At the pace of what was done of every kind; None as long as one is not known."""
        kinds = +self.left
        if any(kind not in self.spent for kind in kinds):
            return None
        return sum(number * mean(self.spent[kind]) for kind, number in kinds.items()) / self.jobs

    def leave_out(self, work: Work) -> None:
        """Count no more on work that is not to be done."""
        self.left[work.kind] -= 1

    def finish(self, work: Work, seconds: float) -> None:
        """Count work as done that took so long."""
        self.left[work.kind] -= 1
        self.done += 1
        if seconds >= FOUND:
            self.spent.setdefault(work.kind, []).append(seconds)


def levels_of_work(cells: Sequence[Cell], prepared: Sequence[Cell] = ()) -> list[list[Work]]:
    """Everything that the cells need, each thing once, in the order of need.

    Args:
        cells: To be run.
        prepared: To be made ready, and not run.
    """
    chosen = ([*cells, *prepared], cells)
    return [
        [Work(doing=doing, cell=cell) for cell in _first_of_each(chosen[doing == "run"], key)]
        for doing, key in NEEDS.items()
    ]


def _first_of_each(cells: Sequence[Cell], key: Callable[[Cell], Hashable]) -> Iterable[Cell]:
    found: dict[Hashable, Cell] = {}
    for cell in cells:
        found.setdefault(key(cell), cell)
    return found.values()


def without_repeats(lab: Lab, level: Sequence[Work]) -> list[Work]:
    """A level whose earlier ones are done, without work that is other work by another name.

    Changes that change nothing, such as a preset's own value, end in the same folder; two processes
    would get into each other's way there.
    """
    found: dict[Hashable, Work] = {}
    for work in level:
        key: Hashable = work
        if work.doing == "train world":
            key = lab.folder_of(work.cell, "world")
        elif work.doing == "train":
            key = lab.folder_of(work.cell, "model")
        found.setdefault(key, work)
    return list(found.values())


def run_cells(
    lab: Lab,
    cells: Sequence[Cell],
    *,
    prepared: Sequence[Cell] = (),
    jobs: int = 1,
    threads: int | None = None,
    on_state: OnState | None = None,
) -> Outcome:
    """Do what is missing, but for what needs something that failed.

    Args:
        lab: Where to.
        cells: What to run.
        prepared: Cells whose models and pairs are to be made, no more.
        jobs: Things to do at a time.
        threads: Of each of several jobs (default: an even share of the CPUs).
        on_state: Told before each of them; where several are done at a time, at the beginning of a
            level and after each.

    Raises:
        ValueError: fewer than one at a time, or a process was killed.
    """
    whole_number(jobs, "jobs")
    levels = levels_of_work([lab.plain(c) for c in cells], [lab.plain(c) for c in prepared])
    state = State(jobs=jobs, left=Counter(work.kind for level in levels for work in level))
    ledger = _Ledger(state=state, on_state=on_state)
    with process_pool(jobs) if jobs > 1 else nullcontext() as pool:
        for planned in levels:
            level = ledger.still_to_do(lab, planned)
            # What is alone on its level has this process, with every core and its bar.
            if pool is None or len(level) == 1:
                ledger.do(lab, level)
            elif level:
                ledger.follow(_by(pool, lab, level, jobs, threads), level)
    known = {cell: lab.plain(cell) for cell in cells}
    done = ledger.measured
    return Outcome(
        cells={cell: done[plain] for cell, plain in known.items() if plain in done},
        failures=tuple(ledger.failures),
    )


Found = Measured | str | None  # what a run gave, why it failed, or nothing to tell
Result = tuple[Work, Found, float]  # with the seconds that it took


@dataclass(kw_only=True)
class _Ledger:
    """What came of the work so far, told to whoever wants to know."""

    state: State
    on_state: OnState | None
    measured: dict[Cell, Measured] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    def still_to_do(self, lab: Lab, planned: Sequence[Work]) -> list[Work]:
        """Of a level, what needs nothing that failed and is not other work by another name."""
        failed = [failure.work for failure in self.failures]
        possible = [work for work in planned if not any(f.is_for(work.cell) for f in failed)]
        level = without_repeats(lab, possible)
        for work in planned:
            if work not in level:
                self.state.leave_out(work)
        return level

    def do(self, lab: Lab, level: Sequence[Work]) -> None:
        """Do the level in this process, one thing after the other."""
        for work in level:
            self._tell(work, running=1)
            self._enter(_done(lab, work))

    def follow(self, results: Iterable[Result], level: Sequence[Work]) -> None:
        """Take in what other processes make of the level, in the order in which they finish."""
        running = min(self.state.jobs, len(level))
        self._tell(level[0], running=running)
        for left, result in zip(reversed(range(len(level))), results, strict=True):
            self._enter(result)
            self._tell(result[0], running=min(running, left), finished=True)

    def _enter(self, result: Result) -> None:
        work, found, seconds = result
        self.state.finish(work, seconds)
        if isinstance(found, str):
            self.failures.append(Failure(work=work, why=found))
        elif found is not None:
            self.measured[work.cell] = found

    def _tell(self, work: Work, *, running: int, finished: bool = False) -> None:
        self.state.running, self.state.finished = running, finished
        if self.on_state is not None:
            self.on_state(self.state, work)


def _by(
    pool: Pool, lab: Lab, level: Sequence[Work], jobs: int, threads: int | None
) -> Iterator[Result]:
    """Work that others do, in the order in which they finish."""
    alone = replace(lab, workers=1, bar=silent_bar, pools=None)
    share = max(1, usable_cpus() // min(jobs, len(level)))
    each = share if threads is None else threads
    return pool.map_unordered(_done_alone, [(alone, work, each) for work in level])


def _done(lab: Lab, work: Work) -> Result:
    """What came of it. What the user can mend is told in the end, and other work goes on."""
    started = time.monotonic()
    try:
        found: Found = _do(lab, work)
    except ValueError as error:
        found = str(error)
    return work, found, time.monotonic() - started


def _do(lab: Lab, work: Work) -> Measured | None:
    """What the cell gave, if the work is to run one."""
    cell = work.cell
    match work.doing:
        case "collect":
            lab.pipeline_of(cell).episodes()
        case "draw pairs":
            lab.pairs_of(cell)
        case "train world":
            lab.pipeline_of(cell).latents()
        case "train":
            lab.controller(cell)
        case "run":
            return lab.run(cell)
    return None


def _done_alone(job: tuple[Lab, Work, int]) -> Result:
    """Work in a process of its own, whose simulators stay for the next cell."""
    lab, work, threads = job
    use_threads(threads)
    return _done(replace(lab, pools=_own_pools()), work)


@cache
def _own_pools() -> SimulatorPools:
    return SimulatorPools(1)
