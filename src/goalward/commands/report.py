"""The command that turns tables into pages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from goalward.commands.base import AsJson
from goalward.core import console


@dataclass(frozen=True, kw_only=True)
class WriteReport:
    """Write what `reproduce` found as one HTML page, Markdown and CSV."""

    tables: Annotated[Positional[Path], arg(metavar="TABLES")]
    """Folder with tables, such as runs/experiments/tables/cpu."""
    out: Path = Path("runs", "report")
    """Folder for report.html, report.md and report.csv."""
    as_json: AsJson = False
    """Print one JSON document."""

    def run(self) -> int:
        """Write the files and print where they are."""
        from goalward.core.files import atomic_write
        from goalward.experiments.report import (
            TITLE,
            csv_rows,
            html_page,
            legend,
            markdown_page,
            read_report,
        )

        report = read_report(self.tables)
        pages = {
            "report.html": html_page(report),
            "report.md": f"# {TITLE}\n\n{legend()}\n{markdown_page(report, self.out)}",
            "report.csv": csv_rows(report),
        }
        self.out.mkdir(parents=True, exist_ok=True)
        for name, text in pages.items():
            with atomic_write(self.out / name) as temporary:
                temporary.write_text(text, encoding="utf-8")
        paths = [str(self.out / name) for name in pages]
        if self.as_json:
            counts = {"paper": report.verdicts(ours=False), "ours": report.verdicts(ours=True)}
            console.show_json({"files": paths, "verdicts": counts})
        else:
            console.show_facts("Report", [("written", path) for path in paths])
        return 0
