"""The token of a page with a port of its own, kept for a day, so that open tabs go on after `trainflow ui` restarts.

A tab sends its cookie to whatever listens on its port. Another user of the machine could listen there while the page
is down, which is why a token does not live for ever, and why a page on any free port has a new one each time.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import time
from contextlib import suppress
from pathlib import Path

from trainflow.client.private_folder import make_private
from trainflow.client.whole_files import replaced

KEPT_SECONDS = 24 * 3600.0
"""Longest time after the start of a page until the next one on its port still has its token."""

BYTES = 32
"""256 bits."""

_TOKEN = re.compile(r"[\w-]{43}", re.ASCII)


def new_token() -> str:
    """A token that nobody has."""
    return secrets.token_urlsafe(BYTES)


def form_token(token: str) -> str:
    """The token of the page's forms, which a tab of before a restart still sends."""
    return hashlib.sha256(f"form {token}".encode()).hexdigest()


def kept_token(port: int, *, folder: Path | None = None) -> str:
    """The token of a port: that of the page before on it, if this user started that one within a day.

    Args:
        port: The port.
        folder: Folder of the tokens. Default: `$XDG_STATE_HOME/trainflow`.
    """
    path = (folder or _state_folder()) / f"page-{port}.token"
    token = _read(path) or new_token()
    with suppress(OSError):  # without a place for it, the next page has another one
        make_private(path.parent)
        with replaced(path) as unfinished:
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(token)
    return token


def _read(path: Path) -> str | None:
    """The token in a file that only this user can read and write; None if it is too old, or no token."""
    try:
        with path.open(encoding="utf-8") as file:
            found = os.fstat(file.fileno())
            text = file.read(64)
    except (OSError, ValueError):
        return None
    is_private = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    is_new = 0 <= time.time() - found.st_mtime <= KEPT_SECONDS
    return text if is_private and is_new and _TOKEN.fullmatch(text) else None


def _state_folder() -> Path:
    given = os.environ.get("XDG_STATE_HOME", "")
    base = Path(given) if given.startswith("/") else Path("~/.local/state").expanduser()
    return base / "trainflow"
