"""The work behind cells, in levels: what is on one level can be done side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

from goalward.checks import whole_number
from goalward.devices import use_threads
from goalward.evaluate.rows import EpisodeRow
from goalward.evaluate.simulators import SimulatorPools
from goalward.experiments.cell import Cell
from goalward.experiments.lab import Lab, kind_of
from goalward.pipeline import silent_bar
from goalward.workers import Pool, usable_cpus, worker_pool

Doing = Literal["collect", "train world", "draw pairs", "train", "run"]
TELLING = 0.1  # share of the work after which the time left is told
CellRows = Mapping[Cell, Sequence[EpisodeRow]]
OnState = Callable[["State", "Work"], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """One thing to be done for a cell, and for others that need the same."""

    doing: Doing
    cell: Cell


@dataclass(kw_only=True)
class State:
    """How far the work is."""

    total: int
    done: int = 0
    running: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def waiting(self) -> int:
        """What is neither done nor under way."""
        return self.total - self.done - self.running

    @property
    def seconds_left(self) -> float | None:
        """At the pace of what is done; None as long as that is too little to tell."""
        if self.done < TELLING * self.total:
            return None
        spent = time.monotonic() - self.started
        return spent / self.done * (self.total - self.done)


def levels_of_work(cells: Sequence[Cell], prepared: Sequence[Cell] = ()) -> list[list[Work]]:
    """Everything that the cells need, each thing once, in the order of need.

    Args:
        cells: To be run.
        prepared: To be made ready, and not run.
    """
    chosen = ([*cells, *prepared], cells)
    needs: dict[Doing, Callable[[Cell], Hashable]] = {
        "collect": lambda c: (c.task, c.demonstrator),
        "train world": lambda c: (c.task, c.demonstrator, c.world),
        "draw pairs": lambda c: (c.task, c.demonstrator, c.protocol, c.offset, c.episodes),
        "train": lambda c: (kind_of(c), c.task, c.demonstrator, c.world, c.controller, c.seed),
        "run": lambda c: c,
    }
    return [
        [Work(doing=doing, cell=cell) for cell in _first_of_each(chosen[doing == "run"], key)]
        for doing, key in needs.items()
    ]


def _first_of_each(cells: Sequence[Cell], key: Callable[[Cell], Hashable]) -> Iterable[Cell]:
    found: dict[Hashable, Cell] = {}
    for cell in cells:
        found.setdefault(key(cell), cell)
    return found.values()


def without_repeats(lab: Lab, level: Sequence[Work]) -> list[Work]:
    """A level whose earlier ones are done, without work that is other work by another name.

    Changes that change nothing, such as a preset's own value, end in the same folder; two processes
    would get into each other's way there.
    """
    found: dict[Hashable, Work] = {}
    for work in level:
        key: Hashable = work
        if work.doing == "train world":
            key = lab.folder_of(work.cell, "world")
        elif work.doing == "train":
            key = lab.folder_of(work.cell, "model")
        found.setdefault(key, work)
    return list(found.values())


def run_cells(
    lab: Lab,
    cells: Sequence[Cell],
    *,
    prepared: Sequence[Cell] = (),
    jobs: int = 1,
    on_state: OnState | None = None,
) -> CellRows:
    """Do what is missing; returns the rows of all cells.

    Args:
        lab: Where to.
        cells: What to run.
        prepared: Cells whose models and pairs are to be made, no more.
        jobs: Things to do at a time.
        on_state: Told before each of them, or after it where several are done at a time.

    Raises:
        ValueError: fewer than one at a time.
    """
    whole_number(jobs, "jobs")
    levels = levels_of_work([lab.plain(c) for c in cells], [lab.plain(c) for c in prepared])
    state = State(total=sum(map(len, levels)))
    rows: dict[Cell, list[EpisodeRow]] = {}

    def tell(work: Work, running: int) -> None:
        state.running = running
        if on_state is not None:
            on_state(state, work)

    with worker_pool(jobs) if jobs > 1 else nullcontext() as pool:
        for planned in levels:
            level = without_repeats(lab, planned)
            state.total -= len(planned) - len(level)
            # What is alone on its level has this process, with every core and its bar.
            crew = pool if len(level) > 1 else None
            done = _by_itself(lab, level, tell) if crew is None else _by(crew, lab, level, jobs)
            for number, (work, found) in enumerate(done, start=1):
                state.done += 1
                if found is not None:
                    rows[work.cell] = found
                if crew is not None:
                    tell(work, min(jobs, len(level) - number))
    return {cell: rows[lab.plain(cell)] for cell in cells}


Result = tuple[Work, list[EpisodeRow] | None]


def _by_itself(
    lab: Lab, level: Sequence[Work], tell: Callable[[Work, int], None]
) -> Iterator[Result]:
    """Work that this process does, one thing after the other."""
    for work in level:
        tell(work, 1)
        yield work, _do(lab, work)


def _by(pool: Pool, lab: Lab, level: Sequence[Work], jobs: int) -> Iterator[Result]:
    """Work that others do, in the order in which they finish."""
    alone = replace(lab, workers=1, bar=silent_bar, pools=None)
    threads = max(1, usable_cpus() // min(jobs, len(level)))
    return pool.map_unordered(_do_alone, [(alone, work, threads) for work in level])


def _do(lab: Lab, work: Work) -> list[EpisodeRow] | None:
    """The rows, if the work is to run a cell."""
    cell = work.cell
    match work.doing:
        case "collect":
            lab.pipeline_of(cell).episodes()
        case "train world":
            lab.pipeline_of(cell).latents()
        case "draw pairs":
            lab.pairs_of(cell)
        case "train":
            lab.controller(cell)
        case "run":
            return lab.run(cell)
    return None


def _do_alone(job: tuple[Lab, Work, int]) -> Result:
    """Work in a process of its own, whose simulators stay for the next cell."""
    lab, work, threads = job
    use_threads(threads)
    return work, _do(replace(lab, pools=_own_pools()), work)


@cache
def _own_pools() -> SimulatorPools:
    return SimulatorPools(1)
