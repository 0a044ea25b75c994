"""What the commands share: their protocol, and the flags that several of them have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Protocol

from tyro.conf import Positional, arg

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
PRESET_DEFAULT = "(default: the preset's)"
Device = Annotated[str, arg(help="cpu, cuda or mps; auto takes a CUDA GPU where there is one.")]


class Command(Protocol):
    """What every command offers: its fields are its flags."""

    def run(self) -> int:
        """Do it, print the outcome and return the exit code."""
