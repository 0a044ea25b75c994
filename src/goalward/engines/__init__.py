"""Where work runs. `LocalEngine` uses processes on this machine; another engine may use others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


class Actors(Protocol):
    """Objects numbered 0, 1, ..., each alone in a worker process that keeps its state."""

    def __len__(self) -> int: ...

    def ask(self, requests: Mapping[int, Any]) -> list[Any]:
        """Call the chosen actors, each with its request, at the same time; answers in order."""


class Engine(Protocol):
    """Runs functions in worker processes. What they raise is raised here as well.

    Functions, jobs and results are pickled with cloudpickle: what was defined in a script or a
    notebook travels too.
    """

    def map(self, function: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
        """The results of all jobs, in the order in which they finish."""

    def actors(
        self, make: Callable[[], Callable[[Any], Any]], number: int
    ) -> AbstractContextManager[Actors]:
        """So many new actors: each calls `make` once, and its answers are the result's."""
