"""Curves as JSON lines, and in the programs that show them; those are faked."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from artifact_helpers import a_stage
from goalward.core.curves import (
    Curves,
    LogTarget,
    Row,
    log_to,
    read_curves,
    require_log_package,
)

ROWS: list[Row] = [{"step": 20, "loss": 0.5}, {"step": 40, "loss": 0.25, "lr": 0.1}]


def test_rows_are_lines_and_a_resumed_training_writes_only_what_it_kept(tmp_path: Path) -> None:
    known: list[Row] = []
    curves = Curves(tmp_path, known)
    for row in ROWS:
        curves.add(row)
    assert known == ROWS == read_curves(tmp_path)
    with (tmp_path / "curves.jsonl").open("a") as file:
        file.write('{"step": 60, "lo')  # the process was killed here
    Curves(tmp_path, ROWS[:1]).add({"step": 40, "loss": 0.2})
    assert read_curves(tmp_path) == [ROWS[0], {"step": 40, "loss": 0.2}]


class FakeRuns(ModuleType):
    """As wandb and trackio are."""

    def __init__(self) -> None:
        super().__init__("fake")
        self.calls: list[Any] = []

    def init(self, **about: Any) -> None:
        self.calls.append(about)

    def log(self, values: Row, step: int) -> None:
        self.calls.append((step, values))

    def finish(self) -> None:
        self.calls.append("finished")


def send_rows(target: LogTarget, folder: Path) -> None:
    with log_to(target, a_stage(folder / "world"), first_step=20) as send:
        assert send is not None
        for row in ROWS:
            send(row)


LOGGED = [(20, {"loss": 0.5}), (40, {"loss": 0.25, "lr": 0.1}), "finished"]


@pytest.mark.parametrize(
    ("set_to", "netrc", "mode"),
    [
        ({}, "", "offline"),
        ({"WANDB_API_KEY": "secret"}, "", "online"),
        ({}, "machine api.wandb.ai login user password secret", "online"),
        ({"WANDB_API_KEY": "secret", "WANDB_MODE": "disabled"}, "", "disabled"),
    ],
)
def test_wandb_gets_a_run_and_works_without_an_account(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    set_to: dict[str, str],
    netrc: str,
    mode: str,
) -> None:
    fake = FakeRuns()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setenv("HOME", str(tmp_path))
    if netrc:
        (tmp_path / ".netrc").write_text(netrc)
        (tmp_path / ".netrc").chmod(0o600)
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in set_to.items():
        monkeypatch.setenv(name, value)
    send_rows("wandb", tmp_path)
    about, *logged = fake.calls
    assert logged == LOGGED
    assert about["project"] == "goalward" and about["id"] == a_stage(tmp_path / "world").id
    assert about["name"] == f"{tmp_path / 'world'} {about['id'][:8]}"
    assert about["resume"] == "allow" and about["mode"] == mode
    assert about["config"]["seed"] == 0


def test_trackio_gets_a_run_that_ends_with_an_error_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeRuns()
    monkeypatch.setitem(sys.modules, "trackio", fake)
    send_rows("trackio", tmp_path)
    about, *logged = fake.calls
    assert logged == LOGGED and set(about) == {"project", "name", "config", "resume"}
    with pytest.raises(KeyError), log_to("trackio", a_stage(tmp_path / "w"), first_step=0):
        raise KeyError
    assert fake.calls[-1] == "finished"


def test_tensorboard_gets_scalars_in_the_trainings_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    class Writer:
        def __init__(self, folder: str, purge_step: int) -> None:
            calls.append((folder, purge_step))

        def add_scalar(self, *values: Any) -> None:
            calls.append(values)

        def close(self) -> None:
            calls.append("closed")

    fake: Any = SimpleNamespace(SummaryWriter=Writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    send_rows("tensorboard", tmp_path)
    first = (str(tmp_path / "world.partial" / "tensorboard"), 20)
    scalars = [("loss", 0.5, 20), ("loss", 0.25, 40), ("lr", 0.1, 40)]
    assert calls == [first, *scalars, "closed"]


@pytest.mark.parametrize("target", ["wandb", "trackio", "tensorboard"])
def test_a_missing_package_is_one_line_with_the_command(
    target: LogTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "torch.utils.tensorboard" if target == "tensorboard" else target
    monkeypatch.setitem(sys.modules, module, None)
    wanted = rf"{target} is not installed; pip install {target}"
    with pytest.raises(ValueError, match=wanted):
        require_log_package(target)


def test_no_target_needs_nothing(tmp_path: Path) -> None:
    require_log_package(None)
    with log_to(None, a_stage(tmp_path / "world"), first_step=0) as send:
        assert send is None
