"""Where the figures of a generated page come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from goalward.core.machine import short_revision


def provenance(results: Sequence[dict[str, Any]]) -> str:
    """Machine, libraries and revisions of measurements."""
    machines = sorted({result["machine"] for result in results})
    torches = sorted({result["torch"] for result in results})
    revisions = sorted({short_revision(str(result["git_revision"])) for result in results})
    return (
        f"Machine: {'; '.join(machines)}; torch {', '.join(torches)}; revision "
        f"{', '.join(revisions)}."
    )
