"""The command line: parse, call, print. No logic, and nothing heavy imported before it is used."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable

import tyro.extras
from tyro.conf import FlagCreatePairsOff

from goalward import __version__
from goalward.commands.base import Command
from goalward.commands.controllers import Embed, Judge, Train
from goalward.commands.episodes import Collect, Floors, Inspect
from goalward.commands.evaluation import Evaluate
from goalward.commands.export import Export
from goalward.commands.machine import Doctor, Tasks
from goalward.commands.report import WriteReport
from goalward.commands.reproduce import Reproduce
from goalward.commands.run import RunTask
from goalward.commands.world import ConvertWorld, JudgeWorld, TrainWorld
from goalward.core import console

HINTS = {
    errno.ENOSPC: "free some space, then run the same command again: finished work is kept",
    errno.EDQUOT: "free some space, then run the same command again: finished work is kept",
    errno.EFBIG: "the file-size limit of this disk or shell is too low",
    errno.EACCES: "choose a folder that you may write to, or mend its permissions",
    errno.EPERM: "choose a folder that you may write to, or mend its permissions",
    errno.EROFS: "choose a folder that you may write to",
}
OUT_OF_MEMORY = re.compile("out of memory|can't allocate memory")
BAD_INPUT = 2  # exit code: the user can fix it
INTERRUPTED = 130
CLOSED_PIPE = 141  # as of programs that the signal ends

COMMANDS: dict[str, Callable[..., Command]] = {
    "doctor": Doctor,
    "tasks": Tasks,
    "collect": Collect,
    "inspect": Inspect,
    "floors": Floors,
    "train-world": TrainWorld,
    "judge-world": JudgeWorld,
    "convert-world": ConvertWorld,
    "embed": Embed,
    "train": Train,
    "judge": Judge,
    "export": Export,
    "evaluate": Evaluate,
    "run": RunTask,
    "reproduce": Reproduce,
    "report": WriteReport,
}


def parse(arguments: list[str] | None = None) -> Command:
    """Parse the command line; exits with code 2 and a message when it cannot be parsed."""
    return tyro.extras.subcommand_cli_from_dict(
        COMMANDS,
        prog="goalward",
        description=f"goalward {__version__}: world models into controllers that need no search.",
        args=arguments,
        config=(FlagCreatePairsOff,),
    )


def main(arguments: list[str] | None = None) -> int:
    """Run a command; errors that the user can fix are one line and exit code 2."""
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    return code


def _run(arguments: list[str] | None) -> int:
    try:
        return parse(arguments).run()
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        console.show_error(describe_error(error))
        return BAD_INPUT
    except (MemoryError, RuntimeError) as error:
        if not OUT_OF_MEMORY.search(str(error)) and not isinstance(error, MemoryError):
            raise
        console.show_error(
            "out of memory; use smaller batches (--set schedule.batch=... of trainings, --batch of "
            "embed, --environments of evaluate)"
        )
        return BAD_INPUT
    except KeyboardInterrupt:
        console.show_error("interrupted; the same command goes on where it stopped")
        return INTERRUPTED


def describe_error(error: ValueError | OSError) -> str:
    """One line that says what went wrong, with the file where the system names one."""
    if isinstance(error, OSError) and error.errno is not None:
        where = f"{os.fspath(error.filename)}: " if error.filename is not None else ""
        return f"{where}{os.strerror(error.errno)}; {HINTS.get(error.errno, 'check the path')}"
    return str(error) or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
