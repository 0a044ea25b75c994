"""Makes and evaluates what a run needs: the stages of its task, its pairs, its controller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path

from goalward import defaults
from goalward.bundle import bundled_pairs, controller_path
from goalward.control.checkpoint import TrainedIDM, load_trained_idm
from goalward.control.export import export_onnx
from goalward.core.machine import Provenance, choose_device
from goalward.data.splits import SplitConfig
from goalward.defaults import ExperimentPreset
from goalward.evaluation.baselines import measure_baselines
from goalward.evaluation.latency import Latency
from goalward.evaluation.pairs import Pairs, PairsConfig
from goalward.evaluation.results import ALL, EpisodeResult, pair_subsets
from goalward.evaluation.run import EvaluationConfig, compare_latencies, evaluate, prepare_pairs
from goalward.evaluation.simulators import SimulatorPools
from goalward.evaluation.specs import Context, ControllerSpec, resolve
from goalward.experiments.experiment import ONNX, RunSpec
from goalward.pipeline import Bar, Pipeline, silent_bar
from goalward.runtime.onnx import SUFFIX
from goalward.tasks import get_task

KEPT_MODELS = 4  # in memory


@dataclass(frozen=True, kw_only=True)
class RunResults:
    """The results of a run."""

    rows: Sequence[EpisodeResult]
    provenance: Sequence[Provenance]


@dataclass(frozen=True, kw_only=True)
class Runner:
    """Runs experiments of one preset.

    Args:
        preset: Size and length of everything, or `bundled`: no training.
        runs: Folder of all presets and tasks; stages that are complete there are used.
        pairs: Start and goal pairs of every run.
        device: Where to compute: cpu, cuda, mps or auto.
        workers: Simulator processes.
        bar: Shows the progress of a stage.
        pools: Simulators that the runs share (default: each run starts its own).
    """

    preset: ExperimentPreset
    runs: Path
    pairs: int
    device: str = "auto"
    workers: int = 1
    bar: Bar = silent_bar
    pools: SimulatorPools | None = None

    def pipeline(self, spec: RunSpec) -> Pipeline:
        """The stages of a run."""
        assert self.preset != "bundled", "nothing is trained for the bundled controllers"
        usual = Pipeline(
            task=get_task(spec.task),
            preset=self.preset,
            folder=self.runs / self.preset / spec.task,
            device=self.device,
            workers=self.workers,
            bar=self.bar,
            world_changes=spec.world_changes,
            curves=False,
        )
        if spec.demonstrator in (None, usual.usual_demonstrator):
            return usual
        folder = usual.folder.with_name(f"{spec.task}-{spec.demonstrator}")
        return replace(usual, folder=folder, demonstrator=spec.demonstrator)

    def canonical(self, spec: RunSpec) -> RunSpec:
        """The same run; the preset's own demonstrator is not named."""
        if self.preset == "bundled":
            return spec
        return replace(spec, demonstrator=self.pipeline(spec).demonstrator)

    def trained(self, spec: RunSpec) -> Path:
        """The trained model of a run: the folder of its training, or the bundled file."""
        if self.preset == "bundled":
            return controller_path(spec.task)
        return _trained(self, _training(spec))

    def controller_folder(self, spec: RunSpec) -> Path:
        """Where the trained model of a run is, or will be."""
        return self.pipeline(spec).controller_folder(
            kind=spec.kind, seed=spec.seed, changes=spec.controller_changes
        )

    def model(self, spec: RunSpec) -> TrainedIDM:
        """The loaded model of a run; planners take the world model out of it."""
        return _loaded(self.trained(spec), str(choose_device(self.device)))

    def pairs_config(self, spec: RunSpec) -> PairsConfig:
        """How the pairs of a run are drawn."""
        return PairsConfig(
            task=spec.task,
            protocol=spec.protocol,
            count=self.pairs,
            goal_offset=spec.goal_offset,
            split=spec.split,
            split_config=_split(self, _training(spec)),
        )

    def pairs_of(self, spec: RunSpec) -> Pairs:
        """The start and goal pairs of a run."""
        if self.preset == "bundled":
            return bundled_pairs(spec.task, self.pairs, spec.protocol)
        episodes = self.pipeline(spec).episodes()
        return prepare_pairs(self.folder(spec), self.pairs_config(spec), episodes)

    def folder(self, spec: RunSpec) -> Path:
        """The folder of the pairs of a run and of its results."""
        if self.preset == "bundled":
            return self.runs / "bundled" / spec.task / f"{spec.protocol}-{self.pairs}"
        return self.pipeline(spec).pairs_folder(self.pairs_config(spec))

    def subset(self, spec: RunSpec, name: str) -> set[int]:
        """Numbers of the pairs of a subset: all, a task's own, or `POLICY fails`."""
        pairs = self.pairs_of(spec)
        known = pair_subsets(get_task(spec.task), pairs.pairs)
        if name in known or not name.endswith(" fails"):
            return known.get(name, set())
        policy = name.removesuffix(" fails")
        found = measure_baselines(pairs, [policy], budget=spec.budget, workers=self.workers)
        return known[ALL] - {row.pair for row in found.rows if row.success}

    def controller(self, spec: RunSpec) -> ControllerSpec:
        """The controller of a run."""
        model, text = self.model(spec), spec.controller
        known = Context(task=get_task(spec.task), device=choose_device(self.device), model=model)
        if text == ONNX:
            path = self.folder(spec) / f"seed{spec.seed}{SUFFIX}"
            path.parent.mkdir(parents=True, exist_ok=True)
            export_onnx(model, path)
            return resolve(path, replace(known, model=None))
        if spec.kind == "pairwise":
            text += f"{',' if ':' in text else ':'}model={self.trained(spec)}"
        return replace(resolve(text, known), seed=spec.seed)

    def config(self, spec: RunSpec) -> EvaluationConfig:
        """What the controllers of a run and of others on its pairs share."""
        return EvaluationConfig(
            pairs=self.pairs_of(spec),
            budget=spec.budget,
            num_envs=min(defaults.NUM_ENVS, self.pairs),
            observer=self.model(spec).world,
        )

    def evaluate(self, spec: RunSpec) -> RunResults:
        """All results of a run; what is missing is trained and run."""
        config, controller = self.config(spec), self.controller(spec)
        with self.bar("evaluate", self.pairs, "episodes") as update:
            found = evaluate(
                self.folder(spec),
                config.pairs,
                [controller],
                observer=config.observer,
                budget=config.budget,
                workers=self.workers,
                pools=self.pools,
                timed=False,
                on_progress=update,
            )
        return RunResults(rows=found.rows, provenance=found.provenance[controller.name])

    def latencies(self, specs: Sequence[RunSpec]) -> list[Latency]:
        """Latencies of runs on the same pairs, measured in one session."""
        controllers = [self.controller(spec) for spec in specs]
        found = compare_latencies(self.folder(specs[0]), self.config(specs[0]), controllers)
        return [found[controller.name] for controller in controllers]

    @contextmanager
    def simulators(self, pairs: Pairs, number: int) -> Iterator[SimulatorPools]:
        """Simulators of the pairs' task."""
        own = SimulatorPools(self.workers) if self.pools is None else nullcontext(self.pools)
        with own as pools:
            yield pools.use(*pairs.setting, number)


# Stages check what they find; that is done once a process, not for each of hundreds of runs.


def _training(spec: RunSpec) -> RunSpec:
    """The run as far as its training depends on it."""
    plain = RunSpec(task=spec.task, controller="waypoints" if spec.kind == "pairwise" else "")
    names = ("demonstrator", "world_changes", "controller_changes", "seed")
    return replace(plain, **{name: getattr(spec, name) for name in names})


@cache
def _trained(runner: Runner, spec: RunSpec) -> Path:
    return runner.pipeline(spec).controller(
        kind=spec.kind, seed=spec.seed, changes=spec.controller_changes
    )


@cache
def _split(runner: Runner, spec: RunSpec) -> SplitConfig:
    return runner.pipeline(spec).world_config().split


@lru_cache(maxsize=KEPT_MODELS)
def _loaded(path: Path, device: str) -> TrainedIDM:
    return load_trained_idm(path, device=device)
