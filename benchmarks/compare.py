"""Compare all methods on the same pairs, and write `results/compare/`, for docs/RESULTS.md.

Makes what is missing: demonstrations, world model, three controllers a task; or takes the weights
and pairs that come with the package (`--preset bundled --seeds 42`), which needs no training. Cells
that are done are found again under the run folder, so that several sittings can share the work.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
import tyro

from benchmarks.setting import RESULTS, RUNS, bench_pipeline
from goalward import defaults
from goalward.bundle import NAME, controller_path
from goalward.commands.evaluation_setup import evaluation_runs, pairs_to_compare_on
from goalward.control.checkpoint import load_trained_idm, model_id
from goalward.control.export import export_onnx
from goalward.core.artifacts import load_manifest
from goalward.core.config import read_config, to_json, write_json
from goalward.core.console import progress, show_line
from goalward.core.machine import git_revision, machine, usable_cpus
from goalward.defaults import PresetName
from goalward.evaluation.baselines import REPLAY, solved_pairs
from goalward.evaluation.cells import Observer
from goalward.evaluation.pairs import Pairs, PairsConfig
from goalward.evaluation.results import ALL, ResultsFile, pair_subsets
from goalward.evaluation.run import Evaluation, Run, evaluate, prepare_pairs
from goalward.evaluation.specs import onnx_method
from goalward.pipeline import Pipeline
from goalward.runtime.onnx import SUFFIX, OnnxController
from goalward.tasks import TASKS, get_task
from goalward.tasks.task import Task
from goalward.world.train import REPORT, WorldReport


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to compare."""

    preset: PresetName | Literal["bundled"] = "cpu"
    """The preset to train with, or `bundled`: the weights that come with the package."""
    tasks: tuple[str, ...] = TASKS.names()
    """The tasks, one after the other."""
    protocols: tuple[str, ...] = ("paper",)
    """When an episode counts as a success."""
    pairs: int = defaults.PAIRS
    """Pairs of test episodes; the first fifty of them are the benchmark's smaller table."""
    controllers: tuple[str, ...] = ("gc-idm", "gc-idm:mode=budget", "hybrid")
    """Methods that are run with every controller."""
    planners: tuple[str, ...] = ("cem", "gradient", "icem", "mppi")
    """Methods that plan with the world model alone."""
    blind: tuple[str, ...] = ("random", "zero")
    """Methods that see nothing."""
    seeds: tuple[int, ...] = (42, 123, 456)
    """Seeds of the controllers, as in the paper."""
    planner_seeds: tuple[int, ...] = (42,)
    """Seeds of the planners, which take most of the time."""
    runs: Path = RUNS
    """Where datasets, weights and cells are."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Controllers of a task, and pairs of episodes that they have not seen."""

    task: Task
    controllers: Sequence[Path]
    pairs: Pairs
    folder: Path  # where cells are kept
    seconds: dict[str, float]  # that each stage took


def trained(task: str, preset: PresetName, wanted: PairsConfig, arguments: Arguments) -> Subject:
    """What a preset gives, made if it is missing."""
    pipeline = bench_pipeline(task, preset, arguments.runs)
    controllers = [pipeline.controller(seed=seed) for seed in arguments.seeds]
    wanted = replace(wanted, split=pipeline.world_config().split)
    folder = pipeline.pairs_folder(wanted)
    return Subject(
        task=pipeline.task,
        controllers=controllers,
        pairs=prepare_pairs(folder, wanted, pipeline.episodes()),
        folder=folder,
        seconds=seconds(pipeline, controllers),
    )


def bundled(task: str, wanted: PairsConfig, arguments: Arguments) -> Subject:
    """What comes with the package."""
    folder = arguments.runs / NAME / task / f"{wanted.protocol}-{wanted.count}"
    return Subject(
        task=get_task(task),
        controllers=[controller_path(task)],
        pairs=pairs_to_compare_on(folder, wanted, None),
        folder=folder,
        seconds={},
    )


def compare(task: str, protocol: str, arguments: Arguments) -> Path:
    """Run what is missing of one task under one protocol; returns the folder of the results."""
    wanted = PairsConfig(task=task, protocol=protocol, count=arguments.pairs)
    if arguments.preset == "bundled":
        subject = bundled(task, wanted, arguments)
    else:
        subject = trained(task, arguments.preset, wanted, arguments)
    runs, observer = all_runs(subject, arguments)
    total = len(runs) * len(subject.pairs.attempts)
    with progress(f"evaluate {task}", total, unit="episodes", quiet=False) as update:
        found = evaluate(
            subject.folder,
            subject.pairs,
            runs,
            observer=observer,
            workers=usable_cpus(),
            on_progress=update,
        )
    out = RESULTS / "compare" / arguments.preset / task / protocol
    write(out, found, {"arguments": _plain(arguments), "seconds": subject.seconds})
    return out


def all_runs(subject: Subject, arguments: Arguments) -> tuple[list[Run], Observer | None]:
    """Every method with its seeds, the quick ones first."""
    controllers = subject.controllers

    def runs(
        specs: Sequence[str], models: Sequence[Path], seeds: Sequence[int]
    ) -> tuple[list[Run], Observer | None]:
        return evaluation_runs(
            subject.task,
            specs,
            models=models,
            pairwise=None,
            seeds=seeds,
            device="auto",
            split=subject.pairs.metadata.config.split,
        )

    ours, observer = runs(arguments.controllers, controllers, arguments.seeds)
    exported, _ = onnx_method(export(controllers[0], subject.folder))
    blind, _ = runs(arguments.blind, [], arguments.seeds)
    planners, _ = runs(arguments.planners, controllers[:1], arguments.planner_seeds)
    by_onnx = Run(method=exported, seed=arguments.seeds[0])
    return [*ours, by_onnx, *blind, *planners], observer


def export(controller: Path, folder: Path) -> Path:
    """The controller as an ONNX file in a folder."""
    path, model = folder / f"{controller.stem}{SUFFIX}", load_trained_idm(controller)
    if not path.exists() or OnnxController(path).metadata.model_id != model_id(model):
        export_onnx(model, path)
    return path


def seconds(pipeline: Pipeline, controllers: Sequence[Path]) -> dict[str, float]:
    """What each stage took; the controllers' mean."""
    stages = ("episodes", "world", "latents")
    found = {name: load_manifest(pipeline.folder / name).seconds for name in stages}
    # A manifest does not know of a sitting that was killed; a training's own report does.
    report = read_config(WorldReport, pipeline.folder / "world" / REPORT)
    found["world"] = max(found["world"], report.seconds)
    each = [load_manifest(path).seconds for path in controllers]
    return {**found, "controller": sum(each) / len(each)}


def _plain(arguments: Arguments) -> dict[str, Any]:
    """The arguments that the result depends on."""
    return {name: value for name, value in asdict(arguments).items() if name != "runs"}


def write(folder: Path, found: Evaluation, more: dict[str, Any]) -> None:
    """Keep every row and what belongs to it, in place of an earlier measurement."""
    config = found.pairs.metadata.config
    task = get_task(config.task)
    subsets = pair_subsets(task, found.pairs.attempts)
    floors = {
        policy: solved_pairs(found.pairs, policy, workers=usable_cpus())
        for policy in (*task.scripted_baselines, REPLAY)
    }
    for policy in task.scripted_baselines:
        subsets[f"{policy} fails"] = subsets[ALL] - floors[policy]
    revision = git_revision()  # before anything changes
    new = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    for name, rows in found.rows.items():
        for seed in sorted({row.seed for row in rows}):
            ResultsFile(rows_path(new, name, seed)).append(
                [row for row in rows if row.seed == seed]
            )
    facts = {
        **more,
        "pairs": found.pairs.id,
        "config": to_json(config),
        "episodes": [attempt.episode for attempt in found.pairs.attempts],
        "subsets": {name: sorted(numbers) for name, numbers in subsets.items()},
        "solved_by": {name: sorted(numbers) for name, numbers in floors.items()},
        "latency": {name: to_json(value) for name, value in found.latency.items()},
        "machine": machine(),
        "torch": torch.__version__,
        "git_revision": revision,
    }
    write_json(new / "about.json", facts)
    shutil.rmtree(folder, ignore_errors=True)
    new.rename(folder)


def rows_path(folder: Path, method: str, seed: int) -> Path:
    """Where the rows of a method are."""
    plain = method.replace(":", "-").replace("=", "-")
    return folder / f"{plain}-seed{seed}.jsonl"


if __name__ == "__main__":
    given = tyro.cli(Arguments)
    for task_name in given.tasks:
        for protocol_name in given.protocols:
            show_line(f"wrote {compare(task_name, protocol_name, given)}")
