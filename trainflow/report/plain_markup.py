"""Values of templates without what would command a terminal or turn the direction of writing."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from trainflow.protocol.plain_text import plain_text


def plain_value(value: Any) -> Any:
    """A value for a template; text loses its control characters. For `jinja2.Environment(finalize=…)`."""
    if isinstance(value, Markup):
        return Markup(plain_text(str(value)))  # noqa: S704  (it was markup before)
    return plain_text(value) if isinstance(value, str) else value
