"""A small stage to write, and what is asked of it and of its folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from goalward.core.artifacts import Stage


@dataclass(frozen=True, kw_only=True)
class Model:
    width: int = 8
    rate: float = 0.1


@dataclass(frozen=True, kw_only=True)
class Config:
    seed: int = 0
    model: Model = field(default_factory=Model)


def a_stage(folder: Path, **changes: object) -> Stage:
    stage = Stage(folder=folder, name="collect", version=1, config=Config())
    return replace(stage, **changes)  # type: ignore[arg-type]


def write(stage: Stage, **files: str) -> None:
    with stage.writing() as out:
        for name, text in (files or {"data": "payload"}).items():
            (out / name).write_text(text)


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(ValueError) as caught:
        action()
    message = str(caught.value)
    assert "\n" not in message
    return message


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}
