"""The live page of `trainflow ui`, and the one beside a run that is followed in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from trainflow.cli.terminal import Console
from trainflow.client.owned_folder import OwnedFolder
from trainflow.client.place import FollowedRun, Runs
from trainflow.page.library import RunLibrary
from trainflow.page.reconnection import kept_key
from trainflow.page.server import PageServer


class PageBeside:
    """A page that is served while a run is followed."""

    def __init__(self, library: RunLibrary, server: PageServer, console: Console) -> None:
        self._library, self._server, self._console = library, server, console

    def show(self, run_id: str, followed: FollowedRun, *, log_dir: Path) -> None:
        """Show the run, which the caller observes into `log_dir`, and print the address of its page."""
        self._library.adopt(run_id, followed, log_dir=log_dir)
        print_address(self._console, self._server.url_of(f"/runs/{run_id}"))


@contextmanager
def page_beside(
    place: Runs, console: Console, *, folder: Path | None = None, name: str = "", words: tuple[str, ...] = ()
) -> Iterator[PageBeside | None]:
    """A page over the runs of a place; None if a port cannot be opened.

    Args:
        place: Where runs go on.
        console: Where to print the address.
        folder: Folder of the folders of this machine's ended runs; None for a deployment.
        name: Name of a deployment, for the title.
        words: Options of a command that name the place.
    """
    with ExitStack() as opened:
        if folder is None:
            folder = Path(opened.enter_context(OwnedFolder("trainflow-page-")))
        library = opened.enter_context(RunLibrary(folder=folder, place=place, name=name, words=words))
        try:
            server = PageServer(library)
        except OSError as refused:
            console.print(f"There is no page of this run: {refused.strerror}.", markup=False, highlight=False)
            yield None
            return
        yield PageBeside(library, opened.enter_context(server), console)


def serve(library: RunLibrary, *, port: int, console: Console, home: Path) -> None:
    """Serve a page until Ctrl-C; open pages of an earlier start on this port reconnect.

    Raises:
        OSError: If the port is taken.
    """
    with library, PageServer(library, port=port, key=kept_key(home)) as server:
        try:
            print_address(console, server.url)
            server.wait()
        except KeyboardInterrupt:
            return


def print_address(console: Console, address: str) -> None:
    """One line that a terminal makes a link of."""
    console.print(f"page  {address}", markup=False, highlight=False, soft_wrap=True)
