"""The lab: makes whatever a cell needs, once, and runs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

from goalward import defaults
from goalward.controllers.file import InverseModel, load_inverse_model
from goalward.data.splits import SplitConfig
from goalward.defaults import ModelKind, PresetName
from goalward.devices import choose_device
from goalward.evaluate.cells import Observer, Setting
from goalward.evaluate.evaluation import Run, compare_latencies, evaluate, prepare_pairs
from goalward.evaluate.frozen_pairs import FrozenPairs, PairsConfig
from goalward.evaluate.methods import Models, make_method
from goalward.evaluate.origin import Origin
from goalward.evaluate.rows import EpisodeRow
from goalward.evaluate.simulators import SimulatorPool, SimulatorPools, simulator_pool
from goalward.evaluate.timing import Latency
from goalward.experiments.cell import Cell
from goalward.pipeline import Bar, Pipeline, silent_bar
from goalward.tasks import get_task
from goalward.world.frame_encoder import FrameEncoder

NEEDS_PAIRWISE = "interpolation"
KEPT_MODELS = 4  # in memory


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Everything that a cell is run with."""

    folder: Path
    setting: Setting
    run: Run


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a cell gave."""

    rows: Sequence[EpisodeRow]
    origins: Sequence[Origin]


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
        observer = Observer(world_id=model.card.world_id, encode=FrameEncoder(model.world))
        setting = Setting(
            pairs=self.pairs_of(cell),
            budget=cell.budget,
            environments=min(defaults.ENVIRONMENTS, self.pairs),
            observer=observer,
        )
        run = Run(method=method, seed=cell.seed)
        return Bench(folder=self._pairs_folder(cell), setting=setting, run=run)

    def pairs_of(self, cell: Cell) -> FrozenPairs:
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
    def simulators(self, pairs: FrozenPairs, number: int) -> Iterator[SimulatorPool]:
        """So many simulators of the pairs' task."""
        config, scene = pairs.card.config, pairs.card.scene
        if self.pools is not None:
            yield self.pools.pool(config.task, config.protocol, scene, number)
        else:
            with simulator_pool(
                config.task, config.protocol, scene, number=number, workers=self.workers
            ) as pool:
                yield pool

    def model(self, cell: Cell) -> InverseModel:
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
def _loaded(path: Path, device: str) -> InverseModel:
    return load_inverse_model(path, device=device)
