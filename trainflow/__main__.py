"""The command, also as `python -m trainflow`, where its script is not on the PATH.

What interrupts it while its modules are loaded, and a disk that is full, end it with one sentence.
"""

from __future__ import annotations

import errno
import sys

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a disk, or of a user's part of it, that is full."""

ABORTED = 130
"""128 + SIGINT, as shells have it."""


def main() -> None:
    """Run the command that the arguments name."""
    try:
        from trainflow.cli.main import app

        app(prog_name="trainflow")
    except KeyboardInterrupt:  # while modules are loaded or commands are built; later ones are the command's
        print("Stopped before anything was done.", file=sys.stderr)
        sys.exit(ABORTED)
    except SystemExit as end:
        # While typer reads the arguments, it ends the program without a word.
        if isinstance(getattr(end.__context__, "__cause__", None), KeyboardInterrupt):
            print("Stopped before the command had ended.", file=sys.stderr)
        raise
    except OSError as error:
        if error.errno not in FULL:
            raise
        where = f" {error.filename}" if error.filename else " a file"
        print(
            f"trainflow: {where.strip()} cannot be written: {error.strerror}. Free some space first.", file=sys.stderr
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
