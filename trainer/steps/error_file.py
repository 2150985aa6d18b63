"""Report the exception that ended a rank, and the files that the program leaves.

A rank whose program is decorated with PyTorch's `record` writes its exception into the file TORCHELASTIC_ERROR_FILE.
torchrun copies that of the rank that failed first into the file that the same variable names for torchrun itself
(PyTorch documentation, "Error Propagation"; torch 2.9 and 2.13 do it alike). The container's termination message cannot
be that file: torchrun deletes an existing one first, which fails on a file that the kubelet has mounted, and that error
would hide the rank's. So the supervisor gives the program a file of its own, and writes what that file says into the
termination message.

Since the supervisor outlives the program, it also reports the files that the program has left in its working folder
(`trainer.lost_files`).
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainer import lost_files
from trainer.lost_files import Gang
from trainer.runtime.node import Node
from trainflow.protocol import variables
from trainflow.protocol.plan import Report
from trainflow.protocol.result import MAX_BYTES

ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
"""Variable of PyTorch: where an exception is written."""

MAX_FILE_BYTES = 1 << 20
"""Most of the file that is read."""


def reported(step: Report, node: Node, run: Callable[[Mapping[str, str]], int]) -> int:
    """Run a program, and report its exception and the files that it leaves; its exit code.

    Args:
        step: The step of the plan.
        node: This node.
        run: Runs the program with further environment variables, and returns its exit code.
    """
    working_folder, environment = Path.cwd(), node.environment
    began = lost_files.beginning(working_folder)
    code = _with_error_file(run, environment.result_file)
    if os.environ.get(variables.STAGE) == variables.TRAINING:
        not_searched = lost_files.places(os.environ, environment, map(Path, step.volumes))
        lost_files.report(
            working_folder, began, gang_of(node), not_searched, succeeded=code == 0, others=_private_folders(node)
        )
    return code


def _private_folders(node: Node) -> tuple[Path, ...]:
    """The pod's own folders; outside of a pod, they are also those of other programs."""
    if node.environment.result_file is None:
        return ()
    code = (Path(node.plan.code.folder),) if node.plan.code is not None else ()
    return (*code, *lost_files.private_folders(os.environ))


def _with_error_file(run: Callable[[Mapping[str, str]], int], result_file: Path | None) -> int:
    given = os.environ.get(ERROR_FILE)
    folder = Path(tempfile.mkdtemp(prefix="error-"))
    file = Path(given) if given else folder / "error.json"
    try:
        code = run({ERROR_FILE: str(file)})
        if code and result_file is not None:
            report(file, result_file)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return code


def gang_of(node: Node) -> Gang:
    """The gang of this node.

    The ranks of an elastic gang are assigned at run time. So each of its nodes has the name of its pod, and reports.
    """
    pod, elastic = os.environ.get(variables.POD_NAME), node.launch.elastic
    return lost_files.gang_of(
        os.environ,
        node.environment,
        node=pod or str(node.rank),
        num_nodes=elastic.min_nodes if elastic else node.launch.num_nodes,
        speaks=node.rank == 0,
    )


def report(file: Path, result_file: Path) -> None:
    """Write what an error file says into the result file, if the one exists and the other is empty.

    It never makes anything fail: without it, the last lines of the log are the termination message.
    """
    try:
        if result_file.exists() and result_file.stat().st_size:
            return
        with file.open("rb") as opened:
            document = json.loads(opened.read(MAX_FILE_BYTES))
        result_file.write_bytes(shortened(document))
    except (OSError, ValueError, RecursionError):
        return


def shortened(document: Any) -> bytes:
    """The document as JSON that fits the termination message: the beginning of the call stack is left out."""
    inner = document["message"] if isinstance(document, dict) and "message" in document else document
    if not isinstance(inner, dict):
        return _encoded({"message": str(inner)[: MAX_BYTES // 8]})
    info = inner.get("extraInfo")
    stack = str(info.get("py_callstack") or "") if isinstance(info, dict) else ""
    kept: dict[str, Any] = {"message": str(inner.get("message") or "")[: MAX_BYTES // 8]}
    if isinstance(inner.get("errorCode"), int):
        kept["errorCode"] = inner["errorCode"]
    while True:
        body = _encoded({"message": {**kept, "extraInfo": {"py_callstack": stack}}})
        if len(body) <= MAX_BYTES:
            return body
        stack = stack[len(stack) // 4 + 1 :]


def _encoded(document: Any) -> bytes:
    return json.dumps(document).encode()
