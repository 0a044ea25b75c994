"""The report as one self-contained HTML page."""

from __future__ import annotations

import base64
from importlib.resources import files
from pathlib import Path

from goalward.report.content import MARKS, Report
from goalward.report.words import GLOSSARY, INTRODUCTION, TITLE

TEMPLATE = "page.html.j2"
MIME_TYPES = {".svg": "image/svg+xml", ".png": "image/png", ".gif": "image/gif"}


def html_page(report: Report) -> str:
    """The whole page: no other file, and no network, is needed to show it."""
    from jinja2 import Environment

    text = (files("goalward.report") / TEMPLATE).read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["as_image"] = _as_image
    return environment.from_string(text).render(
        title=TITLE, report=report, marks=MARKS, introduction=INTRODUCTION, glossary=GLOSSARY
    )


def _as_image(path: Path) -> str:
    content = base64.b64encode(path.read_bytes()).decode()
    return f"data:{MIME_TYPES[path.suffix]};base64,{content}"
