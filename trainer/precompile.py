"""Compile a training's graphs before the gang needs them.

`python -m trainer.precompile -- torchrun … -m trainer.pretrain …`. Where `neuron_parallel_compile` is installed, it
does the work; elsewhere the program runs under TRAINFLOW_PRECOMPILE=1 and compiles with TorchInductor. Both print the
same last lines, which are counted here. A node whose process prints none of them (rank 0 is on another node) does not
write a result.

Jobs of the workflow do the same as a step of their plan (`trainer.supervisor`).

The cache, TRAINFLOW_CACHE_DIR, belongs only to this gang. The gang's first node prepares the folder before it joins
the other nodes, which wait for it, and completes the folder after they have ended.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainer.runtime import environment
from trainer.runtime.commands import SignalForwarding, exit_code, node_rank
from trainer.runtime.errors import BAD_INPUT, GraphCompilationFailed, TrainerError
from trainer.runtime.files import leave_result
from trainer.steps import compile_cache
from trainflow.protocol import result, variables
from trainflow.protocol.compiler_log import CompilerLog

NEURON_COMPILER = "neuron_parallel_compile"

RETRY_FAILED = "--retry_failed"
"""Option to compile graphs again that failed before; without it, Neuron's cache keeps a failure as it keeps a graph."""

RETRY_FLAG = "--retry_failed_compilation"
"""The same option in NEURON_CC_FLAGS (AWS Neuron documentation, "Neuron Persistent Cache")."""


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the command so that it only compiles, copy its output, and count the graphs that the output names.

    Returns:
        The command's exit code; 1 if it succeeded although a graph failed; 2 if the command is missing.
    """
    try:
        return _precompile(argv, environ)
    except TrainerError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        if result_file := environ.get(variables.RESULT_FILE):
            leave_result(result.failure(type(error).__name__, str(error)), Path(result_file))
        return error.exit_code


def _precompile(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    again = list(argv[:1]) == [RETRY_FAILED]
    command = list(argv[again:])
    command = command[1:] if command[:1] == ["--"] else command
    if not command:
        print("Give the training's command: python -m trainer.precompile -- torchrun …", file=sys.stderr)
        return BAD_INPUT
    return compiled(command, environ, again=again, is_first_node=node_rank(command) == 0)


def compiled(command: Sequence[str], environ: Mapping[str, str], *, again: bool, is_first_node: bool) -> int:
    """Run a command so that it only compiles, and count the graphs.

    Args:
        command: The program and its words.
        environ: Its environment variables.
        again: Whether graphs that failed before are compiled again.
        is_first_node: Whether this node prepares the cache and seals it.

    Returns:
        The command's exit code; 1 if it succeeded although a graph failed; 2 if it cannot be started.
    """
    place = environment.read(environ)
    compiler = shutil.which(NEURON_COMPILER, path=environ.get("PATH"))
    cache = place.cache_dir if is_first_node else None
    if cache is not None:
        compile_cache.begin(cache)
        if compiler and again:
            # An attempt that was killed leaves locks, and a compiler that meets one waits forever.
            subprocess.run([compiler, "--command", "clear-locks"], env=dict(environ), check=False)
    environ = {**environ, **_mode(compiler, environ, again=again)}
    code, log = _run([compiler, *command] if compiler else command, environ)
    if log.totals.get("failed"):
        message = f"{log.failure(again=again)}; read this job's log."
        print(message, file=sys.stderr, flush=True)
        leave_result(result.failure(GraphCompilationFailed.__name__, message), place.result_file)
        return code or 1
    if code == 0 and cache is not None:
        compile_cache.finish(cache, log.totals)
    if code == 0 and log.totals:
        leave_result(result.success(log.totals), place.result_file)
    return code


def _mode(compiler: str | None, environ: Mapping[str, str], *, again: bool) -> dict[str, str]:
    """Environment that makes the program compile only; `neuron_parallel_compile` sets its own variables."""
    if not compiler:
        return {variables.PRECOMPILE: "1"}
    flags = environ.get("NEURON_CC_FLAGS", "")
    return {"NEURON_CC_FLAGS": f"{flags} {RETRY_FLAG}".strip()} if again and RETRY_FLAG not in flags else {}


def _run(command: Sequence[str], environ: Mapping[str, str]) -> tuple[int, CompilerLog]:
    """Run a command, forward signals to it, and read its output."""
    log, signals = CompilerLog(), SignalForwarding()
    try:
        process = subprocess.Popen(
            command, env=dict(environ), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
    except OSError as error:
        print(f"The command {command[0]!r} cannot be started ({error}).", file=sys.stderr)
        return BAD_INPUT, log
    signals.forward_to(process)
    for line in process.stdout or ():
        print(line, end="", flush=True)
        log.read(line)
    return exit_code(process), log


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
