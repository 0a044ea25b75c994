"""Devices and threads by name; a result names the code that it came from, never another's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

import goalward
from goalward.core import machine
from goalward.core.machine import choose_device, use_threads


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize(("package", "ours"), [("src/goalward", True), ("venv/goalward", False)])
def test_git_revision_is_that_of_goalwards_own_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, ours: bool
) -> None:
    place = Path(machine.__file__).relative_to(Path(goalward.__file__).parent)
    module = tmp_path / package / place
    module.parent.mkdir(parents=True)
    module.write_text("")
    monkeypatch.setattr(machine, "__file__", str(module))
    git(tmp_path, "init", "-q")
    assert machine.git_revision() is None  # no commit yet
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert machine.git_revision() == (head if ours else None)
    module.write_text("changed")
    assert machine.git_revision() == (f"{head}+dirty" if ours else None)
    monkeypatch.setenv("PATH", "")
    assert machine.git_revision() is None


def test_a_device_that_is_not_there_is_refused_in_one_line() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    with pytest.raises(ValueError, match="is not available here; use --device cpu"):
        choose_device("cuda:77")
    for name in ("gpu", "meta", "xpu:7"):
        with pytest.raises(ValueError, match="is not one of cpu, cuda, mps"):
            choose_device(name)
    with pytest.raises(ValueError, match="threads must be 1 to 32768, got 0"):
        use_threads(0)
