"""The lab: makes whatever a cell needs, once, and runs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from goalward import defaults
from goalward.config import content_id, to_json
from goalward.controllers.file import InverseModel, load_inverse_model
from goalward.defaults import ModelKind, PresetName
from goalward.devices import choose_device
from goalward.evaluate.cells import Observer, Setting
from goalward.evaluate.evaluation import Run, compare_latencies, evaluate, prepare_pairs
from goalward.evaluate.frozen_pairs import PairsConfig
from goalward.evaluate.methods import Models, make_method
from goalward.evaluate.rows import EpisodeRow
from goalward.evaluate.simulators import SimulatorPools
from goalward.evaluate.timing import Latency
from goalward.experiments.cell import Cell
from goalward.pipeline import Bar, Pipeline, silent_bar
from goalward.tasks import get_task
from goalward.world.frame_encoder import FrameEncoder

NEEDS_PAIRWISE = "interpolation"
KEPT_MODELS = 4  # in memory


@dataclass(frozen=True, kw_only=True)
class _Bench:
    """Everything that a cell is run with."""

    folder: Path
    setting: Setting
    run: Run


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

    def pipeline(self, task: str, world: tuple[str, ...] = ()) -> Pipeline:
        """The stages of a task, with a changed world model or the preset's."""
        return Pipeline(
            task=get_task(task),
            preset=self.preset,
            folder=self.runs / self.preset / task,
            device=self.device,
            workers=self.workers,
            bar=self.bar,
            world_changes=world,
        )

    def run(self, cell: Cell) -> list[EpisodeRow]:
        """Every row of a cell; what is missing is trained and run."""
        bench = self._bench(cell)
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
        return list(found.rows[cell.method])

    def times(self, cells: Sequence[Cell]) -> dict[str, Latency]:
        """Times of the methods of cells that differ in nothing else but the seed."""
        benches = [self._bench(cell) for cell in cells]
        first = benches[0]
        return compare_latencies(first.folder, first.setting, [bench.run for bench in benches])

    def _bench(self, cell: Cell) -> _Bench:
        """What a cell is run with; trained if it is missing."""
        pipeline = self.pipeline(cell.task, cell.world)
        model = self._model(pipeline, cell)
        pairwise = cell.method.startswith(NEEDS_PAIRWISE)
        models = Models(pairwise=model) if pairwise else Models(controller=model)
        method = make_method(cell.method, models, action_dim=pipeline.task.action_dim)
        wanted = PairsConfig(
            task=cell.task,
            protocol=cell.protocol,
            count=self.pairs,
            offset=cell.offset,
            episodes=cell.episodes,
            split=pipeline.world_config().split,
        )
        folder = pipeline.folder / f"pairs-{content_id(to_json(wanted))[:8]}"
        pairs = prepare_pairs(folder, wanted, pipeline.episodes())
        observer = Observer(world_id=model.card.world_id, encode=FrameEncoder(model.world))
        environments = min(defaults.ENVIRONMENTS, self.pairs)
        setting = Setting(
            pairs=pairs, budget=cell.budget, environments=environments, observer=observer
        )
        return _Bench(folder=folder, setting=setting, run=Run(method=method, seed=cell.seed))

    def _model(self, pipeline: Pipeline, cell: Cell) -> InverseModel:
        """The trained model of a cell; planners take the world model out of it."""
        kind: ModelKind = "pairwise" if cell.method.startswith(NEEDS_PAIRWISE) else "gc-idm"
        path = pipeline.controller(kind=kind, seed=cell.seed, changes=cell.controller)
        return _loaded(path, str(choose_device(self.device)))


@lru_cache(maxsize=KEPT_MODELS)
def _loaded(path: Path, device: str) -> InverseModel:
    return load_inverse_model(path, device=device)
