"""A local run that outlives its terminal: the run has a session of its own, and another process shows it.

The two share a pipe: the attending process writes the person's wishes into it. Its end without `detach` means that the
attending process was killed: the run stops then, as it would have without it.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from trainflow.background import Worker
from trainflow.cli.exit_status import refuse
from trainflow.client.hints import HOME, OUT, local_hint
from trainflow.client.private_folder import make_private

HOLD, SHOW, DETACH = b"hold\n", b"show\n", b"detach\n"

STOP, LEAVE, GO_ON = "s", "d", "g"
"""Answers to the question that follows Ctrl-C."""

CONSOLE_LOG = "console.log"
"""File in the run's folder for what a detached run prints."""

SHOW_CURSOR = "\x1b[?25h"
"""The live view hides it (ECMA-48, DECTCEM)."""


class Attendant:
    """The run's side: announces the run, and does what the attending process asks for."""

    def __init__(self, announce_to: int) -> None:
        """Begin to listen on standard input.

        Args:
            announce_to: File descriptor for the run's id; the other process waits for it.
        """
        self._announce_to = announce_to
        self._folder: Path | None = None
        self._showing = threading.Event()
        self._showing.set()
        Worker(self._listen, name="attendant", on_error=self._leave).start()

    def announce(self, run_id: str, folder: Path) -> None:
        """Tell the run's id; `folder` is the run's."""
        self._folder = folder
        with os.fdopen(self._announce_to, "w") as pipe:
            pipe.write(f"{run_id}\n")

    def wait_until_shown(self) -> None:
        """Wait while the person is being asked something."""
        self._showing.wait()

    def _listen(self) -> None:
        # Without a buffer: its lock, held by a thread that waits, would abort the interpreter's end.
        with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as words:
            for word in words:
                if word == HOLD:
                    self._showing.clear()
                elif word == SHOW:
                    self._showing.set()
                elif word == DETACH:
                    self._detach()
                    return
        os.kill(os.getpid(), signal.SIGTERM)
        self._showing.set()

    def _leave(self, error: BaseException) -> None:
        """End as when the attending process has gone: nobody could end the run any more."""
        traceback.print_exception(error)
        os.kill(os.getpid(), signal.SIGTERM)
        self._showing.set()

    def _detach(self) -> None:
        """Print to a file from now on: the terminal may be gone."""
        folder = self._folder or Path(tempfile.gettempdir())
        with (folder / CONSOLE_LOG).open("ab") as log:
            for stream in (sys.stdout, sys.stderr):
                os.dup2(log.fileno(), stream.fileno())
        self._showing.set()


def run_detached(arguments: Sequence[str], *, out: Path, home: Path = HOME) -> int:
    """Start a run that goes on without a terminal. Prints its id on the last line.

    Args:
        arguments: The command with its arguments: `run` or `resume`.
        out: Folder of the runs' folders.
        home: The twin's buckets and shared file system.

    Returns:
        The command's exit status: that of the run where it did not begin.
    """
    try:
        make_private(out)
    except OSError as error:
        refuse(f"--out {out}: the folder cannot be made ({error.strerror}); name another one.")
    log = out / f".{CONSOLE_LOG}.{os.getpid()}"
    with log.open("wb") as printed:
        child, announced = _start(arguments, printed.fileno())
    with os.fdopen(announced) as pipe:
        run_id = pipe.readline().strip()
    if not run_id:
        status = child.wait()
        said = log.read_text(errors="replace")
        sys.stderr.write(
            said or f"trainflow: the run did not begin, and could not say why in {log}: is the disk full?\n"
        )
        log.unlink()
        return _exit_status(status)
    log.replace(out / run_id / CONSOLE_LOG)
    _say(child, DETACH)
    hint = local_hint("watch", run_id, out=out, home=home)
    print(f"The run goes on without this terminal: {hint}", file=sys.stderr)
    print(run_id)
    return 0


def run_attended(arguments: Sequence[str], *, out: Path = OUT, home: Path = HOME) -> int:
    """Show a run in this terminal until it ends or the person detaches from it.

    Args:
        arguments: The command with its arguments: `run` or `resume`.
        out: Folder of the runs' folders.
        home: The twin's buckets and shared file system.

    Returns:
        The command's exit status: the run's, or 0 if it goes on.
    """
    child, announced = _start(arguments, None)

    def leave(_number: int, _frame: object) -> NoReturn:
        _say(child, DETACH)
        os._exit(0)  # the terminal is gone: nobody reads a word

    signal.signal(signal.SIGHUP, leave)
    signal.signal(signal.SIGTERM, lambda *_: child.send_signal(signal.SIGTERM))
    run_id = ""
    while True:
        try:
            return _exit_status(child.wait())
        except KeyboardInterrupt:
            run_id = run_id or _announced(announced)
            answer = _asked(child) if run_id else STOP
        if answer == STOP:
            child.send_signal(signal.SIGINT)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one must not stop the stopping
        elif answer == LEAVE:
            _say(child, DETACH)
            watch, stop = (local_hint(command, run_id, out=out, home=home) for command in ("watch", "stop"))
            print(f"{SHOW_CURSOR}The run goes on: {watch}, {stop}")
            return 0
        _say(child, SHOW)


def _start(arguments: Sequence[str], output: int | None) -> tuple[subprocess.Popen[bytes], int]:
    """The run's process, and the descriptor that it announces the run on."""
    announced, announce_to = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-m", "trainflow", *arguments, "--announce-to", str(announce_to)],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        pass_fds=(announce_to,),
        start_new_session=True,
    )
    os.close(announce_to)
    return child, announced


def _say(child: subprocess.Popen[bytes], word: bytes) -> None:
    assert child.stdin is not None, "it is a pipe"  # noqa: S101
    try:
        child.stdin.write(word)
        child.stdin.flush()
    except BrokenPipeError:  # the run has ended meanwhile
        return


def _asked(child: subprocess.Popen[bytes]) -> str:
    """See `ask`; Ctrl-C again and a closed input mean stop: the run ends with its terminal unless it is detached."""
    _say(child, HOLD)
    print(SHOW_CURSOR, end="")
    return ask(otherwise=STOP)


def ask(*, otherwise: str) -> str:
    """Ask a person who has typed Ctrl-C what to do about the run.

    Args:
        otherwise: The answer for Ctrl-C again, or for a closed input.

    Returns:
        `STOP`, `LEAVE` or `GO_ON`.
    """
    try:
        answer = input("\nStop the run, detach from it, or go on watching? [s/d/G] ").strip().lower()[:1]
    except (KeyboardInterrupt, EOFError):
        return otherwise
    return answer if answer in (STOP, LEAVE) else GO_ON


def _announced(descriptor: int) -> str:
    """The run's id if it has begun; nothing otherwise."""
    ready, _, _ = select.select([descriptor], [], [], 0)
    return os.read(descriptor, 256).decode().strip() if ready else ""


def _exit_status(code: int) -> int:
    return code if code >= 0 else 128 - code
