"""Training curves: JSON lines in the training's folder and, if wanted, where people watch them.

TensorBoard, Weights & Biases and Trackio are optional packages; each is imported when it is used.
"""

from __future__ import annotations

import importlib
import json
import netrc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from goalward.core.config import to_json
from goalward.core.files import atomic_write

if TYPE_CHECKING:
    from goalward.core.artifacts import Stage

Row = dict[str, float]  # "step", "seconds" since the start, and losses or validation figures
LogTarget = Literal["tensorboard", "wandb", "trackio"]
SendRow = Callable[[Row], None]

FILE = "curves.jsonl"
PROJECT = "goalward"
WANDB_HOST = "api.wandb.ai"


class Curves:
    """The rows of a training: in memory, in the file, and sent to a program that shows them.

    Args:
        folder: Where the file is; it is written again from `rows`.
        rows: Rows of earlier sessions; new rows are added.
        send: Receives each new row, too.
    """

    def __init__(self, folder: Path, rows: list[Row], send: SendRow | None = None) -> None:
        self._path, self._rows, self._send = folder / FILE, rows, send
        with atomic_write(self._path) as temporary:
            temporary.write_text("".join(map(_line, rows)))

    def add(self, row: Row) -> None:
        """Add a row; it is in the file when this returns."""
        self._rows.append(row)
        with self._path.open("a") as file:
            file.write(_line(row))
        if self._send is not None:
            self._send(row)


def read_curves(folder: Path) -> list[Row]:
    """All rows of a completed training."""
    return [json.loads(line) for line in (folder / FILE).read_text().splitlines()]


def require_log_package(target: LogTarget | None) -> None:
    """Refuse a target whose package is missing, before work begins."""
    if target is not None:
        _import(target)


@contextmanager
def log_to(target: LogTarget | None, stage: Stage, *, first_step: int) -> Iterator[SendRow | None]:
    """Open a run that shows curves while they grow; yields None where there is no target.

    Args:
        target: Which program. TensorBoard's events go into the stage's folder `tensorboard`; the
            other programs have their own folders.
        stage: The training. Its id is the run's, so that a resumed training continues its curves.
        first_step: The first step of this session.
    """
    if target is None:
        yield None
        return
    module = _import(target)
    if target == "tensorboard":
        events = str(stage.partial / "tensorboard")
        writer = module.SummaryWriter(events, purge_step=first_step)

        def log(values: Row, step: int) -> None:
            for key, value in values.items():
                writer.add_scalar(key, value, step)

        close = writer.close
    else:
        name, config = f"{stage.folder} {stage.id[:8]}", to_json(stage.config)
        more = {"id": stage.id, "mode": _wandb_mode()} if target == "wandb" else {}
        module.init(project=PROJECT, name=name, config=config, resume="allow", **more)
        log, close = module.log, module.finish
    try:
        yield lambda row: log({k: v for k, v in row.items() if k != "step"}, step=int(row["step"]))
    finally:
        close()


def _line(row: Row) -> str:
    return json.dumps(row, allow_nan=False) + "\n"


def _import(target: LogTarget) -> Any:
    name = "torch.utils.tensorboard" if target == "tensorboard" else target
    try:
        return importlib.import_module(name)
    except ImportError as error:
        hint = f"pip install {target}"
        raise ValueError(f"log: the package {target} is not installed; {hint}") from error


def _wandb_mode() -> str:
    """Online for users who are logged in; else wandb would ask on the terminal, or stop."""
    if mode := os.environ.get("WANDB_MODE"):
        return mode
    try:
        known = netrc.netrc().authenticators(WANDB_HOST)
    except (OSError, netrc.NetrcParseError):
        known = None
    return "online" if known or os.environ.get("WANDB_API_KEY") else "offline"
