"""One line of a program's log, as every backend hands it over."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple


class LogLine(NamedTuple):
    """One complete line of a container's log. Millions are made of a long log, so it is the cheapest of types."""

    logged_at: datetime
    text: str
