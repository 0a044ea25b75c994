"""What comes with the package: for each task a controller, and pairs to evaluate it on.

Files are in `goalward/bundled/`, named by their task. `benchmarks/bundle.py` writes them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from goalward.evaluation.pairs import PAIRS, Pairs, load_pairs
from goalward.tasks import get_task

FOLDER = Path(__file__).parent / "bundled"


def controller_path(task: str) -> Path:
    """The file of a task's controller.

    Raises:
        ValueError: there is none.
    """
    return _existing(f"{task}.safetensors", task)


def bundled_pairs(task: str, count: int, protocol: str | None = None) -> Pairs:
    """The first pairs of a task that a protocol (default: the task's first) admits.

    All were drawn for the first protocol; others leave out some of them, such as solved starts.

    Raises:
        ValueError: there are none, or fewer.
    """
    pairs, protocols = load_pairs(_existing(f"{task}.{PAIRS}", task)), get_task(task).protocols
    name = protocol or next(iter(protocols))
    admitted = [p for p in pairs.pairs if bool(protocols[name].admits(p.start, p.goal))]
    if not 1 <= count <= len(admitted):
        raise ValueError(
            f"pairs must be 1 to {len(admitted)}, the number that come with goalward for protocol "
            f"{name}, got {count}; give an episode file to draw more"
        )
    metadata = replace(
        pairs.metadata,
        config=replace(pairs.metadata.config, protocol=name, count=count),
        render=replace(pairs.metadata.render, physics=protocols[name].physics),
    )
    chosen = tuple(replace(pair, number=k) for k, pair in enumerate(admitted[:count]))
    return Pairs(metadata=metadata, pairs=chosen)


def _existing(name: str, task: str) -> Path:
    path = FOLDER / name
    if not path.is_file():
        get_task(task)  # an unknown one is refused with the nearest known
        known = sorted({found.name.partition(".")[0] for found in FOLDER.glob("*.safetensors")})
        raise ValueError(
            f"nothing of task {task} comes with goalward, only of: {', '.join(known) or 'none'}; "
            f"train it with `goalward run {task}`, or give the episodes to draw pairs from"
        )
    return path
