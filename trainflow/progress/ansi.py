"""Control sequences of terminals, which programs print into logs as well."""

from __future__ import annotations

import re

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_=>78])")


def without_colours(text: str) -> str:
    """The text without colours, movements of the cursor, and links (ECMA-48: CSI and OSC sequences)."""
    return _SEQUENCE.sub("", text) if "\x1b" in text else text
