"""Compile a training's graphs before the gang needs them.

`python -m trainer.precompile -- torchrun … -m trainer.pretrain …`: where `neuron_parallel_compile` is installed it
does the work; elsewhere the program runs under TRAINFLOW_PRECOMPILE=1 and compiles with TorchInductor. Both end with
the same lines, which are counted here. Whoever of the gang prints none (rank 0 is on another node) has no result.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType

from trainer import environment, result
from trainer.errors import BAD_INPUT

NEURON_COMPILER = "neuron_parallel_compile"

_TOTAL = re.compile(r"Total (graphs|successful compilations|failed compilations|cached graphs): (\d+)\s*$")
_NAMES = {
    "graphs": "graphs",
    "successful compilations": "succeeded",
    "failed compilations": "failed",
    "cached graphs": "cached",
}


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the command so that it only compiles, pass its output on, and count the graphs in it.

    Returns:
        The command's exit code; 1 if it ended well although a graph failed; 2 if there is no command.
    """
    command = list(argv[1:] if argv[:1] == ["--"] else argv)
    if not command:
        print("Give the training's command: python -m trainer.precompile -- torchrun …", file=sys.stderr)
        return BAD_INPUT
    result_file = environment.read(environ).result_file
    compiler = shutil.which(NEURON_COMPILER, path=environ.get("PATH"))
    exit_code, totals = _run([compiler, *command] if compiler else command, {**environ, **_mode(compiler)})
    if totals.get("failed"):
        message = f"{totals['failed']} of {totals.get('graphs', 0)} graphs failed to compile; read this job's log."
        result.write(result.failure("GraphCompilationFailed", message), result_file)
        return exit_code or 1
    if exit_code == 0 and totals:
        result.write(result.success(totals), result_file)
    return exit_code


def totals_in(lines: Iterable[str]) -> dict[str, int]:
    """The last count of each kind in a log."""
    found = (_TOTAL.search(line) for line in lines)
    return {_NAMES[match[1]]: int(match[2]) for match in found if match}


def _mode(compiler: str | None) -> dict[str, str]:
    """What tells the program to compile only; `neuron_parallel_compile` says it in its own way."""
    return {} if compiler else {"TRAINFLOW_PRECOMPILE": "1"}


def _run(command: Sequence[str], environ: Mapping[str, str]) -> tuple[int, dict[str, int]]:
    """Run a command, hand SIGTERM on to it, and read the counts out of what it prints."""
    try:
        process = subprocess.Popen(
            command, env=dict(environ), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
    except OSError as error:
        print(f"The command {command[0]!r} cannot be started ({error}).", file=sys.stderr)
        return BAD_INPUT, {}

    def hand_on(signum: int, _frame: FrameType | None) -> None:
        process.send_signal(signum)

    signal.signal(signal.SIGTERM, hand_on)
    counts = totals_in(_passed_on(process.stdout or ()))
    code = process.wait()
    return (code if code >= 0 else 128 - code), counts


def _passed_on(lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        print(line, end="", flush=True)
        yield line


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
