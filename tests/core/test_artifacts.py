"""A stage's folder is complete and verified, or it is not there; interrupted work is resumed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

import goalward
from artifact_helpers import Config, Model, a_stage, names, refusal, write
from goalward.core.artifacts import Manifest, load_manifest, open_stage
from goalward.core.config import read_json, to_json, write_json

ROOT = Path(__file__).resolve().parents[2]


def payload(folder: Path) -> dict[str, int]:
    """Sizes of a complete stage's files but `config.json`."""
    files = load_manifest(folder).files
    return {name: record.bytes for name, record in files.items() if name != "config.json"}


def test_id_changes_with_everything_the_result_depends_on_and_nothing_else(tmp_path: Path) -> None:
    one = a_stage(tmp_path / "a")
    stages = [
        one,
        replace(one, name="embed"),
        replace(one, version=2),
        replace(one, config=Config(seed=1)),
        replace(one, config=Config(model=Model(width=9))),
        replace(one, inputs={"world": "0123"}),
        replace(one, inputs={"world": "4567"}),
        replace(one, inputs={"model": "0123"}),
    ]
    assert len({stage.id for stage in stages}) == len(stages)
    both, other = {"x": "1", "y": "2"}, {"y": "2", "x": "1"}
    assert replace(one, inputs=both).id == a_stage(tmp_path / "b", inputs=other).id
    assert re.fullmatch("[0-9a-f]{16}", one.id)


def test_manifest_holds_the_request_what_happened_and_known_checksums(tmp_path: Path) -> None:
    stage = a_stage(tmp_path / "run", inputs={"world": "0123"})
    before = datetime.now(timezone.utc).replace(microsecond=0)
    with stage.writing() as out:
        (out / "data").write_text("abc")
        time.sleep(0.05)
    manifest = load_manifest(stage.folder, stage="collect")
    assert (manifest.stage, manifest.version, manifest.id) == ("collect", 1, stage.id)
    assert manifest.config == to_json(Config())
    assert manifest.inputs == {"world": "0123"}
    assert read_json(stage.folder / "manifest.json")["files"]["data"] == {
        "bytes": 3,
        "xxh3": "78af5f94892f3950",  # printf abc | xxhsum -H3
    }
    assert before <= datetime.fromisoformat(manifest.created) <= datetime.now(timezone.utc)
    assert manifest.versions["goalward"] == goalward.__version__
    assert manifest.versions["python"].startswith(f"{sys.version_info.major}.")
    assert "no-such-library" not in manifest.versions
    assert 0.05 <= manifest.seconds < 60
    assert manifest.peak_memory_mb > 1
    assert f"{os.cpu_count()} CPUs" in manifest.machine


def test_payload_is_found_in_subfolders_and_temporary_files_are_not_payload(tmp_path: Path) -> None:
    stage = a_stage(tmp_path / "run")
    with stage.writing() as out:
        for name in ("a/b/data", "a/config.json", "x.tmp", ".hidden", ".cache/x", "old.tmp/x"):
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text("1")
    assert payload(stage.folder) == {"a/b/data": 1, "a/config.json": 1}


def test_an_exception_leaves_the_partial_folder_to_be_resumed(tmp_path: Path) -> None:
    stage = a_stage(tmp_path / "run")
    with pytest.raises(RuntimeError, match="boom"), stage.writing() as out:
        (out / "first").write_text("1")
        (out / ".data.h5.77-ab.tmp").write_text("half a file")
        raise RuntimeError("boom")
    assert not stage.is_complete()
    assert names(tmp_path) == {"run.partial"}
    assert "no complete stage" in refusal(lambda: load_manifest(stage.folder))
    assert "no manifest.json" in refusal(lambda: load_manifest(stage.partial))
    with stage.writing() as out:
        assert (out / "first").read_text() == "1"
        assert not (out / ".data.h5.77-ab.tmp").exists()
        (out / "second").write_text("22")
    assert payload(stage.folder) == {"first": 1, "second": 2}
    assert names(stage.folder) == {"config.json", "manifest.json", "first", "second"}


def test_seconds_and_peak_memory_add_up_over_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    stage = a_stage(tmp_path / "run")
    for session in (100.0, 20.0):
        with pytest.raises(KeyboardInterrupt), stage.writing():
            clock[0] += session
            raise KeyboardInterrupt
        clock[0] += 1e6  # between the sessions
    progress = stage.partial / ".progress.json"
    write_json(progress, {**read_json(progress), "peak_memory_mb": 1e9})
    with stage.writing():
        clock[0] += 3.0
    assert load_manifest(stage.folder).seconds == 123.0
    assert load_manifest(stage.folder).peak_memory_mb == 1e9


def test_a_stage_killed_between_manifest_and_rename_is_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = a_stage(tmp_path / "run")

    def killed(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "rename", killed)
        write(stage, data="first")
    assert (stage.partial / "manifest.json").exists()
    assert not stage.is_complete()
    with stage.writing() as out:
        assert not (out / "manifest.json").exists()
        (out / "more").write_text("1")
    assert payload(stage.folder) == {"data": 5, "more": 1}


def test_everything_is_on_the_disk_before_the_rename_and_the_rename_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = a_stage(tmp_path / "run")
    flushed: list[int] = []
    fsync, rename = os.fsync, Path.rename

    def record(descriptor: int) -> None:
        flushed.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def check(self: Path, target: Path) -> Path:
        files = {path.stat().st_ino for path in (self, *self.rglob("*"))}
        assert files <= set(flushed)
        flushed.clear()
        return rename(self, target)

    with stage.writing() as out:
        (out / "sub").mkdir()
        (out / "sub" / "data").write_text("abc")
        monkeypatch.setattr(os, "fsync", record)
        monkeypatch.setattr(Path, "rename", check)
    assert flushed == [tmp_path.stat().st_ino]


# Folders that are refused.


def test_writing_a_complete_stage_again_is_refused(tmp_path: Path) -> None:
    stage = a_stage(tmp_path / "run")
    write(stage, data="first")
    assert "already complete" in refusal(lambda: write(stage, data="second"))
    assert (stage.folder / "data").read_text() == "first"
    assert names(tmp_path) == {"run"}


@pytest.mark.parametrize("where", ["folder", "partial"])
def test_another_configuration_is_refused_naming_what_differs(tmp_path: Path, where: str) -> None:
    old = a_stage(tmp_path / "run", inputs={"world": "0123"})
    with suppress(RuntimeError), old.writing():
        if where == "partial":
            raise RuntimeError
    new = replace(old, config=Config(seed=1, model=Model(rate=0.2)), inputs={"world": "4567"})
    message = refusal(lambda: write(new))
    assert message.startswith(f"{getattr(old, where)}: holds another configuration (")
    assert 'input.world: "0123" -> "4567", seed: 0 -> 1, model.rate: 0.1 -> 0.2)' in message
    assert "delete the folder or choose another one" in message
    assert getattr(old, where).is_dir()
    assert "(stage version: 1 -> 2)" in refusal(lambda: write(replace(old, version=2)))


def test_another_stage_is_refused_by_name(tmp_path: Path) -> None:
    write(a_stage(tmp_path / "run"))
    other = a_stage(tmp_path / "run", name="embed")
    assert "holds stage 'collect', not 'embed'" in refusal(other.is_complete)
    wrong = refusal(lambda: load_manifest(tmp_path / "run", stage="train"))
    assert "holds stage 'collect', not 'train'" in wrong


@pytest.mark.parametrize("name", ["notes.txt", "manifest.json", "config.json"])
def test_a_foreign_folder_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    stage = a_stage(tmp_path / "run")
    for folder in (stage.folder, stage.partial):
        folder.mkdir()
        (folder / name).write_text("{}")
        message = refusal(lambda: write(stage))
        assert message.startswith(str(folder))
        assert "choose another" in message
        assert names(folder) == {name}
        (folder / name).unlink()
        folder.rmdir()


def test_a_file_or_dangling_link_in_the_folders_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("file", "link"):
        assert "not a complete stage" in refusal(a_stage(tmp_path / name).is_complete)


def test_a_folder_of_an_earlier_version_is_refused_in_one_line(tmp_path: Path) -> None:
    stage = a_stage(tmp_path / "run")
    write(stage)
    (stage.folder / "manifest.json").write_text('{"files": {"data": 7}}')
    for action in (stage.is_complete, lambda: load_manifest(stage.folder), lambda: write(stage)):
        assert refusal(action) == (
            f"{stage.folder}/manifest.json: has no checksum: it is damaged, or of an earlier "
            f"version; delete {stage.folder} and make it again with `goalward collect ...`"
        )


@pytest.mark.parametrize("damage", [lambda path: os.truncate(path, 2), Path.unlink])
def test_payload_of_another_size_is_refused_without_reading_it(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    stage = a_stage(tmp_path / "run")
    write(stage)
    damage(stage.folder / "data")
    message = refusal(lambda: load_manifest(stage.folder))
    assert re.match(rf"{stage.folder}/data: (is missing|has 2 bytes instead of 7); ", message)
    assert message.endswith("make it again with `goalward collect ...`")


def test_content_is_read_once_a_process_and_when_it_was_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, read = a_stage(tmp_path / "run"), list[str]()
    write(stage)
    (stage.folder / "data").write_text("payloed")
    os.utime(stage.folder / "data", (1, 1))  # clocks of file systems are coarse

    def bad_checksum(path: Path) -> str:
        read.append(path.name)
        return "0" * 16

    monkeypatch.setattr("goalward.core.files.file_checksum", bad_checksum)
    for _ in range(3):
        assert "data: damaged: its content does not" in refusal(
            lambda: open_stage(stage.folder, "collect")
        )
    assert read == ["data"]  # config.json not at all: it was read when it was written


def test_very_large_payload_is_not_read_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goalward.core.artifacts.READ_AT_OPEN", 200)
    stage = a_stage(tmp_path / "run")
    write(stage, small="a" * 200, large="a" * 201)
    (stage.folder / "large").write_text("b" * 201)
    os.utime(stage.folder / "large", (1, 1))
    assert isinstance(open_stage(stage.folder, "collect"), Manifest)
    (stage.folder / "small").write_text("b" * 200)
    os.utime(stage.folder / "small", (1, 1))
    assert "small: damaged" in refusal(lambda: open_stage(stage.folder, "collect"))


@pytest.mark.parametrize("folder", ["/", "..", "run.partial", "run.lock"])
def test_a_folder_that_cannot_name_a_stage_is_refused(folder: str) -> None:
    assert refusal(lambda: a_stage(Path(folder))).startswith(f"folder: '{folder}' cannot name")


# One process at a time writes a stage, and a killed one is in nobody's way.

WRITER = """
import os, subprocess, sys, time
from pathlib import Path
from artifact_helpers import a_stage

with a_stage(Path(sys.argv[1])).writing() as out:
    (out / "first").write_text("from the first session")
    if (forked := os.fork()) == 0:
        time.sleep(60)
        os._exit(0)
    executed = subprocess.Popen(["sleep", "60"], close_fds=False)
    print(forked, executed.pid, flush=True)
    time.sleep(60)
"""


@contextmanager
def another_writer(folder: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A process that is writing `folder`, and the ids of its own children."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    command = [sys.executable, "-c", WRITER, str(folder)]
    children: list[int] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            children += map(int, process.stdout.readline().split())
            yield process, children
        finally:
            process.kill()
            for child in children:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)


def test_a_second_writer_is_refused_while_the_first_lives_and_resumes_when_it_is_killed(
    tmp_path: Path,
) -> None:
    stage = a_stage(tmp_path / "run")
    with another_writer(stage.folder) as (process, children):
        assert "another process is writing" in refusal(lambda: write(stage))
        assert names(stage.partial) == {"config.json", "first"}
        process.kill()
        process.wait()
        for child in children:
            os.kill(child, 0)  # still alive, and keeps no lock
        assert not stage.is_complete()
        with stage.writing() as out:
            assert (out / "first").read_text() == "from the first session"
            (out / "second").write_text("22")
            assert "another process is writing" in refusal(lambda: write(stage))
    assert payload(stage.folder) == {"first": 22, "second": 2}
    assert names(tmp_path) == {"run"}
