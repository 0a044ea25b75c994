"""Curves as JSON lines, and in the programs that show them; those are faked."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import MagicMock, call

import pytest

from artifact_helpers import a_stage
from goalward.core.curves import Curves, LogTarget, Row, log_to, read_curves, require_log_package

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


def module_of(target: LogTarget) -> str:
    return "torch.utils.tensorboard" if target == "tensorboard" else target


def send_rows(target: LogTarget, folder: Path, monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """What a training of two rows asks of the package, which is faked."""
    fake = MagicMock()
    monkeypatch.setitem(sys.modules, module_of(target), fake)
    with log_to(target, a_stage(folder / "world"), first_step=20) as send:
        assert send is not None
        for row in ROWS:
            send(row)
    return fake


LOGGED = [call({"loss": 0.5}, step=20), call({"loss": 0.25, "lr": 0.1}, step=40)]


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_to: dict[str, str], netrc: str, mode: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    if netrc:
        (tmp_path / ".netrc").write_text(netrc)
        (tmp_path / ".netrc").chmod(0o600)
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in set_to.items():
        monkeypatch.setenv(name, value)
    fake = send_rows("wandb", tmp_path, monkeypatch)
    about = fake.init.call_args.kwargs
    assert about["project"] == "goalward" and about["id"] == a_stage(tmp_path / "world").id
    assert about["name"] == f"{tmp_path / 'world'} {about['id'][:8]}"
    assert about["resume"] == "allow" and about["mode"] == mode
    assert about["config"]["seed"] == 0
    assert fake.log.call_args_list == LOGGED
    fake.finish.assert_called_once_with()


def test_trackio_gets_a_run_that_ends_with_an_error_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = send_rows("trackio", tmp_path, monkeypatch)
    assert fake.init.call_args.kwargs.keys() == {"project", "name", "config", "resume"}
    assert fake.log.call_args_list == LOGGED
    with pytest.raises(KeyError), log_to("trackio", a_stage(tmp_path / "w"), first_step=0):
        raise KeyError
    assert fake.finish.call_count == 2


def test_tensorboard_gets_scalars_in_the_trainings_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = send_rows("tensorboard", tmp_path, monkeypatch)
    folder = str(tmp_path / "world.partial" / "tensorboard")
    fake.SummaryWriter.assert_called_once_with(folder, purge_step=20)
    writer = fake.SummaryWriter.return_value
    scalars = [call("loss", 0.5, 20), call("loss", 0.25, 40), call("lr", 0.1, 40)]
    assert writer.add_scalar.call_args_list == scalars
    writer.close.assert_called_once_with()


@pytest.mark.parametrize("target", ["wandb", "trackio", "tensorboard"])
def test_a_missing_package_is_one_line_with_the_command(
    target: LogTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module_of(target), None)
    with pytest.raises(ValueError, match=f"{target} is not installed; pip install {target}"):
        require_log_package(target)
