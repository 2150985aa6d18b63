"""Which images exist for the twin's nodes: those of `images.txt` in its home, or all of them without that file."""

from __future__ import annotations

from pathlib import Path

from local.home_lists import listed_names

FILE_NAME = "images.txt"


# Decision 54: the twin pulls no images, so a person may list those that exist.
def known_images(home: Path) -> tuple[str, ...]:
    """Images that nodes can pull, whose names are as in specs. Nothing without a file: every image exists then.

    Raises:
        ValueError: If the file cannot be read, or names none: no pod could start. The message is one sentence for the
            user.
    """
    file = home / FILE_NAME
    images = listed_names(file, kind="image")
    if images == ():
        raise ValueError(f"{file} names no image; write one a line, or remove it so that every image exists.")
    return images or ()
