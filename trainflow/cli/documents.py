"""Pages of docs/, as messages name them: the command may be typed in any folder, so the path is whole."""

from __future__ import annotations

from pathlib import Path

DOCUMENTS = Path(__file__).resolve().parents[2] / "docs"
"""docs/ of the checkout that the command was installed from; it needs one, for configurations and stacks."""


def path_of(name: str) -> str:
    """The whole path of a page, for a sentence.

    Args:
        name: Of its file.
    """
    return str(DOCUMENTS / name)
