"""Tidy rows of an evaluation: one an episode, in JSON lines, kept whatever happens.

A cell is one method with one seed on one set of pairs. Its rows lie in one file, which grows by
whole groups of rows: after a kill -9 a group is there or not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from goalward.config import one_line


@dataclass(frozen=True, kw_only=True)
class EpisodeRow:
    """One episode of one method."""

    task: str
    protocol: str
    method: str
    cell: str  # id of method, seed, model, budget and pairs together
    pairs: str  # id of the frozen pairs
    seed: int
    pair: int
    budget: int
    success: bool
    steps: int
    jerk: float | None  # None for fewer than three actions
    monotone: bool | None  # None without a world model to measure latents with
    latent_distance: float | None  # of the last frame
    errors: dict[str, float]  # of the last state, in each measure's unit
    predictor_calls: int
    decision_ms: float  # mean of its decisions; a batch's time is shared evenly


class RowFile:
    """The rows of one cell on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[EpisodeRow]:
        """All whole rows; what a killed process left of a line is dropped.

        Raises:
            ValueError: a line is something else.
        """
        if not self.path.exists():
            return []
        text = self.path.read_bytes().decode()
        whole = text[: text.rfind("\n") + 1]
        return [self._parse(line, k) for k, line in enumerate(whole.splitlines(), start=1)]

    def append(self, rows: Sequence[EpisodeRow]) -> None:
        """Add rows after those that are whole, and see them to the disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(asdict(row), allow_nan=False) + "\n" for row in rows)
        with self.path.open("ab+") as stream:
            stream.seek(0)
            stream.truncate(stream.read().rfind(b"\n") + 1)
            stream.write(text.encode())
            stream.flush()
            os.fsync(stream.fileno())

    def _parse(self, line: str, number: int) -> EpisodeRow:
        try:
            found: dict[str, Any] = json.loads(line)
            if found.keys() != {field.name for field in fields(EpisodeRow)}:
                raise ValueError("other columns than this version's")
            return EpisodeRow(**found)
        except (ValueError, TypeError, AttributeError) as error:
            problem = one_line(str(error))
            raise ValueError(
                f"{self.path}: line {number} is no row of an evaluation ({problem}); move the "
                "file away"
            ) from error
