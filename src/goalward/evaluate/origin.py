"""Where measurements come from: they are kept for months, and put together in tables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from goalward.devices import machine
from goalward.provenance import git_revision, library_versions


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The machine and the code that something was measured with."""

    machine: str
    git_revision: str | None
    versions: dict[str, str]  # of libraries


@cache
def this_origin() -> Origin:
    """That of this process, as it was at the first call: results may be written to the checkout."""
    return Origin(machine=machine(), git_revision=git_revision(), versions=library_versions())
