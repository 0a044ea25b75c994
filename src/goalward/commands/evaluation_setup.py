"""From the names and paths of the command line to methods that can be run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from goalward.controllers.file import InverseModel, load_inverse_model
from goalward.data.splits import SplitConfig
from goalward.devices import choose_device
from goalward.evaluate.cells import Observer
from goalward.evaluate.evaluation import Run
from goalward.evaluate.methods import Models, make_method, names
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
    loaded = [load_inverse_model(path, device=chosen) for path in models]
    pair_model = None if pairwise is None else load_inverse_model(pairwise, device=chosen)
    runs: list[Run] = []
    for spec in specs:
        if spec.partition(":")[0] not in names() and Path(spec).exists():
            own = load_inverse_model(spec, device=chosen)
            loaded_for_spec = [own]
            loaded = loaded or [own]
            spec = "gc-idm"
        else:
            loaded_for_spec = loaded
        for seed, model in _seeded(loaded_for_spec, seeds):
            for known in filter(None, (model, pair_model)):
                require_task(known, task)
            found = Models(controller=model, pairwise=pair_model)
            method = make_method(spec, found, action_dim=task.action_dim)
            runs.append(Run(method=method, seed=seed))
    if not loaded:
        return runs, None
    first = loaded[0]
    return runs, Observer(world_id=first.card.world_id, encode=FrameEncoder(first.world))


def require_split(models: Sequence[Path], split: SplitConfig) -> None:
    """Refuse pairs of episodes that a model may have been trained on.

    Raises:
        ValueError: a model's training held out other episodes.
    """
    for path in models:
        found = load_inverse_model(path).card.split
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
