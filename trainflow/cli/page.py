"""The live page of `trainflow ui`, and the one beside a run that is followed in the terminal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from trainflow.client.place import FollowedRun, Runs
from trainflow.errors import TrainflowError
from trainflow.page.library import RunLibrary
from trainflow.page.server import PageServer


class PageBeside:
    """A page that is served while a run is followed."""

    def __init__(self, library: RunLibrary, server: PageServer, folder: Path, console: Console) -> None:
        self._library, self._server, self._folder, self._console = library, server, folder, console

    def show(self, run_id: str, followed: FollowedRun) -> None:
        """Show the run, which the caller observes, and print the address of its page."""
        self._library.adopt(run_id, followed, log_dir=self._folder / "logs")
        print_address(self._console, self._server.url_of(f"/runs/{run_id}"))


@contextmanager
def page_beside(place: Runs, folder: Path, console: Console) -> Iterator[PageBeside | None]:
    """A page over the runs of a place and of the folder that holds `folder`; None if there is no port for it.

    Args:
        place: Where runs go on.
        folder: The folder of the run that is followed.
        console: Where to print the address.
    """
    with RunLibrary(folder=folder.parent, place=place) as library:
        try:
            server = PageServer(library)
        except OSError as refused:
            console.print(f"There is no page of this run: {refused.strerror}.", markup=False, highlight=False)
            yield None
            return
        with server:
            yield PageBeside(library, server, folder, console)


class NotResumed(TrainflowError):
    """A run of this machine was not continued; the message says why."""

    input_at_fault = True


def resume_in_background(run_id: str, *, out: Path, home: Path) -> str:
    """Start a run of this machine that continues another, in a process that outlives this one; its id.

    Raises:
        NotResumed: With the command's sentence; nothing was started then.
    """
    words = ("resume", run_id, "--local", "--detach", "--no-page", "--out", str(out), "--home", str(home))
    done = subprocess.run(
        [sys.executable, "-m", "trainflow", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"`trainflow resume` ended with {done.returncode}."]
        raise NotResumed(said[-1].removeprefix("trainflow: "))
    return done.stdout.splitlines()[-1]


def serve(library: RunLibrary, *, port: int, console: Console) -> None:
    """Serve a page until Ctrl-C.

    Raises:
        OSError: If the port is taken.
    """
    with library, PageServer(library, port=port) as server:
        print_address(console, server.url)
        try:
            server.wait()
        except KeyboardInterrupt:
            return


def print_address(console: Console, address: str) -> None:
    """One line that a terminal makes a link of."""
    console.print(f"page  {address}", markup=False, highlight=False, soft_wrap=True)
