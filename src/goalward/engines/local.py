"""A pool of worker processes that neither outlive their parent nor crowd each other out."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")

STOP_PATIENCE = 5.0  # seconds
WORKER_DIED = (
    "a worker process was killed (out of memory?); what was finished is kept: run the same command "
    "again, with fewer --workers or --jobs if it happens again"
)
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")


def require_workers(workers: int) -> None:
    """Refuse a number of workers that does no work."""
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")


class Pool:
    """Runs jobs in worker processes."""

    def __init__(self, executor: ProcessPoolExecutor) -> None:
        self._executor = executor

    def map_unordered(
        self, function: Callable[[Job], Result], jobs: Iterable[Job]
    ) -> Iterator[Result]:
        """Results in the order in which they come in. `function` is a module's top-level one.

        Raises:
            ValueError: a worker process died.
        """
        try:
            futures = [self._executor.submit(function, job) for job in jobs]
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool as error:
            raise ValueError(WORKER_DIED) from error


@contextmanager
def process_pool(workers: int) -> Iterator[Pool]:
    """A pool of `workers` fresh processes (spawned: GL and torch do not survive a fork).

    Raises:
        ValueError: fewer than one worker.
    """
    require_workers(workers)
    context, others = multiprocessing.get_context("spawn"), multiprocessing.active_children()
    with _one_thread_each():
        executor = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)
        try:
            yield Pool(executor)
        except BaseException:  # what they are at may take hours, and can be taken up again
            for process in multiprocessing.active_children():
                if process not in others:
                    process.kill()
            raise
        finally:
            executor.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Have processes that are started meanwhile use one thread for each numerical library."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _start_worker() -> None:
    """Prepare a worker: no Ctrl-C of its own, gone when its parent is."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent: Any = multiprocessing.parent_process()
    wait([parent.sentinel])
    os._exit(1)


class Actors:
    """Worker processes that keep something between requests, each its own."""

    def __init__(self, connections: list[Connection]) -> None:
        self._connections = connections

    @property
    def number(self) -> int:
        """How many there are."""
        return len(self._connections)

    def ask(self, requests: Mapping[int, Any]) -> list[Any]:
        """Send each worker its request, let them work at the same time, and collect the answers.

        Raises:
            ValueError: what a worker raised, or a worker died.
        """
        try:
            for worker, request in requests.items():
                self._connections[worker].send(request)
            answers = [self._connections[worker].recv() for worker in requests]
        except (EOFError, ConnectionError) as error:
            raise ValueError(WORKER_DIED) from error
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return answers


@contextmanager
def actors(
    make: Callable[[Any], Callable[[Any], Any]], setting: Any, *, workers: int
) -> Iterator[Actors]:
    """Fresh processes that answer requests with `make(setting)`, a module's top-level class.

    Raises:
        ValueError: fewer than one worker.
    """
    require_workers(workers)
    context = multiprocessing.get_context("spawn")
    connections, processes = [], []
    with _one_thread_each():
        for _ in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(make, setting, theirs), daemon=True)
            process.start()
            theirs.close()
            connections.append(ours)
            processes.append(process)
    try:
        yield Actors(connections)
    finally:
        for connection in connections:
            connection.close()
        for process in processes:
            process.join(timeout=STOP_PATIENCE)
            if process.is_alive():
                process.kill()


def _serve(
    make: Callable[[Any], Callable[[Any], Any]], setting: Any, connection: Connection
) -> None:
    """A worker's life: answer requests until nobody asks any more."""
    _start_worker()
    answer: Callable[[Any], Any] | None = None
    while True:
        try:
            request = connection.recv()
        except EOFError:
            os._exit(0)  # nothing is left to tidy up, and libraries take seconds to
        try:
            answer = answer or make(setting)
            found = answer(request)
        except (ValueError, OSError) as error:  # what the user can mend
            found = ValueError(str(error))
        except Exception:
            found = RuntimeError(f"in a worker process:\n{traceback.format_exc()}")
        try:
            connection.send(found)
        except OSError:
            os._exit(0)  # nobody is left to tell
