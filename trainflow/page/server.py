"""The page's server: a thread of the command that shows it, on loopback, for as long as the command goes on."""

from __future__ import annotations

import secrets
import socket
import threading
import time
import traceback
from types import TracebackType
from typing import TYPE_CHECKING, Self

from trainflow.background import Worker

if TYPE_CHECKING:
    import uvicorn

    from trainflow.page.app import PageApp
    from trainflow.page.library import RunLibrary

LOOPBACK = "127.0.0.1"

GOODBYE_SECONDS = 3.0
"""Seconds until an open page must have received the end."""


class PageServer:
    """Serves a library of runs while its context is open.

    The port is taken at once, so that the address can be printed; what the server imports is imported in its thread
    (0.15 s of processor time on the machine of benchmarks/results/page.json), and a browser waits that long at most.
    """

    def __init__(self, library: RunLibrary, *, port: int = 0, key: str | None = None) -> None:
        """Takes the port.

        Args:
            library: What to show.
            port: Where to listen; 0 lets the operating system choose.
            key: What lets pages of an earlier start on this port reconnect; None for a start that none can know.

        Raises:
            OSError: If the port is taken.
        """
        self._library, self._key = library, key or secrets.token_hex(32)
        self._token = secrets.token_urlsafe(32)  # 256 bits
        self._socket = socket.create_server((LOOPBACK, port))
        self.port: int = self._socket.getsockname()[1]
        self._closing, self._ended = threading.Event(), threading.Event()
        self._server: uvicorn.Server | None = None
        self._thread = Worker(self._serve, name="page", on_error=traceback.print_exception)
        self._app: PageApp | None = None

    @property
    def url(self) -> str:
        """The address that opens the page."""
        return self.url_of("/")

    def url_of(self, path: str) -> str:
        """The address that opens a part of the page."""
        return f"http://{LOOPBACK}:{self.port}{path}?token={self._token}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send open pages the end of what they show, and close the port."""
        self._library.ask_again()
        self._closing.set()
        deadline = time.monotonic() + GOODBYE_SECONDS
        while self._app is not None and not self._app.has_told_all() and time.monotonic() < deadline:
            time.sleep(0.02)
        if self._server is not None:
            self._server.should_exit = True
        if self._ended.wait(GOODBYE_SECONDS):  # otherwise it still uses the port, which goes with the process then
            self._thread.join()
            self._socket.close()

    def wait(self) -> None:
        """Serve until the thread ends, or Ctrl-C."""
        # Not `Thread.join`: Python 3.11 takes a thread for ended when Ctrl-C interrupts that (threading.py,
        # `_wait_for_tstate_lock`), and the port was closed while it was in use.
        while not self._ended.wait(0.5):
            pass

    def _serve(self) -> None:
        try:
            self._serve_until_closed()
        finally:
            self._ended.set()

    def _serve_until_closed(self) -> None:
        import uvicorn

        from trainflow.page.app import PageApp
        from trainflow.page.reconnection import Reconnection

        page = PageApp(
            self._library,
            form_token=secrets.token_urlsafe(32),
            is_closing=self._closing.is_set,
            reconnection=Reconnection(key=self._key, port=self.port),
        )
        self._app = page
        config = uvicorn.Config(
            page.guarded(token=self._token, port=self.port),
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)
        self._library.drawings.installed()  # reads the definition (0.2 s) before a person clicks, not after
        if not self._closing.is_set():
            self._server.run(sockets=[self._socket])
