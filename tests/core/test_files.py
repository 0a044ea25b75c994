"""Writes are atomic, and checksums show any changed byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from goalward.core.config import read_json, write_json
from goalward.core.files import checksum, file_checksum


def test_a_checksum_is_the_known_one_of_xxh3_and_a_file_has_that_of_its_content(
    tmp_path: Path,
) -> None:
    assert checksum(b"") == "2d06800538d394c2"  # of the specification
    assert checksum(b"goalward") == checksum(b"goal", b"ward")
    (tmp_path / "file").write_bytes(b"x" * 10_000_000)
    assert file_checksum(tmp_path / "file") == checksum(b"x" * 10_000_000)


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    write_json(tmp_path / "c.json", {"old": 1})
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_json(tmp_path / "c.json", {"new": 2})
    assert read_json(tmp_path / "c.json") == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]
