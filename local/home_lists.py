"""Text files in a twin's home with one name a line; they stand for settings of a deployment."""

from __future__ import annotations

from pathlib import Path


def listed_names(file: Path, *, kind: str) -> tuple[str, ...] | None:
    """The names in a file; empty lines and those that begin with # are left out. None without a file.

    Args:
        file: The file.
        kind: Kind of the names, for messages, such as `image`.

    Raises:
        ValueError: If the file cannot be read. The message is one sentence for the user.
    """
    if not file.is_file():
        return None
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read ({error}); write one {kind} a line, as text in UTF-8.") from None
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))
