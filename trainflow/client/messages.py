"""Messages about a run that its twin has kept as mails."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from email import message_from_bytes
from email.policy import default
from email.utils import parsedate_to_datetime
from pathlib import Path

MESSAGES = Path("logs", "twin", "messages")
"""Folder of the messages below a run's folder."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message to the owner of a run."""

    subject: str
    sent_at: datetime
    text: str


def kept_messages(folder: Path) -> list[Message]:
    """The messages about a run, the first one first; none of a run that has sent none.

    Args:
        folder: The run's folder.
    """
    return [_read(path) for path in sorted((folder / MESSAGES).glob("*.eml"))]


def _read(path: Path) -> Message:
    mail = message_from_bytes(path.read_bytes(), policy=default)
    body = mail.get_body()
    return Message(
        subject=str(mail["Subject"] or ""),
        sent_at=parsedate_to_datetime(str(mail["Date"])) if mail["Date"] else datetime.fromtimestamp(0, UTC),
        text=str(body.get_content()).rstrip("\n") if body is not None else "",
    )
