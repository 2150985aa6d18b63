"""Text of programs as harmless text: without the sequences and characters that command a terminal.

A program, a file name or a service chooses the text, and a person reads it in a terminal, a page or a mail. A terminal
would execute some of it: change its title, clear the screen, write to the clipboard, or write over what was there.
"""

from __future__ import annotations

import re

_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, movements of the cursor (ECMA-48, 5.4)
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC (5.6)
    r"|\x1b[ -/]*[0-~]?"  # other escapes (ECMA-35, 13.2)
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
"""Controls of ECMA-48 except tab and line feed, and characters that change the direction of writing (UAX 9)."""

_RETURNS = re.compile(r"\r+(?=\n|\Z)")
_OVERWRITTEN = re.compile(r"[^\n\r]*\r")


def plain_text(text: str) -> str:
    """The text without control sequences and control characters; tabs and ends of lines stay.

    Of a line that was written over, such as that of a progress bar, the last state stays. What no terminal shows as
    a character is left out; the rest is not changed.
    """
    if text.isprintable():
        return text
    shown = _RETURNS.sub("", _SEQUENCE.sub("", text))
    return _CONTROL.sub("", _OVERWRITTEN.sub("", shown))


def plain_line(text: str) -> str:
    """The same on one line: ends of lines and tabs become blanks."""
    return " ".join(plain_text(text).split())
