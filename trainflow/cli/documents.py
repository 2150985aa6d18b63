"""Pages of docs/, as messages name them: the command may be typed in any folder, so the path is whole."""

from __future__ import annotations

from pathlib import Path

DOCUMENTS = Path(__file__).resolve().parents[2] / "docs"
"""Folder of the pages in the checkout that the command runs from; it is missing in an installed client."""


def page_path(name: str) -> str:
    """The whole path of a page, for a sentence; outside of a checkout, where it is in the repository.

    Args:
        name: Name of its file.
    """
    page = DOCUMENTS / name
    return str(page) if page.is_file() else f"docs/{name} of the Trainflow repository"
