"""The front door: what `import goalward` promises, and that the command line is made from it."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

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
def test_flags_have_the_names_and_defaults_of_the_signature(name: str) -> None:
    parameters = inspect.signature(api.VERBS[name]).parameters
    made = cli.flags_of(api.VERBS[name])
    flags = {f.name: f.default for f in made.__dataclass_fields__.values()}
    flags.pop(cli.JSON)
    hidden = parameters.keys() - flags.keys()
    assert hidden <= {"progress", "config"}
    for flag, default in flags.items():
        usual = parameters[flag].default
        assert usual is inspect.Parameter.empty or default == usual
    help_text = subprocess_help(name)
    assert all(
        f"--{flag.replace('_', '-')}" in help_text for flag in flags if flag_is_named(made, flag)
    )


def flag_is_named(made: Any, flag: str) -> bool:
    field = made.__dataclass_fields__[flag]
    return (
        field.default is not inspect.Parameter.empty
        and "Positional" not in str(field.type)
        and flag != "overrides"
    )


def subprocess_help(name: str) -> str:
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        cli.parse([name, "--help"])
    return out.getvalue()


def test_verbs_return_objects_and_commands_print_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert [task.name for task in gw.list_tasks()][:4] == ["two-room", "push-t", "cube", "reacher"]
    assert cli.main(["list-tasks", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "two-room"
