"""The worker pool tells what happened to its workers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from goalward.core.machine import usable_cpus
from goalward.engines.local import process_pool


def double(job: int) -> int:
    return 2 * job


def fail(job: int) -> int:
    raise ValueError(f"job {job} is bad")


def die(job: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return job


def threads(job: int) -> int:
    import torch

    return job + torch.get_num_threads()


def linger(job: tuple[float, Path]) -> Path:
    seconds, path = job
    time.sleep(seconds)
    path.touch()
    return path


def test_all_results_come_back() -> None:
    with process_pool(2) as pool:
        assert sorted(pool.map_unordered(double, range(20))) == list(range(0, 40, 2))


def test_an_error_in_a_worker_is_raised_here() -> None:
    with process_pool(1) as pool, pytest.raises(ValueError, match="job 3 is bad"):
        list(pool.map_unordered(fail, [3]))


def test_an_interruption_does_not_wait_for_what_the_workers_are_at(tmp_path: Path) -> None:
    jobs = [(0.0, tmp_path / "quick"), (30.0, tmp_path / "slow"), (0.0, tmp_path / "queued")]
    with pytest.raises(KeyboardInterrupt), process_pool(1) as pool:
        for _ in pool.map_unordered(linger, jobs):
            raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["quick"]
    assert not multiprocessing.active_children()


def test_a_killed_worker_is_reported_as_such() -> None:
    with process_pool(1) as pool:
        for function in (die, double):  # the second finds out while it hands out its jobs
            with pytest.raises(ValueError, match="a worker process was killed"):
                list(pool.map_unordered(function, [1]))


def test_workers_use_one_thread_each_and_their_parent_as_many_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with process_pool(1) as pool:
        assert list(pool.map_unordered(threads, [0])) == [1]
    assert os.environ["OMP_NUM_THREADS"] == "2"
    assert "OPENBLAS_NUM_THREADS" not in os.environ


def test_a_pool_needs_a_worker() -> None:
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"), process_pool(0):
        pass


def test_there_is_at_least_one_cpu() -> None:
    assert usable_cpus() >= 1
