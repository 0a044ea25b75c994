"""From the names and paths of the command line to methods that can be run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from goalward.bundle import NAME as BUNDLED
from goalward.bundle import bundled_pairs, controller_path
from goalward.config import differences, to_json
from goalward.controllers.file import InverseModel, load_inverse_model
from goalward.data.splits import SplitConfig
from goalward.devices import choose_device
from goalward.evaluate.cells import Observer
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
    for spec in specs:
        if Path(spec) in exported_paths(specs):
            runs += [Run(method=onnx_method(Path(spec)), seed=seed) for seed in seeds]
            continue
        own, name = (loaded, spec) if spec not in named else ([named[spec]], "gc-idm")
        for seed, model in _seeded(own, seeds):
            for known in filter(None, (model, pair_model)):
                require_task(known, task)
            found = Models(controller=model, pairwise=pair_model)
            method = make_method(name, found, action_dim=task.action_dim)
            runs.append(Run(method=method, seed=seed))
    if not loaded:
        return runs, None
    first = loaded[0]
    return runs, Observer(world_id=first.card.world_id, encode=FrameEncoder(first.world))


def model_paths(specs: Sequence[str]) -> list[Path]:
    """Those of the methods that are controllers' files or folders."""
    return [path for path in named_paths(specs) if path.suffix != ONNX]


def exported_paths(specs: Sequence[str]) -> list[Path]:
    """Those of the methods that are exported controllers."""
    return [path for path in named_paths(specs) if path.suffix == ONNX]


def named_paths(specs: Sequence[str]) -> list[Path]:
    """Both."""
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


def require_task(model: InverseModel, task: Task) -> None:
    """Refuse a model of another task, or of other actions."""
    card = model.card
    if card.task not in (None, task.name) or card.network.action_dim != task.action_dim:
        raise ValueError(
            f"the model was trained on task {card.task} with actions of "
            f"{card.network.action_dim} numbers, not on {task.name} with {task.action_dim}"
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
