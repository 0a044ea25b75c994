"""Worker processes: results, what happens to errors and deaths, and who ends with whom."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from goalward.engines.local import LocalEngine


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
    with LocalEngine(2) as engine:
        assert sorted(engine.map(double, range(20))) == list(range(0, 40, 2))


def test_an_error_in_a_worker_is_raised_here() -> None:
    with LocalEngine() as engine, pytest.raises(ValueError, match="job 3 is bad"):
        list(engine.map(fail, [3]))


def test_an_interruption_does_not_wait_for_running_jobs(tmp_path: Path) -> None:
    jobs = [(0.0, tmp_path / "quick"), (30.0, tmp_path / "slow"), (0.0, tmp_path / "queued")]
    with pytest.raises(KeyboardInterrupt), LocalEngine() as engine:
        for _ in engine.map(linger, jobs):
            raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["quick"]
    assert not multiprocessing.active_children()


def test_a_killed_worker_is_reported_as_such() -> None:
    with LocalEngine() as engine:
        for function in (die, double):  # the second learns it while it submits its jobs
            with pytest.raises(ValueError, match="a worker process was killed"):
                list(engine.map(function, [1]))


def test_workers_use_one_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with LocalEngine() as engine:
        assert list(engine.map(threads, [0])) == [1]
    assert os.environ["OMP_NUM_THREADS"] == "2"


class Counter:
    """An actor that adds up what it receives, refuses text, and dies when asked to."""

    def __init__(self) -> None:
        self._sum = 0

    def __call__(self, request: Any) -> int:
        if request == "die":
            os._exit(3)
        if isinstance(request, str):
            raise ValueError(f"{request} is not a number")
        self._sum += request
        return self._sum


def test_actors_keep_their_own_state_and_outlive_errors() -> None:
    with LocalEngine().actors(Counter, 2) as actors:
        assert len(actors) == 2
        assert actors.ask({1: 21, 0: 1}) == [21, 1]
        with pytest.raises(ValueError, match="seven is not a number"):
            actors.ask({0: "seven", 1: 5})
        assert actors.ask({0: 1, 1: 1}) == [2, 27]
        with pytest.raises(ValueError, match="a worker process was killed"):
            actors.ask({0: "die"})
    assert not multiprocessing.active_children()


SCRIPT = """
import os, sys, time
from goalward.engines.local import LocalEngine

factor = 3

def scaled(job):
    return factor * job, os.getpid()

engine = LocalEngine(2).__enter__()
(value, worker), = engine.map(scaled, [14])
print(value, worker, flush=True)
time.sleep(60 if "wait" in sys.argv else 0)
"""


def test_a_script_without_a_main_guard_can_use_its_own_functions(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    run = [sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("42 ") and done.stdout.count("\n") == 1, done.stderr


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    run = [sys.executable, str(tmp_path / "script.py"), "wait"]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline().split()[1])
        parent.kill()
    end = time.monotonic() + 20
    while Path(f"/proc/{worker}").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists()
