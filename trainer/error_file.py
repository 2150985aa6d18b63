"""Hand on the exception that ended a rank: `python -m trainer.error_file -- torchrun …`.

A rank whose program is decorated with PyTorch's `record` writes its exception into the file TORCHELASTIC_ERROR_FILE.
torchrun copies that of the rank that failed first into the file that the same variable names for torchrun itself
(PyTorch documentation, "Error Propagation"; torch 2.9 and 2.13 do it alike). The container's termination message cannot
be that file: torchrun deletes an existing one first, which fails on a file that the kubelet has mounted, and that error
would hide the rank's. So this program starts the command as its child, and writes what its file says into the
termination message.

Since it outlives the program, it also reports the files that the program has left in its working folder
(`trainer.lost_files`).

Signals go to the command, whose exit code is this program's; 128 and the signal's number for one that was killed.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from trainer import lost_files
from trainer.lost_files import Gang
from trainer.runtime import program
from trainer.runtime.arguments import divided, parse
from trainer.runtime.commands import exit_code, launcher_flag, node_rank, started
from trainer.runtime.environment import Environment
from trainer.runtime.errors import ConfigInvalid
from trainflow.protocol import variables
from trainflow.protocol.result import MAX_BYTES

ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
"""Variable of PyTorch: where an exception is written."""

MAX_FILE_BYTES = 1 << 20
"""Most of the file that is read."""


TRAINING = "training"
"""Stage whose files are results: a precompilation runs the same program for a few steps."""


@dataclass(frozen=True, kw_only=True)
class ErrorFileConfig:
    """Folders that the program may write to, besides its working folder; the command follows after `--`."""

    volumes: tuple[Path, ...] = ()
    """Mount paths of the volumes of the spec."""


def main(argv: Sequence[str], environment: Environment) -> NoReturn:
    """Run the command, and report the exception and the files that it leaves."""
    own, command = divided(argv)
    if not command:
        raise ConfigInvalid("Give the program behind `--`: python -m trainer.error_file -- torchrun …")
    config = parse(ErrorFileConfig, own, program="trainer.error_file")
    folder = Path.cwd()
    began = lost_files.beginning(folder)
    code = run(command, environment.result_file)
    if os.environ.get(variables.STAGE) == TRAINING:
        not_searched = lost_files.places(os.environ, environment, config.volumes)
        lost_files.report(folder, began, gang_of(command, environment), not_searched, succeeded=code == 0)
    sys.exit(code)


def gang_of(command: Sequence[str], environment: Environment) -> Gang:
    """The gang that a launcher's command names.

    The ranks of an elastic gang are assigned at run time. So each of its nodes has the name of its pod, and reports.
    """
    pod = os.environ.get(variables.POD_NAME)
    fewest = (launcher_flag(command, "--nnodes") or "").partition(":")[0]
    rank = node_rank(command)
    return lost_files.gang_of(
        os.environ,
        environment,
        node=pod or str(rank),
        num_nodes=int(fewest) if fewest.isdecimal() else 1,
        speaks=rank == 0,
    )


def run(command: Sequence[str], result_file: Path | None) -> int:
    """Run the command; its exit code.

    Args:
        command: The program and its words.
        result_file: Where the error is reported, unless the program has left a result there itself.
    """
    given = os.environ.get(ERROR_FILE)
    folder = Path(tempfile.mkdtemp(prefix="error-"))
    file = Path(given) if given else folder / "error.json"
    try:
        code = exit_code(started(command, {ERROR_FILE: str(file)}))
        if code and result_file is not None:
            report(file, result_file)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return code


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


if __name__ == "__main__":
    sys.exit(program.run(main, sys.argv[1:], os.environ))
