"""What tests of the command line share."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goalward import cli

Capture = pytest.CaptureFixture[str]


def document(capsys: Capture, *arguments: str) -> Any:
    """The JSON document that a command prints."""
    assert cli.main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refusal(capsys: Capture, *arguments: str) -> str:
    """The one line that a refused command prints."""
    assert cli.main([*arguments]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.startswith("goalward: ")
    assert streams.err.count("\n") == 1
    return streams.err
