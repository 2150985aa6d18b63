"""Keeps the messages that are published to SNS topics as files, since the twin sends no mail.

A file has the form of a mail (RFC 5322), so that a mail program opens it. moto 5.2.5 keeps messages in memory only.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from itertools import count
from pathlib import Path
from typing import Any

from local.aws.replacements import replace
from trainflow.client.private_folder import make_private


def serve(folder: Path) -> None:
    """Write every message below this folder, each in a file of its own."""
    from moto.sns.models import Topic

    publish, numbers = Topic.publish, count(1 + len(list(folder.glob("*.eml"))))

    def publish_and_keep(self: Any, message: str, subject: str | None = None, **options: Any) -> str:
        make_private(folder)
        (folder / f"{next(numbers):04}.eml").write_bytes(_mail(message, subject, options.get("message_structure")))
        message_id: str = publish(self, message, subject=subject, **options)
        return message_id

    replace(Topic, "publish", publish_and_keep)


def _mail(message: str, subject: str | None, structure: str | None) -> bytes:
    """A message as its subscribers by e-mail get it: the form `email` or `default` of one with several."""
    forms = json.loads(message) if structure == "json" else {"default": message}
    mail = EmailMessage()
    mail["Subject"] = subject or ""
    mail["Date"] = format_datetime(datetime.now(UTC))
    mail.set_content(forms.get("email", forms["default"]))
    return mail.as_bytes()
