"""What comes with the package: for each task a controller, and pairs to evaluate it on.

Files lie in `goalward/bundled/`, named by their task. `benchmarks/bundle.py` writes them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from goalward.evaluation.pairs import Pairs, load_pairs
from goalward.tasks import get_task

FOLDER = Path(__file__).parent / "bundled"
NAME = "bundled"  # what stands for a bundled controller on the command line


def controller_path(task: str) -> Path:
    """The file of a task's controller.

    Raises:
        ValueError: there is none.
    """
    return _existing(f"{task}.safetensors", task)


def bundled_pairs(task: str, count: int, protocol: str = "paper") -> Pairs:
    """The first so many of a task's pairs that a protocol admits.

    All were drawn for the protocol `paper`; others leave out some of them, such as solved starts.

    Raises:
        ValueError: there are none, or fewer.
    """
    pairs = load_pairs(_existing(f"{task}.npz", task))
    rule = get_task(task).protocols[protocol]
    admitted = [a for a in pairs.attempts if bool(rule.admits(a.start, a.goal))]
    if not 1 <= count <= len(admitted):
        raise ValueError(
            f"pairs must be 1 to {len(admitted)}, as many as come with goalward for protocol "
            f"{protocol}, got {count}; give an episode file to draw more"
        )
    metadata = replace(
        pairs.metadata,
        config=replace(pairs.metadata.config, protocol=protocol, count=count),
        scene=replace(pairs.metadata.scene, physics=rule.physics),
    )
    chosen = (replace(attempt, pair=k) for k, attempt in enumerate(admitted[:count]))
    return Pairs(metadata=metadata, attempts=tuple(chosen))


def _existing(name: str, task: str) -> Path:
    path = FOLDER / name
    if not path.is_file():
        known = sorted(found.stem for found in FOLDER.glob(f"*{path.suffix}"))
        raise ValueError(
            f"nothing of task {task} comes with goalward, only of: {', '.join(known) or 'none'}; "
            f"train it with `goalward run {task}`, or give the episodes to draw pairs from"
        )
    return path
