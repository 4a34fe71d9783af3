"""How large the repository is, for the table of docs/request.md."""

from __future__ import annotations

from cosyvoice_runtime.settings import Settings
from measuring.machine import ROOT
from measuring.report import table


def house() -> str:
    """The table."""
    modules = {
        path: len(path.read_text("utf-8").splitlines()) for path in ROOT.glob("cosyvoice_runtime/**/*.py")
    }
    pages = [path.read_text("utf-8") for path in ROOT.glob("docs/*.md")]
    names = {row.name for section in Settings().sections().values() for row in section.describe()}
    rows = {
        "files of `cosyvoice_runtime/`": len(modules),
        "their lines": sum(modules.values()),
        "lines of the longest": max(modules.values()),
        "names of settings": len(names),
        "pages in `docs/`": len(pages),
        "their words": sum(len(page.split()) for page in pages),
    }
    return table(("", "today"), [[name, f"{count:,}"] for name, count in rows.items()])
