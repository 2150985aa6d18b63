"""Files that are written whole or not at all: a reader never meets half a file, and a full disk leaves none."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainflow.client.private_folder import make_private


def write_text(path: Path, text: str) -> Path:
    """Write a text, in a folder that is made if it is missing.

    Raises:
        OSError: With the path, if the file cannot be written.
    """
    make_private(path.parent)
    with replaced(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
    return path


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A path beside a file, to write to; it is renamed to the file at the end of the block, and removed after an error.

    Raises:
        OSError: With the file's path, if it cannot be written.
    """
    # Short, since the file's own name may be as long as a name may be.
    unfinished = path.with_name(f".{os.getpid()}-{threading.get_ident()}.unfinished")
    try:
        yield unfinished
        unfinished.replace(path)
    except OSError as error:  # that of a full disk names no file
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        unfinished.unlink(missing_ok=True)
