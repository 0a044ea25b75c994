"""From the names and paths of the command line to methods that can be run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from goalward.bundle import NAME as BUNDLED
from goalward.bundle import bundled_pairs, controller_path
from goalward.control.checkpoint import TrainedIDM, load_trained_idm
from goalward.core.config import differences, to_json
from goalward.core.machine import choose_device
from goalward.data.splits import SplitConfig
from goalward.evaluation.cells import ControllerSpec, Observer
from goalward.evaluation.pairs import Pairs, PairsConfig, save_pairs
from goalward.evaluation.run import PAIRS, Run, prepare_pairs
from goalward.evaluation.specs import Models, make_method, names, onnx_method, require_method
from goalward.runtime.onnx import SUFFIX as ONNX
from goalward.tasks.task import Task
from goalward.world.frozen import FrameEncoder


def evaluation_runs(
    task: Task,
    specs: Sequence[str],
    *,
    models: Sequence[Path],
    pairwise: Path | None,
    seeds: Sequence[int],
    device: str,
    split: SplitConfig | None,
) -> tuple[list[Run], Observer | None]:
    """Every method with every seed, and what measures latent distances.

    Args:
        task: What is to be done.
        specs: Methods: names with settings, paths of controllers, or `bundled`.
        models: Controllers for the methods that are names; several have a seed each.
        pairwise: A pairwise model, for interpolation.
        seeds: Of what the methods draw.
        device: Where to compute.
        split: Refuse models that may have been trained on what it holds out (None: do not care).

    Raises:
        ValueError: a method is unknown, or a model is missing, another task's, or of another split.
    """
    require_methods(specs, task)
    if not seeds:
        raise ValueError("there is no seed to run methods with; give some with --seeds")
    chosen = choose_device(device)
    read = partial(_read, task=task, split=split, device=chosen)
    files = {spec: _controller_and_settings(spec, task) for spec in specs}
    named = {spec: read(path) for spec, (path, _) in files.items() if path is not None}
    loaded = [_trained(path, read) for path in models]
    loaded = loaded or [found for found in named.values() if isinstance(found, TrainedIDM)][:1]
    pairwise_model = None if pairwise is None else _trained(pairwise, read)
    runs: list[Run] = []
    for spec in specs:
        own = named.get(spec)
        path, settings = files[spec]
        if isinstance(own, ControllerSpec):
            if settings:
                raise ValueError(
                    f"{path}: an exported controller keeps the settings that it was exported with; "
                    f"leave out :{settings}, or give the controller that it was made from"
                )
            runs.append(Run(method=own, seed=seeds[0]))
            continue
        direct = f"gc-idm:{settings}" if settings else "gc-idm"
        name = spec if own is None else direct
        for seed, model in _repeats(name, loaded if own is None else [own], seeds):
            both = Models(controller=model, pairwise=pairwise_model)
            method = make_method(name, both, action_dim=task.action_dim)
            if path is not None and spec.partition(":")[0] != BUNDLED:
                method = replace(method, name=f"{name}@{_label(path)}")
            runs.append(Run(method=method, seed=seed))
    for run in runs:
        run.method.make(run.seed)  # unusable settings are told before anything is run
    if not loaded:
        return runs, None
    first = loaded[0]
    return runs, Observer(world_id=first.metadata.world_id, encode=FrameEncoder(first.world))


def require_methods(specs: Sequence[str], task: Task) -> None:
    """Refuse methods that there are not, before hours are spent on what comes before them.

    Raises:
        ValueError: one is neither a method nor a controller's path, or there is none at all.
    """
    if not specs:
        raise ValueError("there is no method to run; name some with --controller")
    for spec in specs:
        if _controller_and_settings(spec, task)[0] is None:
            require_method(spec)


def _controller_and_settings(spec: str, task: Task) -> tuple[Path | None, str]:
    """Where the controller is that a method stands for (None if it is a name), and its settings."""
    if spec.partition(":")[0] in names():
        return None, ""
    if spec != BUNDLED and Path(spec).exists():
        return Path(spec), ""
    name, _, settings = spec.rpartition(":") if ":" in spec else (spec, "", "")
    if name == BUNDLED:
        return controller_path(task.name), settings
    return (Path(name) if Path(name).exists() else None), settings


def _read(
    path: Path, *, task: Task, split: SplitConfig | None, device: torch.device
) -> TrainedIDM | ControllerSpec:
    """A trained model, or an exported one as a method; both must fit the task and the split."""
    if path.suffix == ONNX:
        method, metadata = onnx_method(path)
        require_fitting(path, metadata.task, metadata.action_dim, metadata.split, task, split)
        return replace(method, name=f"{method.name}@{_label(path)}")
    model = load_trained_idm(path, device=device)
    own = model.metadata
    require_fitting(path, own.task, own.network.action_dim, own.split, task, split)
    return model


def _trained(path: Path, read: Callable[[Path], TrainedIDM | ControllerSpec]) -> TrainedIDM:
    found = read(path)
    if isinstance(found, ControllerSpec):
        raise ValueError(f"{path}: an exported controller; give the one that it was made from")
    return found


def _label(path: Path) -> str:
    """A short name for a controller's file or folder, to tell several apart."""
    return path.parent.name if path.stem in ("best", "last") else path.stem


def pairs_to_compare_on(folder: Path, config: PairsConfig, episodes: Path | None) -> Pairs:
    """The folder's pairs; if it has none yet, drawn from the episodes, or those of the package.

    Raises:
        ValueError: the folder holds other pairs, or the package's pairs are not those asked for.
    """
    if episodes is None and not (folder / PAIRS).exists():
        found = bundled_pairs(config.task, config.count, config.protocol)
        if found.metadata.config != config:
            changes = differences(to_json(found.metadata.config), to_json(config))
            raise ValueError(
                f"the pairs that come with goalward are others ({changes}); "
                "give --episodes to draw some"
            )
        folder.mkdir(parents=True, exist_ok=True)
        save_pairs(folder / PAIRS, found)
    return prepare_pairs(folder, config, episodes)


def require_fitting(
    path: Path,
    trained_on: str | None,
    action_dim: int,
    held_out: SplitConfig,
    task: Task,
    split: SplitConfig | None,
) -> None:
    """Refuse a model of another task, of other actions, or one that may have seen the pairs."""
    if trained_on not in (None, task.name) or action_dim != task.action_dim:
        raise ValueError(
            f"{path}: trained on task {trained_on} with actions of {action_dim} numbers, "
            f"not on {task.name} with {task.action_dim}"
        )
    if split is not None and held_out != split:
        raise ValueError(
            f"{path}: its training held out other episodes ({held_out}) than the pairs come from "
            f"({split}); use --in-distribution, which says so in the result"
        )


def _repeats(
    name: str, models: Sequence[TrainedIDM], seeds: Sequence[int]
) -> list[tuple[int, TrainedIDM | None]]:
    """The seeds to run a method with, each with its model; what draws nothing has one a model."""
    found = _seeded(models, seeds)
    most = {"gc-idm": max(1, len(models)), "zero": 1}.get(name.partition(":")[0], len(found))
    return found[:most]


def _seeded(
    models: Sequence[TrainedIDM], seeds: Sequence[int]
) -> list[tuple[int, TrainedIDM | None]]:
    """Each seed with its model: several models have a seed each, a single one serves all."""
    if len(models) > 1:
        if len(seeds) not in (1, len(models)):
            raise ValueError(f"{len(models)} models need as many seeds, got {len(seeds)}")
        numbers = seeds if len(seeds) == len(models) else range(len(models))
        return list(zip(numbers, models, strict=True))
    return [(seed, models[0] if models else None) for seed in seeds]
