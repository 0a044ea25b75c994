"""Tidy rows of an evaluation: one an episode, in JSON lines, kept whatever happens.

A cell is one method with one seed on one set of pairs. Its rows lie in one file, which grows by
groups of rows; what a kill -9 cuts off is run again, and the same pair is never counted twice.
Beside it stands what the rows were measured with.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from goalward.config import (
    from_json,
    parse_config,
    read_json,
    require_at_least,
    require_types,
    to_json,
    write_json,
)
from goalward.evaluate.origin import Origin


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
    episode: int  # that the pair was drawn from
    budget: int
    success: bool
    steps: int
    jerk: float | None  # None for fewer than three actions
    monotone: bool | None  # None without a world model to measure latents with
    closing: float | None  # share of the steps that bring the latent closer to the goal's
    latent_distance: float | None  # of the last frame
    errors: dict[str, float]  # of the last state, in each measure's unit
    plans: int | None  # planning calls; None for a method that plans nothing ahead
    predictor_calls: int
    decision_ms: float  # mean of its decisions; a batch's time is shared evenly

    def __post_init__(self) -> None:
        require_types(self)
        require_at_least(self, 0, "seed", "pair", "episode", "predictor_calls")
        require_at_least(self, 1, "budget", "steps")
        if self.steps > self.budget:
            raise ValueError(f"steps must be at most budget = {self.budget}, got {self.steps}")


class RowFile:
    """The rows of one cell on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[EpisodeRow]:
        """All whole rows, one a pair; what a killed process left of a line is dropped.

        Raises:
            ValueError: a line is something else.
        """
        if not self.path.exists():
            return []
        content = self.path.read_bytes()
        lines = content[: content.rfind(b"\n") + 1].splitlines()
        rows = [self._parse(line, k) for k, line in enumerate(lines, start=1)]
        return list({row.pair: row for row in reversed(rows)}.values())[::-1]  # the first of each

    def append(self, rows: Sequence[EpisodeRow]) -> None:
        """Add rows after those that are whole, and see them to the disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(asdict(row), allow_nan=False) + "\n" for row in rows)
        with self.path.open("ab+") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)  # another process may run the same cell
            stream.seek(0)
            stream.truncate(stream.read().rfind(b"\n") + 1)
            stream.write(text.encode())
            stream.flush()
            os.fsync(stream.fileno())

    @property
    def _origins_path(self) -> Path:
        return self.path.with_suffix(".origins.json")

    def origins(self) -> tuple[Origin, ...]:
        """What the rows were measured with; nothing if that was not noted."""
        path = self._origins_path
        return tuple(from_json(Origin, o) for o in read_json(path)) if path.exists() else ()

    def note(self, origin: Origin) -> None:
        """Note what rows that are to come are measured with."""
        known = self.origins()
        if origin not in known:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._origins_path, [to_json(one) for one in (*known, origin)])

    def _parse(self, line: bytes, number: int) -> EpisodeRow:
        try:
            return parse_config(EpisodeRow, line, self.path)
        except ValueError as error:
            raise ValueError(
                f"{error} (line {number} is no row of an evaluation; move the file away)"
            ) from error
