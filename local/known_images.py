"""Which images exist for the twin's nodes: those of `images.txt` in its home, or all of them without that file."""

from __future__ import annotations

from pathlib import Path

FILE_NAME = "images.txt"


def known_images(home: Path) -> tuple[str, ...]:
    """Images that nodes can pull, one a line, whose names are as in specs; empty lines and those that begin with # are
    left out. Nothing where there is no file: every image exists then.

    Raises:
        ValueError: If the file cannot be read, or names none: no pod could start. The message is one sentence for the
            user.
    """
    file = home / FILE_NAME
    if not file.is_file():
        return ()
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read ({error}); write one image a line, as text in UTF-8.") from None
    lines = (line.strip() for line in text.splitlines())
    images = tuple(line for line in lines if line and not line.startswith("#"))
    if not images:
        raise ValueError(f"{file} names no image; write one a line, or remove it so that every image exists.")
    return images
