"""What the command line shows: progress while it works, then tables, JSON, or one error line."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from goalward.core.checks import one_line

SECONDS_BETWEEN_LINES = 30.0


class Update(Protocol):
    """Shows progress: items done, units done in this session, and a note."""

    def __call__(self, done: int, units: int, note: str = "") -> None:
        """Show it."""


@contextmanager
def progress(description: str, total: int, *, unit: str, quiet: bool) -> Iterator[Update]:
    """Progress on standard error with rate and time left; silent when `quiet`.

    A terminal gets a bar that disappears when it ends, so that only the result remains; a log gets
    a line every 30 seconds.
    """
    if quiet:
        yield lambda done, units, note="": None  # noqa: ARG005
    elif sys.stderr.isatty():
        with _bar(description, total, unit) as update:
            yield update
    else:
        yield _plain_lines(description, total, unit)


@contextmanager
def _bar(description: str, total: int, unit: str) -> Iterator[Update]:
    from rich import progress as rich
    from rich.console import Console

    columns = (
        *(rich.TextColumn("{task.description}"), rich.BarColumn(), rich.MofNCompleteColumn()),
        *(rich.TextColumn("{task.fields[rate]}"), rich.TimeElapsedColumn()),
        *(rich.TextColumn("left"), rich.TimeRemainingColumn()),
    )
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total, rate="starting")

        def update(done: int, units: int, note: str = "") -> None:
            seconds = bar.tasks[0].elapsed or 0.0
            rate = pace(units / seconds, unit) if units and seconds else "starting"
            bar.update(task, completed=done, rate=", ".join(filter(None, (rate, note))))

        yield update


def _plain_lines(description: str, total: int, unit: str) -> Update:
    started = last = time.monotonic()
    at_first: int | None = None  # done before this session

    def update(done: int, units: int, note: str = "") -> None:
        nonlocal last, at_first
        at_first = done if at_first is None else at_first
        now = time.monotonic()
        if now - last < SECONDS_BETWEEN_LINES or done == at_first:
            return
        last, seconds = now, now - started
        left = seconds / (done - at_first) * (total - done)
        rate = pace(units / seconds, unit)
        parts = filter(None, (f"{done}/{total}", rate, note, f"{left:.0f} s left"))
        show_status(f"{description}: {', '.join(parts)}")

    return update


def pace(rate: float, unit: str) -> str:
    """Such as '1,600 frames/s' or '0.2 episodes/s'."""
    return f"{rate:,.0f} {unit}/s" if rate >= 10 else f"{rate:.2g} {unit}/s"


def duration(seconds: float) -> str:
    """Such as '12 s', '7 min' or '1 h 05 min'."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


def show_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on standard output; one without a header if that is empty."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Text, because rich would take brackets in plain strings for markup.
    table = Table(title=Text(title, "bold"), title_justify="left", show_header=bool(header))
    for name in header or rows[0]:
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


def show_facts(title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Print names and values on standard output."""
    show_table(title, (), rows)


def show_json(data: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one JSON document on standard output."""
    sys.stdout.write(json.dumps(data, indent=2, allow_nan=False) + "\n")


def show_line(text: str) -> None:
    """Print one plain line on standard output."""
    sys.stdout.write(text + "\n")


def show_status(text: str) -> None:
    """Print one line about the work in progress on standard error."""
    sys.stderr.write(text + "\n")


def show_error(text: str) -> None:
    """Print one error line on standard error."""
    show_status("goalward: " + one_line(text))
