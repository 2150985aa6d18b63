"""Start-up work that short commands leave out."""

from __future__ import annotations

import os


def leave_plugins() -> None:
    """Make pydantic skip its search for plugins: it reads the metadata of every installed package, 0.1 s of processor
    time.

    Only for commands that do not start another program, which would inherit the setting.
    """
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
