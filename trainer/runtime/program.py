"""The entry point of every program of the trainer: it reports the result or the error, and sets the exit code."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

from trainer.runtime import environment
from trainer.runtime.environment import Environment
from trainer.runtime.errors import Terminated, TrainerError
from trainer.runtime.files import leave_result
from trainflow.protocol import result, variables

SECONDS_TO_SPEAK = 2.0
"""Time that rank 0 has to report an error that all ranks meet; they meet it within a second of each other."""

Main = Callable[[Sequence[str], Environment], Mapping[str, Any] | None]
"""Arguments and environment in, result out; None if this process does not report a result."""


def run(main: Main, argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a program and report how it ended.

    Args:
        main: The program.
        argv: Its arguments, without the program's name.
        environ: Its environment variables.

    Returns:
        The exit code: 0, 2 for bad input, 143 after SIGTERM, 1 for anything unexpected.
    """
    place = Environment(data_dir=None, run_dir=None, result_file=None)
    try:
        place = environment.read(environ)
        outcome = main(argv, place)
    except TrainerError as error:
        _report(error, place)
        _let_the_speaker_finish(error, place)
        return error.exit_code
    except Exception as error:  # noqa: BLE001 (the program's edge: reported in full, never swallowed)
        traceback.print_exc()
        _write(result.failure(type(error).__name__, f"{type(error).__name__}: {error}"), place)
        return 1
    if outcome is not None:
        print(json.dumps(outcome, ensure_ascii=False), flush=True)
        _write(result.success(outcome), place)
    return 0


def leave(exit_code: int) -> NoReturn:
    """End a process that ran torch's threads, without the interpreter's clean-up.

    A thread of torch that asks for Python while Python is being taken apart aborts the process ("terminate called
    without an active exception": seen in 2 of 30 gangs, with torch 2.13), and a training that had succeeded would
    end as a failure. Results, checkpoints and events are closed by then.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def raise_on_sigterm() -> None:
    """Turn SIGTERM into an exception, so that `finally` clauses clean up."""

    def terminate(_signum: int, _frame: FrameType | None) -> None:
        raise Terminated("Stopped by SIGTERM; nothing half-done was left behind, so the same command can run again.")

    signal.signal(signal.SIGTERM, terminate)


def _report(error: TrainerError, place: Environment) -> None:
    name = type(error).__name__
    if place.speaks_for_the_gang or not error.is_common:
        print(f"{name}: {error}", file=sys.stderr, flush=True)
    if error.is_cause and (place.speaks_for_the_pod or not error.is_common):
        _write(result.failure(name, str(error)), place)


def _let_the_speaker_finish(error: TrainerError, place: Environment) -> None:
    """On other ranks, wait until rank 0 has reported an error that every rank meets.

    torchrun kills rank 0 as soon as the first other rank has ended.
    """
    if error.is_common and not place.speaks_for_the_pod:
        with suppress(Terminated):  # the launcher ends the rest of the gang
            time.sleep(SECONDS_TO_SPEAK)


def _write(document: Mapping[str, Any], place: Environment) -> None:
    try:
        leave_result(document, place.result_file)
    except OSError as error:
        print(f"{variables.RESULT_FILE}: {error}; the result was {dict(document)}", file=sys.stderr, flush=True)
