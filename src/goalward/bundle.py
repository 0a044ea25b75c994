"""What comes with the package: for each task a controller, and pairs to evaluate it on.

Files lie in `goalward/bundled/`, named by their task. `benchmarks/bundle.py` writes them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from goalward.evaluate.frozen_pairs import FrozenPairs, load_pairs

FOLDER = Path(__file__).parent / "bundled"
NAME = "bundled"  # what stands for a bundled controller on the command line


def controller_path(task: str) -> Path:
    """The file of a task's controller.

    Raises:
        ValueError: there is none.
    """
    return _existing(f"{task}.safetensors", task)


def bundled_pairs(task: str, count: int) -> FrozenPairs:
    """The first so many of a task's pairs.

    Raises:
        ValueError: there are none, or fewer.
    """
    pairs = load_pairs(_existing(f"{task}.npz", task))
    most = len(pairs.attempts)
    if not 1 <= count <= most:
        raise ValueError(
            f"pairs must be 1 to {most}, as many as come with goalward, got {count}; "
            "give an episode file to draw more"
        )
    card = replace(pairs.card, config=replace(pairs.card.config, count=count))
    return FrozenPairs(card=card, attempts=pairs.attempts[:count])


def _existing(name: str, task: str) -> Path:
    path = FOLDER / name
    if not path.is_file():
        known = sorted(found.stem for found in FOLDER.glob(f"*{path.suffix}"))
        raise ValueError(
            f"nothing of task {task} comes with goalward, only of: {', '.join(known) or 'none'}; "
            f"train it with `goalward run {task}`, or give the episodes to draw pairs from"
        )
    return path
