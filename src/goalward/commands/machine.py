"""Commands about what is here: the machine and the tasks."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from goalward.commands.base import AsJson
from goalward.core import console


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Examine this machine: what is there, what is missing, and the command that fixes it."""

    out: Path = Path("runs")
    """Folder whose disk is examined."""
    as_json: AsJson = False
    """Print one JSON document instead of a table."""

    def run(self) -> int:
        """Print the findings; exit code 1 when something is missing."""
        from goalward.diagnostics import examine

        findings = list(examine(self.out))
        healthy = all(finding.ok for finding in findings)
        if self.as_json:
            console.show_json({"ok": healthy, "findings": [asdict(f) for f in findings]})
        else:
            rows = [
                ("ok" if f.ok else "missing", f.name, f.found, "" if f.ok else f.fix)
                for f in findings
            ]
            console.show_table("This machine", ("", "what", "found", "fix"), rows)
        return 0 if healthy else 1


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """List the tasks: what they are, who demonstrates them, when they count as solved."""

    as_json: AsJson = False
    """Print one JSON document instead of tables."""

    def run(self) -> int:
        """Print the tasks."""
        from goalward.tasks import TASKS, get_task

        if self.as_json:
            console.show_json([task.describe() for task in map(get_task, TASKS.names())])
            return 0
        for task in map(get_task, TASKS.names()):
            facts = task.describe()
            rows = [
                ("environment", facts["env_id"]),
                ("action", f"{task.action_dim} numbers in [-1, 1]"),
                ("demonstrators", f"{', '.join(task.demonstrators)} ({task.episode_steps} steps)"),
                *((f"solved: {name}", text) for name, text in facts["protocols"].items()),
            ]
            console.show_facts(f"{task.name}: {task.summary}", rows)
        return 0
