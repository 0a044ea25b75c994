"""Where the figures of a generated page come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def provenance(results: Sequence[dict[str, Any]]) -> str:
    """Machine, libraries and revisions of measurements."""
    machines = sorted({result["machine"] for result in results})
    torches = sorted({result["torch"] for result in results})
    revisions = sorted({str(result["git_revision"])[:7] for result in results})
    return (
        f"Machine: {'; '.join(machines)}; torch {', '.join(torches)}; revision "
        f"{', '.join(revisions)}."
    )
