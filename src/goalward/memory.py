"""How much memory a process takes at its peak."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

STATUS, RESTART = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_memory_mb() -> float:
    """The largest resident size that this process, or one of its children, has had."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    unit = 2**20 if sys.platform == "darwin" else 2**10  # ru_maxrss: bytes on macOS, else KiB
    return max(usage.ru_maxrss for usage in usages) / unit


def restart_peak() -> bool:
    """Forget the peak so far of this process alone; False where the system cannot (not Linux)."""
    try:
        RESTART.write_text("5")
    except OSError:
        return False
    return True


def peak_since_restart_mb() -> float:
    """The largest resident size of this process since `restart_peak`, libraries and all.

    Raises:
        OSError: the system does not tell; `restart_peak` has said so.
    """
    found = re.search(r"^VmHWM:\s*(\d+) kB", STATUS.read_text(), flags=re.MULTILINE)
    if found is None:
        raise OSError(f"{STATUS} does not tell the peak")
    return int(found[1]) / 2**10
