"""From the names and paths of the command line to methods that can be run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from goalward.bundle import NAME as BUNDLED
from goalward.bundle import bundled_pairs, controller_path
from goalward.config import differences, to_json
from goalward.controllers.file import InverseModel, load_inverse_model
from goalward.data.splits import SplitConfig
from goalward.devices import choose_device
from goalward.evaluate.cells import Method, Observer
from goalward.evaluate.evaluation import PAIRS, Run
from goalward.evaluate.evaluation import prepare_pairs as pairs_of_folder
from goalward.evaluate.frozen_pairs import FrozenPairs, PairsConfig, save_pairs
from goalward.evaluate.methods import Models, make_method, names
from goalward.runtime.method import SUFFIX as ONNX
from goalward.runtime.method import onnx_method
from goalward.runtime.onnx_controller import OnnxController
from goalward.tasks.spec import Task
from goalward.world.frame_encoder import FrameEncoder


def evaluation_runs(
    task: Task,
    specs: Sequence[str],
    *,
    models: Sequence[Path],
    pairwise: Path | None,
    seeds: Sequence[int],
    device: str,
) -> tuple[list[Run], Observer | None]:
    """Every method with every seed, and what measures latent distances.

    Raises:
        ValueError: a method is unknown, or a model is missing or another task's.
    """
    chosen = choose_device(device)
    named = {str(path): load_inverse_model(path, device=chosen) for path in model_paths(specs)}
    loaded = [load_inverse_model(path, device=chosen) for path in models]
    loaded = loaded or list(named.values())[:1]
    pair_model = None if pairwise is None else load_inverse_model(pairwise, device=chosen)
    runs: list[Run] = []
    several = len(named_paths(specs)) > 1
    for spec in specs:
        if Path(spec).suffix == ONNX:
            found_methods = [(seed, _exported(spec, task)) for seed in seeds]
        else:
            own, name = (loaded, spec) if spec not in named else ([named[spec]], "gc-idm")
            found_methods = [
                (seed, _of_model(name, model, pair_model, task))
                for seed, model in _seeded(own, seeds)
            ]
        for seed, method in found_methods:
            if several and Path(spec) in named_paths(specs):
                method = replace(method, name=f"{method.name}@{_label(Path(spec))}")
            runs.append(Run(method=method, seed=seed))
    if not loaded:
        return runs, None
    first = loaded[0]
    return runs, Observer(world_id=first.card.world_id, encode=FrameEncoder(first.world))


def _of_model(
    name: str, model: InverseModel | None, pairwise: InverseModel | None, task: Task
) -> Method:
    for known in filter(None, (model, pairwise)):
        require_task(known.card.task, known.card.network.action_dim, task)
    return make_method(
        name, Models(controller=model, pairwise=pairwise), action_dim=task.action_dim
    )


def _exported(spec: str, task: Task) -> Method:
    card = OnnxController(spec).card
    require_task(card.task, card.action_dim, task)
    return onnx_method(Path(spec))


def _label(path: Path) -> str:
    """A short name for a controller's file or folder, to tell several apart."""
    return path.parent.name if path.stem in ("best", "last") else path.stem


def model_paths(specs: Sequence[str]) -> list[Path]:
    """As `named_paths`, but without exported controllers."""
    return [path for path in named_paths(specs) if path.suffix != ONNX]


def named_paths(specs: Sequence[str]) -> list[Path]:
    """Those of the methods that are files or folders."""
    return [Path(s) for s in specs if s.partition(":")[0] not in names() and Path(s).exists()]


def with_bundled(task: Task, specs: Sequence[str]) -> list[str]:
    """The methods, with its path in place of the bundled controller's name."""
    return [str(controller_path(task.name)) if spec == BUNDLED else spec for spec in specs]


def prepare_pairs(folder: Path, config: PairsConfig, episodes: Path | None) -> FrozenPairs:
    """The folder's pairs; if it has none yet, drawn from the episodes, or those of the package.

    Raises:
        ValueError: the folder holds other pairs, or the package's pairs are not those asked for.
    """
    if episodes is None and not (folder / PAIRS).exists():
        found = bundled_pairs(config.task, config.count)
        if found.card.config != config:
            changes = differences(to_json(found.card.config), to_json(config))
            raise ValueError(
                f"the pairs that come with goalward are others ({changes}); "
                "give --episodes to draw some"
            )
        folder.mkdir(parents=True, exist_ok=True)
        save_pairs(folder / PAIRS, found)
    return pairs_of_folder(folder, config, episodes)


def require_split(models: Sequence[Path], split: SplitConfig) -> None:
    """Refuse pairs of episodes that a model may have been trained on.

    Raises:
        ValueError: a model's training held out other episodes.
    """
    for path in models:
        exported = path.suffix == ONNX
        found = (OnnxController(path) if exported else load_inverse_model(path)).card.split
        if found != split:
            raise ValueError(
                f"{path}: its training held out other episodes ({found}) than the pairs come from "
                f"({split}); use --in-distribution, which says so in the result"
            )


def require_task(trained_on: str | None, action_dim: int, task: Task) -> None:
    """Refuse a model of another task, or of other actions."""
    if trained_on not in (None, task.name) or action_dim != task.action_dim:
        raise ValueError(
            f"the model was trained on task {trained_on} with actions of {action_dim} numbers, "
            f"not on {task.name} with {task.action_dim}"
        )


def _seeded(
    models: Sequence[InverseModel], seeds: Sequence[int]
) -> list[tuple[int, InverseModel | None]]:
    """Each seed with its model: several models have a seed each, a single one serves all."""
    if len(models) > 1:
        if len(seeds) not in (1, len(models)):
            raise ValueError(f"{len(models)} models need as many seeds, got {len(seeds)}")
        numbers = seeds if len(seeds) == len(models) else range(len(models))
        return list(zip(numbers, models, strict=True))
    return [(seed, models[0] if models else None) for seed in seeds]
