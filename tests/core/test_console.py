"""Progress for people, for logs, and for nobody."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time

import pytest

from goalward.core import console

PROGRAM = """
import time
from goalward.core.console import progress
with progress("walk", 4, unit="steps", quiet=False) as update:
    for done in range(5):
        update(done, 10 * done)
        time.sleep(0.15)
"""


def test_a_log_gets_a_plain_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 1.0, 20.0, 40.0, 50.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with console.progress("walk", 6, unit="steps", quiet=False) as update:
        update(2, 0)  # found done, at second 1
        update(3, 100)
        update(4, 200)
        update(5, 300)
    assert capsys.readouterr().err == "walk: 4/6, 5 steps/s, 40 s left\n"


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with console.progress("walk", 6, unit="steps", quiet=True) as update:
        update(3, 100)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar_with_rate_and_time_left() -> None:
    leader, follower = pty.openpty()
    try:
        subprocess.run([sys.executable, "-c", PROGRAM], stderr=follower, check=True)
        shown = os.read(leader, 1 << 16).decode()
    finally:
        os.close(leader)
        os.close(follower)
    assert "walk" in shown
    assert "steps/s" in shown
    assert "left" in shown


def test_text_in_brackets_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    console.show_facts("a [bold]title[/bold]", [("fix", "pip install 'goalward[sim]'")])
    out = capsys.readouterr().out
    assert "a [bold]title[/bold]" in out
    assert "goalward[sim]" in out
