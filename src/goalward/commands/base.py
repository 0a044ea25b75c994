"""What the commands share: their protocol, and the flags that several of them have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol

from tyro.conf import Positional, UseAppendAction, arg

from goalward import defaults

TaskName = Annotated[Positional[str], arg(metavar="TASK")]
EpisodesPath = Annotated[Positional[Path], arg(metavar="PATH")]
AsJson = Annotated[bool, arg(name="json")]
NumWorkers = Annotated[
    int | None, arg(metavar="INT", help_behavior_hint="(default: one for every CPU)")
]
TaskOfFile = Annotated[
    str | None, arg(metavar="TASK", help_behavior_hint="(default: what the file says)")
]
NumThreads = Annotated[
    int | None, arg(metavar="INT", help_behavior_hint="(default: torch's own choice)")
]
Device = Annotated[str, arg(help="cpu, cuda or mps; auto takes a CUDA GPU where there is one.")]


class Command(Protocol):
    """What every command offers: its fields are its flags."""

    def run(self) -> int:
        """Do it, print the outcome and return the exit code."""


@dataclass(frozen=True, kw_only=True)
class TrainingFlags:
    """The flags that every training has."""

    preset: defaults.PresetName = "cpu"
    """Size and length of the training."""
    steps: Annotated[
        int | None, arg(metavar="INT", help_behavior_hint="(default: the preset's)")
    ] = None
    """Optimiser steps."""
    seed: int = defaults.SEED
    """Seed of every random draw; the same seed gives the same weights."""
    set: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE"), UseAppendAction] = ()
    """A value in place of the preset's, such as schedule.lr=1e-4; may be repeated."""
    device: Device = "auto"
    threads: NumThreads = None
    """CPU threads. A resumed training repeats an unbroken one to the bit with the same number."""
    save_seconds: float = defaults.SAVE_SECONDS
    """At most so much work, and a few steps, is lost when the process is killed."""
    as_json: AsJson = False
    """Print one JSON document and no progress."""

    def assignments(self) -> tuple[str, ...]:
        """What is to be put in place of the preset's values."""
        chosen = () if self.steps is None else (f"schedule.steps={self.steps}",)
        return (*chosen, *self.set)
