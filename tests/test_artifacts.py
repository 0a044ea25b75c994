"""A stage's folder is complete and verified, or it is not there; interrupted work is resumed."""

from __future__ import annotations

import os
import re
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest

import goalward
from artifact_helpers import Config, Model, a_stage, names, refusal, write
from goalward.core.artifacts import load_manifest
from goalward.core.config import read_json, to_json, write_json


def test_id_changes_with_everything_the_result_depends_on(tmp_path: Path) -> None:
    stages = [
        a_stage(tmp_path / "a"),
        a_stage(tmp_path / "a", name="embed"),
        a_stage(tmp_path / "a", version=2),
        a_stage(tmp_path / "a", config=Config(seed=1)),
        a_stage(tmp_path / "a", config=Config(model=Model(width=9))),
        a_stage(tmp_path / "a", inputs={"world": "0123"}),
        a_stage(tmp_path / "a", inputs={"world": "4567"}),
        a_stage(tmp_path / "a", inputs={"model": "0123"}),
    ]
    assert len({stage.id for stage in stages}) == len(stages)


def test_id_does_not_change_with_place_or_key_order(tmp_path: Path) -> None:
    one = a_stage(tmp_path / "a", inputs={"x": "1", "y": "2"})
    other = a_stage(tmp_path / "b", inputs={"y": "2", "x": "1"})
    assert one.id == other.id
    assert re.fullmatch("[0-9a-f]{16}", one.id)


def test_a_written_stage_is_complete_and_leaves_nothing_else(tmp_path: Path) -> None:
    stage = a_stage(tmp_path / "deep" / "run")
    assert not stage.is_complete()
    write(stage, data="abc")
    assert stage.is_complete()
    assert names(stage.folder.parent) == {"run"}
    assert names(stage.folder) == {"config.json", "manifest.json", "data"}


def test_manifest_says_what_was_asked_and_what_happened(tmp_path: Path) -> None:
    stage = a_stage(tmp_path / "run", inputs={"world": "0123"})
    before = datetime.now(timezone.utc).replace(microsecond=0)
    write(stage, data="abc")
    manifest = load_manifest(stage.folder, stage="collect")
    assert (manifest.stage, manifest.version, manifest.id) == ("collect", 1, stage.id)
    assert manifest.config == to_json(Config())
    assert manifest.inputs == {"world": "0123"}
    assert manifest.files == {"data": 3}
    assert before <= datetime.fromisoformat(manifest.created) <= datetime.now(timezone.utc)
    assert manifest.versions["goalward"] == goalward.__version__
    assert manifest.versions["python"].startswith(f"{sys.version_info.major}.")
    assert "no-such-library" not in manifest.versions
    assert 0 < manifest.seconds < 60
    assert manifest.peak_memory_mb > 1
    assert f"{os.cpu_count()} CPUs" in manifest.machine


def test_payload_is_found_in_subfolders_and_temporary_files_are_not_payload(tmp_path: Path) -> None:
    stage = a_stage(tmp_path / "run")
    with stage.writing() as out:
        for name in (
            "a/b/data",
            "a/config.json",
            "x.tmp",
            ".hidden",
            ".cache/data",
            "old.tmp/data",
        ):
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text("1")
    assert load_manifest(stage.folder).files == {"a/b/data": 1, "a/config.json": 1}


def test_an_empty_folder_is_free_to_be_written(tmp_path: Path) -> None:
    stage = a_stage(tmp_path / "run")
    stage.folder.mkdir()
    assert not stage.is_complete()
    write(stage)
    assert stage.is_complete()


def test_an_exception_leaves_the_partial_folder_to_be_resumed(tmp_path: Path) -> None:
    stage = a_stage(tmp_path / "run")
    with pytest.raises(RuntimeError, match="boom"), stage.writing() as out:
        (out / "first").write_text("1")
        raise RuntimeError("boom")
    assert not stage.is_complete()
    assert names(tmp_path) == {"run.partial"}
    assert "no complete stage" in refusal(lambda: load_manifest(stage.folder))
    assert "no manifest.json" in refusal(lambda: load_manifest(stage.partial))
    with stage.writing() as out:
        assert (out / "first").read_text() == "1"
        (out / "second").write_text("22")
    assert load_manifest(stage.folder).files == {"first": 1, "second": 2}
    assert names(stage.folder) == {"config.json", "manifest.json", "first", "second"}


def test_seconds_and_peak_memory_add_up_over_sittings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    stage = a_stage(tmp_path / "run")
    for sitting in (100.0, 20.0):
        with pytest.raises(KeyboardInterrupt), stage.writing():
            clock[0] += sitting
            raise KeyboardInterrupt
        clock[0] += 1e6  # between the sittings
    progress = stage.partial / ".progress.json"
    write_json(progress, {**read_json(progress), "peak_memory_mb": 1e9})
    with stage.writing():
        clock[0] += 3.0
    assert load_manifest(stage.folder).seconds == 123.0
    assert load_manifest(stage.folder).peak_memory_mb == 1e9


def test_killed_between_manifest_and_rename_is_not_complete(
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
    assert load_manifest(stage.folder).files == {"data": 5, "more": 1}


def test_killed_while_config_was_written_starts_afresh(tmp_path: Path) -> None:
    stage = a_stage(tmp_path / "run")
    stage.partial.mkdir()
    (stage.partial / ".config.json.0a1b2c3d.tmp").write_text('{"id": "01')
    write(stage, data="abc")
    assert names(stage.folder) == {"config.json", "manifest.json", "data"}


def test_a_full_disk_surfaces_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    stage = a_stage(tmp_path / "run")
    with pytest.raises(OSError, match="No space left"), stage.writing() as out:
        (out / "data").write_text("abc")
        monkeypatch.setattr(os, "fsync", full_disk)
    monkeypatch.undo()
    assert not stage.is_complete()
    assert names(stage.partial) == {"config.json", "data"}


def test_a_sitting_that_cannot_be_recorded_still_tells_why_it_ended(tmp_path: Path) -> None:
    stage = a_stage(tmp_path / "run")
    with pytest.raises(RuntimeError, match="the cause"), stage.writing() as out:
        (out / "config.json").unlink()
        out.rmdir()
        raise RuntimeError("the cause")


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
        flushed.append((out / "config.json").stat().st_ino)  # by write_json, before
    assert flushed == [tmp_path.stat().st_ino]


def test_leftovers_of_a_killed_writer_are_cleared_away(tmp_path: Path) -> None:
    stage = a_stage(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt), stage.writing() as out:
        (out / ".data.h5.77-ab.tmp").write_text("half a file")
        raise KeyboardInterrupt
    with stage.writing() as out:
        assert not (out / ".data.h5.77-ab.tmp").exists()
    assert names(stage.folder) == {"config.json", "manifest.json"}


def test_time_is_measured_by_a_clock_that_runs(tmp_path: Path) -> None:
    stage = a_stage(tmp_path / "run")
    with stage.writing():
        time.sleep(0.05)
    assert load_manifest(stage.folder).seconds >= 0.05
