"""Start a helper from the folder of `trainer.helpers.install`: `python FOLDER PROGRAM …`.

This file is the folder's `__main__.py`. The workload's image brings the Python that reads it, so the file is written
for Python 3.6 and newer: one that is too old for the helpers prints a sentence instead of a syntax error. Python puts
the folder first on the path of only this process; a program that replaces the process searches the path of its image.
"""

import runpy
import sys

OLDEST = (3, 10)
"""Oldest Python that runs the helpers: PyTorch from 2.9 on and the S3 client (boto3) need it too."""

PROGRAMS = ("announce", "limit_steps", "precompile", "probe", "supervisor")
"""Modules of `trainer` that are helpers. They need nothing but Python."""

IN_TRAININGS = ("node_test",)
"""Modules that a helper starts where the image has PyTorch."""

BAD_INPUT = 2


def main(argv: "list[str]", version: "tuple[int, ...]") -> int:
    """Replace this program by a helper, with the helper's arguments.

    Args:
        argv: Name of the helper, and its arguments.
        version: Major and minor version of the running Python.

    Returns:
        The exit code if no helper can be started.
    """
    if version < OLDEST:
        asked, found = (".".join(map(str, numbers)) for numbers in (OLDEST, version))
        return _refuse(
            f"The image's `python` is {found}, but Trainflow's helpers need Python {asked} or newer; choose an image "
            "with a newer one."
        )
    if not argv or argv[0] not in PROGRAMS + IN_TRAININGS:
        return _refuse("Name one of Trainflow's helpers: {}.".format(", ".join(PROGRAMS)))
    sys.argv = list(argv)  # runpy replaces the first one by the module's file
    runpy.run_module("trainer." + argv[0], run_name="__main__", alter_sys=True)
    return 0


def _refuse(sentence: str) -> int:
    sys.stderr.write(sentence + "\n")  # the last line of the log explains a program that leaves no result
    return BAD_INPUT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.version_info[:2]))
