"""Worker processes on this machine that neither outlive their parent nor crowd each other out."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection, wait
from types import ModuleType
from typing import Any, TypeVar

import cloudpickle

Job = TypeVar("Job")
Result = TypeVar("Result")

WORKER_DIED = (
    "a worker process was killed (out of memory?); finished work is kept: run the same command "
    "again, with fewer --workers or --jobs if it happens again"
)
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")


class LocalEngine:
    """An `Engine` of processes on this machine.

    The processes of `map` start at its first call and stay, with what they keep in memory, until
    the end of the `with` block.

    Args:
        workers: Processes of `map`.
    """

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers
        self._processes: _Processes | None = None

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._processes is not None:
            self._processes.close()
        self._processes = None

    def map(self, function: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
        """The results of all jobs, in the order in which they finish."""
        if self._processes is None:
            self._processes = _Processes(self.workers)
        with _death_reported():
            futures = [self._processes.submit(function, job) for job in jobs]
            for future in as_completed(futures):
                yield pickle.loads(future.result())  # noqa: S301 - of our own worker

    @contextmanager
    def actors(self, make: Callable[[], Callable[[Any], Any]], number: int) -> Iterator[_Actors]:
        """So many new actors, each the one worker of its own processes."""
        each = [_Processes(1) for _ in range(number)]
        try:
            with _death_reported():
                for future in [one.submit(_make_actor, make) for one in each]:
                    future.result()
            yield _Actors(each)
        finally:
            for one in each:
                one.close()


class _Actors:
    """Actors in single-worker processes."""

    def __init__(self, each: list[_Processes]) -> None:
        self._each = each

    def __len__(self) -> int:
        return len(self._each)

    def ask(self, requests: Mapping[int, Any]) -> list[Any]:
        """The answers of the chosen actors."""
        with _death_reported():
            futures = [self._each[k].submit(_ask_actor, request) for k, request in requests.items()]
            return [pickle.loads(future.result()) for future in futures]  # noqa: S301


class _Processes:
    """An executor whose workers exit at once when it closes, or when this process ends.

    They are spawned, because GL and torch do not survive a fork.
    """

    def __init__(self, number: int) -> None:
        # Nothing is ever sent: the pipe's end tells the workers to exit.
        theirs, self._ours = multiprocessing.Pipe(duplex=False)
        self._executor = ProcessPoolExecutor(
            number,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            initargs=(theirs,),
        )

    def submit(self, function: Callable[[Any], Any], job: Any) -> Future[bytes]:
        """Call a function in a worker; its result comes pickled."""
        work = cloudpickle.dumps(partial(function, job))
        with _without_main():
            return self._executor.submit(_call, work)

    def close(self) -> None:
        """End the workers, whatever they are doing: it can be resumed."""
        self._ours.close()
        self._executor.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _death_reported() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as error:
        raise ValueError(WORKER_DIED) from error


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide the main script from new processes, which would run it as they import it.

    Its functions and classes travel by value, and no script needs `if __name__ == "__main__"`.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


# In a worker process.

_actor: Callable[[Any], Any] | None = None


def _start_worker(stop: Connection) -> None:
    """Prepare a worker: one thread a library, no Ctrl-C, an end with its parent."""
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, args=(stop,), daemon=True).start()


def _exit_with_parent(stop: Connection) -> None:
    parent: Any = multiprocessing.parent_process()
    wait([parent.sentinel, stop])
    os._exit(1)  # libraries would take seconds to tidy up


def _call(work: bytes) -> bytes:
    return cloudpickle.dumps(pickle.loads(work)())  # noqa: S301 - of our own parent


def _make_actor(make: Callable[[], Callable[[Any], Any]]) -> None:
    global _actor
    _actor = make()


def _ask_actor(request: Any) -> Any:
    assert _actor is not None
    return _actor(request)
