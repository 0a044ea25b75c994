"""One process at a time writes a stage, and a killed one is in nobody's way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from artifact_helpers import names, refusal, write
from goalward.core import artifacts
from goalward.core.artifacts import Stage, load_manifest

SRC = Path(__file__).resolve().parents[1] / "src"


WRITER = """
import os, subprocess, sys, time
from pathlib import Path
from dataclasses import dataclass
from goalward.artifacts import Stage

@dataclass(frozen=True)
class Config:
    seed: int = 0

def stage(folder):
    return Stage(folder=Path(folder), name="collect", version=1, config=Config())

if __name__ == "__main__":
    with stage(sys.argv[1]).writing() as out:
        (out / "first").write_text("from the first sitting")
        children = []
        if "children" in sys.argv:
            if (forked := os.fork()) == 0:
                time.sleep(60)
                os._exit(0)
            executed = subprocess.Popen(["sleep", "60"], close_fds=False)
            children = [forked, executed.pid]
        print("writing", *children, flush=True)
        time.sleep(60)
"""


@contextmanager
def another_writer(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A process in the middle of writing `folder`; its own children's ids are on `.stdout`."""
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), *options],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until_writing(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    word, *children = process.stdout.readline().split()
    assert word == "writing"
    return [int(child) for child in children]


@dataclass(frozen=True)
class WritersConfig:
    seed: int = 0


def writers_stage(folder: Path) -> Stage:
    """The stage that WRITER writes."""
    return Stage(folder=folder, name="collect", version=1, config=WritersConfig())


def test_a_killed_stage_is_not_complete_and_resumes_with_its_files(tmp_path: Path) -> None:
    stage = writers_stage(tmp_path / "run")
    with another_writer(stage.folder) as process:
        wait_until_writing(process)
        process.kill()
        process.wait()
    assert not stage.is_complete()
    assert names(tmp_path) == {"run.partial", "run.lock"}
    with stage.writing() as out:
        assert (out / "first").read_text() == "from the first sitting"
        (out / "second").write_text("22")
    assert load_manifest(stage.folder).files == {"first": 22, "second": 2}
    assert names(tmp_path) == {"run"}


def test_a_second_writer_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    stage = writers_stage(tmp_path / "run")
    with another_writer(stage.folder) as process:
        wait_until_writing(process)
        assert "another process is writing" in refusal(lambda: write(stage))
        assert names(stage.partial) == {"config.json", "first"}
    with stage.writing():
        assert "another process is writing" in refusal(lambda: write(stage))
    assert stage.is_complete()


def test_children_of_a_killed_writer_do_not_keep_its_lock(tmp_path: Path) -> None:
    stage = writers_stage(tmp_path / "run")
    with another_writer(stage.folder, "children") as process:
        children = wait_until_writing(process)
        try:
            assert "another process is writing" in refusal(lambda: write(stage))
            process.kill()
            process.wait()
            for child in children:
                os.kill(child, 0)  # still alive
            write(stage)
        finally:
            for child in children:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
    assert stage.is_complete()


def test_a_lock_file_that_its_owner_was_removing_is_not_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    with path.open("a") as stale:
        path.unlink()
        assert not artifacts._lock(stale.fileno(), path)
        with path.open("a") as fresh:
            assert not artifacts._lock(stale.fileno(), path)
            assert artifacts._lock(fresh.fileno(), path)
