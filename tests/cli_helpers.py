"""What tests of the command line share."""

from __future__ import annotations

import pytest

from goalward import cli

Capture = pytest.CaptureFixture[str]


def refusal(capsys: Capture, *arguments: str) -> str:
    """The one line that a refused command prints."""
    assert cli.main([*arguments]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.startswith("goalward: ")
    assert streams.err.count("\n") == 1
    return streams.err
