"""The front door: what `import goalward` promises, and that the command line is made from it."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import pytest
from docstring_parser import google

import goalward as gw
from goalward import api, cli

SOURCE = Path(gw.__file__)
LIGHT = "import sys, goalward; print(len([m for m in sys.modules if m.startswith('goalward.')]))"


def test_every_public_name_is_there_and_documented() -> None:
    for name in gw.__all__:
        found = getattr(gw, name)
        assert inspect.getdoc(found), name
    assert set(gw.__all__) <= set(dir(gw))


def test_type_checkers_see_the_public_names() -> None:
    block = next(n for n in ast.walk(ast.parse(SOURCE.read_text())) if isinstance(n, ast.If))
    imported = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname: node.module for node in imported for alias in node.names}
    assert seen == {**dict.fromkeys(gw.VERBS, "goalward.api"), **gw.NOUNS}


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'goalward' has no attribute 'trian'"):
        gw.trian  # noqa: B018


def test_importing_goalward_imports_nothing_else_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


def test_every_verb_is_a_command_of_the_same_name_and_load_is_for_python_alone() -> None:
    commands = {name.replace("-", "_") for name in api.VERBS}
    assert commands | {"load"} == set(gw.VERBS)


@pytest.mark.parametrize("name", api.VERBS)
def test_every_argument_is_documented_and_every_documented_argument_exists(name: str) -> None:
    verb = api.VERBS[name]
    found = google.parse(inspect.getdoc(verb) or "")
    assert [one.arg_name for one in found.params] == [*inspect.signature(verb).parameters]
    assert found.returns is not None and found.short_description


@pytest.mark.parametrize("name", api.VERBS)
def test_flags_have_the_names_and_defaults_of_the_signature(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parameters = inspect.signature(api.VERBS[name]).parameters
    flags = {f.name: f.default for f in fields(cli.flags_of(api.VERBS[name]))}
    flags.pop(cli.JSON)
    assert parameters.keys() - flags.keys() <= {"progress", "config"}
    with suppress(SystemExit):
        cli.parse([name, "--help"])
    help_text = capsys.readouterr().out
    for flag, default in flags.items():
        usual = parameters[flag].default
        if usual is not inspect.Parameter.empty:
            assert default == usual
            assert flag == "overrides" or f"--{flag.replace('_', '-')}" in help_text
