"""The decision behind the error of a failed job: fields that travel beside the message to record, page and mail.

Lambda reports the class of an exception and its text, and nothing else, so a judged error crosses the state machine as
`{"message": …, "rule": …, "line": …, "pod": …, "node": …}` in its text
(docs/decisions/0085-errors-have-one-table.md).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The evidence that decided the error of a failed job."""

    rule: str
    """Name of the rule in `table.toml`, or `named by the program`, `hang` or `default`."""
    line: str = ""
    """The line of the log that decided; empty if another evidence did."""
    pod: str | None = None
    """The pod that failed first; None if the error is about the job as a whole."""
    node: str | None = None
    """Its node; None if the job may be restarted and the failure says nothing about the node: no run avoids it then."""
    checkpoint: str | None = None
    """Path of the checkpoint that the program may have failed to open."""
    excerpt: tuple[str, ...] = ()
    """The lines around the one that decided, as every surface shows them (`trainflow.failures.excerpt`)."""
    place: str = ""
    """File and line of the program's own innermost call there; empty if it is not known."""
    rank: int | None = None
    """The rank that printed them; None if the log does not say so."""


def to_text(message: str, judgement: Judgement) -> str:
    """The text of a judged error, as the state machine carries it."""
    return json.dumps({"message": message, **asdict(judgement)}, ensure_ascii=False)


def from_text(text: str) -> tuple[str, Judgement | None]:
    """The message and judgement in an error's text; the text itself and None for an error that was not judged."""
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text, None
    if not isinstance(document, dict) or not {"message", "rule"} <= document.keys():
        return text, None
    known = {field.name: document[field.name] for field in fields(Judgement) if field.name in document}
    known["excerpt"] = tuple(map(str, known.get("excerpt") or ()))
    return str(document["message"]), Judgement(**known)
