"""Warning about a missing file that was there and was not packed."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainflow.protocol.placeholders import WORKING_FOLDER
from trainflow.workflow.run_error import RunError

MISSING = re.compile(r"No such file or directory:? '?\"?([^'\"\s]+)|FileNotFoundError: .{0,100}?'([^']+)'")
"""A missing file, as Python and C libraries report it."""

_IN_WORKING_FOLDER = re.compile(rf"^/(?:.*?/)?(?:\.trainflow/{WORKING_FOLDER}/\d+|{WORKING_FOLDER})/")
"""Beginning of a full path in the folder of the code, or in a copy of it below the run's folder."""


def left_out_warnings(spec: Mapping[str, Any], error: RunError | None) -> list[str]:
    """A sentence that names the file which the program did not find, if Git ignores it in the folder of the code.

    Args:
        spec: The run spec, which may be invalid.
        error: Error of the run.
    """
    workload = spec.get("workload")
    left_out = workload.get("code_left_out") if isinstance(workload, Mapping) else None
    if error is None or not isinstance(left_out, list):
        return []
    for path in _missing(f"{error.line}\n{error.message}"):
        if (name := _left_out(path, map(str, left_out))) is not None:
            return [
                f"The program did not find {path}: the file is in the folder of the code, but .gitignore names {name}, "
                "so it was not packed. Stage it as a data set, or add an exception to .gitignore, such as "
                f"!{name}, if it is small."
            ]
    return []


def _missing(text: str) -> Iterator[str]:
    for found in MISSING.finditer(text):
        path = found[1] or found[2]
        yield posixpath.normpath(_IN_WORKING_FOLDER.sub("", path))


def _left_out(path: str, names: Iterable[str]) -> str | None:
    return next((name for name in names if path == name.rstrip("/") or path.startswith(name.rstrip("/") + "/")), None)
