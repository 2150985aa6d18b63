"""Reconnects open pages after the command was started anew on their port.

Each start has a new token, and a page's cookie has the old one. The page proves that it came from the same person's
Trainflow: it signs a number that is used once, and the port that it came from, with a key that it got in its own text
and never sends (decision 106).
"""

# Decision 106: the token of an earlier start stays worthless.

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections import deque
from pathlib import Path

from trainflow.client.private_folder import make_private

FILE_NAME = "page-key"
MAX_OPEN = 32
"""Numbers that may wait for their proof at once; of more, the oldest are forgotten."""


class Reconnection:
    """Numbers to sign, and the check of their signatures."""

    def __init__(self, *, key: str, port: int) -> None:
        """Has asked for no proof yet.

        Args:
            key: The secret that pages of the same person have.
            port: Port of this server. A proof for another port is refused: whoever listens there could pass it on.
        """
        self.key, self.port = key, port
        self._open: deque[str] = deque(maxlen=MAX_OPEN)

    def number(self) -> str:
        """A number to sign, once."""
        self._open.append(secrets.token_hex(16))
        return self._open[-1]

    def is_proven(self, number: str, proof: str) -> bool:
        """Whether a number is one that was asked for, and signed with the key for this port."""
        if number not in self._open:
            return False
        self._open.remove(number)
        signed = hmac.new(self.key.encode(), f"{self.port} {number}".encode(), hashlib.sha256).hexdigest()
        return hmac.compare_digest(signed.encode(), proof.encode(errors="replace"))


def kept_key(folder: Path) -> str:
    """The key in a folder of this person, made by the first call; one for this start where it cannot be kept."""
    path = folder / FILE_NAME
    made = secrets.token_hex(32)
    try:
        make_private(folder)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(made)
        return made
    except FileExistsError:
        return _read(path) or made
    except OSError:
        return made


def _read(path: Path) -> str:
    """The key of a file that only its owner, who is this user, can read; empty for any other."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return ""
    with os.fdopen(file) as opened:
        facts = os.fstat(opened.fileno())
        is_private = facts.st_uid == os.getuid() and not facts.st_mode & 0o077
        text = opened.read(128).strip() if is_private else ""
    return text if len(text) == 64 and text.isalnum() and text.isascii() else ""
