"""The command line: flags from the signatures and docstrings of the API, one call, its result."""

from __future__ import annotations

import dataclasses
import errno
import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import tyro.extras
from docstring_parser import google
from tyro.conf import FlagCreatePairsOff, Positional, UseAppendAction, arg

from goalward import __version__, api
from goalward.core import console

HINTS = {
    errno.ENOSPC: "free some space, then run the same command again: finished work is kept",
    errno.EDQUOT: "free some space, then run the same command again: finished work is kept",
    errno.EFBIG: "the file-size limit of this disk or shell is too low",
    errno.EACCES: "choose a folder that you may write to, or change its permissions",
    errno.EPERM: "choose a folder that you may write to, or change its permissions",
    errno.EROFS: "choose a folder that you may write to",
}
OUT_OF_MEMORY = re.compile("out of memory|can't allocate memory")
BAD_INPUT = 2  # exit code: the user can fix it
INTERRUPTED = 130
CLOSED_PIPE = 141  # as of programs that the signal ends

JSON = "as_json"
METAVARS = {int | None: "INT", str | None: "TEXT", Path | None: "PATH"}
DEFAULT = re.compile(r"\s*\(default: ([^()]*)\)")


class Hidden:
    """Stands for the types of objects, which only Python callers can pass."""


def flags_of(verb: Callable[..., Any]) -> Any:
    """A dataclass with a field for every parameter that the command line can give."""
    about = google.parse(inspect.getdoc(verb) or "")
    helps = {one.arg_name: " ".join((one.description or "").split()) for one in about.params}
    hints = api.types_of(verb, lambda _: Hidden)
    fields: list[Any] = []
    for name, parameter in inspect.signature(verb).parameters.items():
        marks = getattr(hints[name], "__metadata__", ())
        flag = next((one for one in marks if isinstance(one, api.Flag)), api.Flag())
        if flag.hidden:
            continue
        kind = _flag_type(hints[name])
        required = parameter.default is parameter.empty
        usual, hint = DEFAULT.search(helps[name]), "(required)" if required else None
        looks = arg(
            name=flag.name,
            metavar=flag.metavar or METAVARS.get(kind),
            help=DEFAULT.sub("", helps[name]),
            help_behavior_hint=f"(default: {usual[1]})" if usual else hint,
        )
        mark: Any = UseAppendAction if flag.repeated else Positional if required else Annotated
        kind = Annotated[kind, looks] if mark is Annotated else mark[Annotated[kind, looks]]
        default = dataclasses.MISSING if required else parameter.default
        fields.append((name, kind, dataclasses.field(default=default, kw_only=True)))
    as_json = Annotated[bool, arg(name="json", help="Print one JSON document, and no progress.")]
    fields.append((JSON, as_json, dataclasses.field(default=False, kw_only=True)))
    made = dataclasses.make_dataclass(verb.__name__, fields)
    made.__doc__ = about.short_description
    return made


def _flag_type(hint: Any) -> Any:
    """What a flag is parsed as, from an annotation of the API."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _flag_type(parts[0])
    if origin is Sequence:
        return tuple[_flag_type(parts[0]), ...]  # type: ignore[misc]
    if origin is os.PathLike:
        return Path
    if origin in (Union, UnionType):
        kinds = [kind for kind in map(_flag_type, parts) if kind is not Hidden]
        if Path in kinds:
            kinds.remove(str)
        return Union[tuple(kinds)]  # noqa: UP007 - of a number known at run time
    return str if hint is Any else hint


def parse(arguments: list[str] | None = None) -> tuple[str, Any]:
    """The command and its flags; exits with code 2 and a message when they cannot be parsed."""
    by_name = {name: flags_of(verb) for name, verb in api.VERBS.items()}
    found = tyro.extras.subcommand_cli_from_dict(
        by_name,
        prog="goalward",
        description=f"goalward {__version__}: world models into controllers that need no search.",
        args=arguments,
        config=(FlagCreatePairsOff,),
    )
    return next(name for name, made in by_name.items() if type(found) is made), found


def main(arguments: list[str] | None = None) -> int:
    """Run a command; errors that the user can fix are one line and exit code 2."""
    try:
        name, flags = parse(arguments)
        code = _call(name, vars(flags))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has stopped reading
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    except (ValueError, OSError) as error:
        console.show_error(describe_error(error))
        return BAD_INPUT
    except (MemoryError, RuntimeError) as error:
        if not OUT_OF_MEMORY.search(str(error)) and not isinstance(error, MemoryError):
            raise
        console.show_error(
            "out of memory; use smaller batches (--set schedule.batch=... of trainings, --batch of "
            "embed, --num-envs of evaluate)"
        )
        return BAD_INPUT
    except KeyboardInterrupt:
        console.show_error("interrupted; the same command continues where it stopped")
        return INTERRUPTED
    return code


def _call(name: str, flags: dict[str, Any]) -> int:
    """Call a verb and print what it returns; the exit code."""
    as_json, verb = flags.pop(JSON), api.VERBS[name]
    if "progress" in inspect.signature(verb).parameters:
        flags["progress"] = not as_json
    result = verb(**flags)
    from goalward import display

    return display.show(name, result, as_json=as_json)


def describe_error(error: ValueError | OSError) -> str:
    """One line that says what went wrong, with the file where the system names one."""
    if isinstance(error, OSError) and error.errno is not None:
        where = f"{os.fspath(error.filename)}: " if error.filename is not None else ""
        return f"{where}{os.strerror(error.errno)}; {HINTS.get(error.errno, 'check the path')}"
    return str(error) or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
