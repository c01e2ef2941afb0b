"""All pages that a reader sees, by name: those in the tree, and those that the site writes from figures."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from repository import ROOT
from results import read_results, result_pages

DOCS: Final = ROOT / "docs"
ROOT_PAGES: Final = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "SCOPE.md", "CODE_OF_CONDUCT.md")


def page_files() -> list[Path]:
    """Return the pages of the tree."""
    return [*(ROOT / name for name in ROOT_PAGES), *sorted(DOCS.rglob("*.md"))]


def pages() -> dict[str, str]:
    """Return the Markdown of each page, by its path in the repository."""
    written = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in page_files()}
    return written | {f"docs/{name}": text for name, text in result_pages(read_results(DOCS / "results")).items()}
