"""A pool of worker processes that neither outlive their parent nor crowd each other out."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")


def usable_cpus() -> int:
    """Number of CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
        futures = [self._executor.submit(function, job) for job in jobs]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool as error:
            raise ValueError(
                "a worker process was killed (out of memory?); what was finished is kept: "
                "run the same command again, with fewer --workers if it happens again"
            ) from error


@contextmanager
def worker_pool(workers: int) -> Iterator[Pool]:
    """A pool of `workers` fresh processes (spawned: GL and torch do not survive a fork).

    Raises:
        ValueError: fewer than one worker.
    """
    require_workers(workers)
    context = multiprocessing.get_context("spawn")
    with _one_thread_each():
        executor = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)
        try:
            yield Pool(executor)
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
