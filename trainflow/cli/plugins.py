"""What a command that is over in a moment does without."""

from __future__ import annotations

import os


def leave_plugins() -> None:
    """Let pydantic look for no plugins: it reads the metadata of every installed package, 0.1 s of processor time.

    For commands alone that start no other program, which would inherit it.
    """
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
