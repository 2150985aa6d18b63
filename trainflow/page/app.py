"""The page's addresses and what they answer."""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from trainflow.client.place import RunNotFound
from trainflow.errors import TrainflowError
from trainflow.page.access import Guard
from trainflow.page.axes import STEP
from trainflow.page.curves import Window, titles_of_all
from trainflow.page.library import RunLibrary, RunNow
from trainflow.page.logs import first_error, read_tail, search
from trainflow.page.moments import with_moments
from trainflow.page.reconnection import Reconnection
from trainflow.page.view import field_rows, list_rows, run_context, scaling_rows
from trainflow.report.plain_markup import plain_value

REPORT_STYLE = "report.css"
"""Style of the static report, which the page adds to."""

ASSETS = {
    "page.css": "text/css",
    "uPlot.min.css": "text/css",
    "uPlot.iife.min.js": "text/javascript",
    "run.js": "text/javascript",
    "charts.js": "text/javascript",
    "log.js": "text/javascript",
    "graph.js": "text/javascript",
    "shared.js": "text/javascript",
    "times.js": "text/javascript",
    "copy.js": "text/javascript",
    "runs.js": "text/javascript",
    "compare.js": "text/javascript",
    "plots.js": "text/javascript",
    "morph.js": "text/javascript",
    "connection.js": "text/javascript",
}
"""The page's own files and their types."""

FRAGMENTS = ("head", "figures", "notices", "strip", "expectation", "workflow", "states", "pods")
"""Parts of a run's page that change while it goes on, each a template of its own."""

REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'unsafe-inline'"
)
"""The report includes its own style and script, and a policy that allows only that script. Here it gets an origin of
its own, which may not read the page."""

POLL_SECONDS = 0.5
"""Time between two polls of an open page. A page that kept a stream open would hold one of the six connections that a
browser opens to a host (HTTP/1.1), and the seventh page would never load."""

WATCHED_SECONDS = 2.0
"""Seconds since its last poll while a page counts as open."""

MAX_COMPARED = 8
"""Maximum number of runs on one plot: more colours cannot be distinguished."""


class PageApp:
    """The page over a library of runs."""

    def __init__(
        self,
        library: RunLibrary,
        *,
        form_token: str,
        is_closing: Callable[[], bool] = lambda: False,
        reconnection: Reconnection | None = None,
    ) -> None:
        """Prepares the answers.

        Args:
            library: The runs.
            form_token: What a request that changes something has to bring beside the cookie: only the page has it.
            is_closing: Whether the server is about to end, so that open pages have to know.
            reconnection: How pages of an earlier start are known again; None for a start that none can know.
        """
        self._reconnection = reconnection or Reconnection(key=secrets.token_hex(32), port=0)
        self._start = hashlib.sha256(form_token.encode()).hexdigest()[:12]
        self._library, self._form_token, self._is_closing = library, form_token, is_closing
        self._polls = OpenPages()
        self._templates = Environment(
            loader=PackageLoader("trainflow.page", "templates"),
            autoescape=select_autoescape(default=True, default_for_string=True),
            undefined=StrictUndefined,
            finalize=plain_value,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._everywhere = {
            "place": library.name,
            "address": quote,
            "start": self._start,
            "key": self._reconnection.key,
            "port": self._reconnection.port,
        }
        self._templates.filters["with_moments"] = with_moments
        self.asgi = Starlette(
            routes=[
                Route("/", self.runs),
                Route("/list", self.list),
                Route("/compare", self.compare),
                Route("/compare/curves", self.compare_curves),
                Route("/assets/{name}", self.asset),
                Route("/runs/{run_id}", self.run),
                Route("/runs/{run_id}/news", self.news),
                Route("/runs/{run_id}/curves", self.curves),
                Route("/runs/{run_id}/logs/{pod}", self.log),
                Route("/runs/{run_id}/report", self.report),
                Route("/runs/{run_id}/stop", self.stop, methods=["POST"]),
                Route("/runs/{run_id}/resume", self.resume, methods=["POST"]),
            ],
            exception_handlers={RunNotFound: _respond_404, TrainflowError: _unavailable},
        )

    def guarded(self, *, token: str, port: int) -> Guard:
        """The application behind its token."""
        return Guard(self.asgi, token=token, port=port, start=self._start, reconnection=self._reconnection)

    async def runs(self, _: Request) -> Response:
        """The list of runs."""
        return self._page("runs.html.j2", await self._list_context())

    async def list(self, _: Request) -> Response:
        """The lines of the list only, for updates of the page."""
        return self._page("_list.html.j2", await self._list_context())

    async def run(self, request: Request) -> Response:
        """A run's page."""
        context = await self._run_context(request.path_params["run_id"])
        return self._page("run.html.j2", {**context, "form_token": self._form_token})

    async def news(self, request: Request) -> Response:
        """Parts of a run's page that changed since its last poll: those whose digests the page does not have."""
        page, closing = request.query_params.get("page", ""), self._is_closing()  # asked first: then that is all
        context = await self._run_context(request.path_params["run_id"])
        seen = frozenset(request.query_params.getlist("seen"))
        is_over = not context["is_running"]
        answer = {
            **self._news(context, seen),
            "log_pod": context["log_pod"],
            "is_over": is_over,
            "milliseconds": round(POLL_SECONDS * 1000),
        }
        self._polls.note(page, has_all=is_over or closing)
        return JSONResponse(answer)

    def has_told_all(self) -> bool:
        """Whether every open page has heard of the end."""
        return self._polls.has_told_all()

    async def curves(self, request: Request) -> Response:
        """The curves of a run in a window."""
        now = await run_in_threadpool(self._library.run, request.path_params["run_id"])
        window = parse_window(request.query_params)
        payload = await run_in_threadpool(lambda: now.curves().payload(window))
        marks = [vars(mark) for mark in now.marks if window.first <= mark.step <= window.last]
        return JSONResponse({**payload, "marks": marks})

    async def log(self, request: Request) -> Response:
        """The end of a pod's log, what was added to it, the lines with a text in them, or the first error."""
        now = await run_in_threadpool(self._library.run, request.path_params["run_id"])
        log = await run_in_threadpool(now.log, request.path_params["pod"])
        if log is None:
            return PlainTextResponse("There is no log of this pod here.\n", status_code=404)
        state = {"note": log.note, "isGrowing": log.is_growing, "isBehind": log.is_behind}
        if request.query_params.get("first_error"):
            error = now.snapshot.error
            known = error.line if error is not None and error.pod == request.path_params["pod"] else ""
            return JSONResponse({"text": known or await run_in_threadpool(first_error, log.path), **state})
        text = request.query_params.get("search", "")
        if text:
            found = await run_in_threadpool(search, log.path, text)
            return JSONResponse({"found": found.lines, "total": found.total, **state})
        since = request.query_params.get("since", "")
        tail = await run_in_threadpool(read_tail, log.path, since=int(since) if since.isdecimal() else None)
        return JSONResponse({"lines": tail.lines, "offset": tail.offset, "isWhole": tail.is_whole, **state})

    async def report(self, request: Request) -> Response:
        """The static report of an ended run."""
        now = await run_in_threadpool(self._library.run, request.path_params["run_id"])
        if now.report is None:
            return PlainTextResponse("This run has left no report here.\n", status_code=404)
        return FileResponse(now.report, media_type="text/html", headers={"content-security-policy": REPORT_POLICY})

    async def stop(self, request: Request) -> Response:
        """Stop a run."""
        if not self._is_from_page(request):
            return _stale()
        run_id = request.path_params["run_id"]
        await run_in_threadpool(self._library.run, run_id)
        await run_in_threadpool(self._library.stop, run_id)
        return PlainTextResponse("Stopped.\n")

    async def resume(self, request: Request) -> Response:
        """Start a run that continues an ended one; its id."""
        if not self._is_from_page(request):
            return _stale()
        run_id = request.path_params["run_id"]
        await run_in_threadpool(self._library.run, run_id)
        return JSONResponse({"run_id": await run_in_threadpool(self._library.resume, run_id)})

    async def compare(self, request: Request) -> Response:
        """Several runs on one plot, and the differences of their specs."""
        names = compared(request.query_params.getlist("run"))
        runs = [await run_in_threadpool(self._library.run, name) for name in names]
        curves = [await run_in_threadpool(run.curves) for run in runs]
        snapshots = [run.snapshot for run in runs]
        context = {
            "run_ids": names,
            "fields": field_rows(snapshots),
            "scaling": scaling_rows(snapshots),
            "metrics": titles_of_all(curves),
            "axes": {name: title for each in curves for name, title in each.counts().items()},
            "page_title": "Compare runs",
        }
        return self._page("compare.html.j2", context)

    async def compare_curves(self, request: Request) -> Response:
        """One metric of several runs."""
        window, name = parse_window(request.query_params), request.query_params.get("metric", "loss")
        curves = []
        for run_id in compared(request.query_params.getlist("run")):
            now = await run_in_threadpool(self._library.run, run_id)
            metric = await run_in_threadpool(_metric, now, name, window)
            curves.append({"run": run_id, "metric": metric})
        return JSONResponse({"curves": curves})

    async def asset(self, request: Request) -> Response:
        """A file of the page."""
        name = request.path_params["name"]
        if name == REPORT_STYLE:
            return Response(
                await run_in_threadpool((files("trainflow.report") / name).read_bytes), media_type="text/css"
            )
        if name not in ASSETS:
            return PlainTextResponse("There is no such file.\n", status_code=404)
        content = await run_in_threadpool((files("trainflow.page") / "assets" / name).read_bytes)
        return Response(content, media_type=ASSETS[name])

    def _is_from_page(self, request: Request) -> bool:
        """Whether a request that changes something has the token that only the page knows."""
        given = request.headers.get("x-trainflow-token", "")
        return hmac.compare_digest(given.encode(), self._form_token.encode())

    def _news(self, context: Mapping[str, Any], seen: frozenset[str]) -> dict[str, Any]:
        """The parts, the announcement and the version of the curves, as far as the page has others; their digests."""
        parts = {name: self._render(f"_{name}.html.j2", context) for name in FRAGMENTS}
        values = {**parts, "announcement": context["announcement"], "curves": str(context["curves_version"])}
        digests = {name: f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}" for name, text in values.items()}
        fresh = {name: text for name, text in values.items() if digests[name] not in seen}
        return {
            "parts": {name: text for name, text in fresh.items() if name in FRAGMENTS},
            "announcement": fresh.get("announcement"),
            "curves": fresh.get("curves"),
            "seen": list(digests.values()),
        }

    async def _run_context(self, run_id: str) -> dict[str, Any]:
        now = await run_in_threadpool(self._library.run, run_id)
        drawing = await run_in_threadpool(self._library.drawings.of_run, run_id)
        context = await run_in_threadpool(run_context, now, drawing, self._library)
        return {**context, "curves_version": now.steps_version, "page_title": f"{context['name']} · run"}

    async def _list_context(self) -> dict[str, Any]:
        try:
            rows = list_rows(await run_in_threadpool(self._library.summaries), datetime.now(UTC))
            trouble = ""
        except TrainflowError as error:
            rows, trouble = [], str(error)
        return {
            "rows": rows,
            "has_owners": len({row.owner for row in rows}) > 1,
            "has_teams": any(row.team for row in rows),
            "trouble": trouble,
            "page_title": "Runs",
            "max_compared": MAX_COMPARED,
        }

    def _page(self, template: str, context: Mapping[str, Any]) -> Response:
        return HTMLResponse(self._render(template, context))

    def _render(self, template: str, context: Mapping[str, Any]) -> str:
        return self._templates.get_template(template).render({**self._everywhere, **context})


class OpenPages:
    """Pages that poll, so that the server ends after they have heard of the end."""

    def __init__(self) -> None:
        """Knows of none yet."""
        self._polled: dict[str, float] = {}

    def note(self, page: str, *, has_all: bool) -> None:
        """Remember a poll, unless the page has received all data of this server."""
        if has_all:
            self._polled.pop(page, None)
        else:
            self._polled[page] = time.monotonic()

    def has_told_all(self) -> bool:
        """Whether every page that has polled a moment ago has heard of the end."""
        since = time.monotonic() - WATCHED_SECONDS
        return not any(at > since for at in list(self._polled.values()))


def parse_window(query: Mapping[str, str]) -> Window:
    """The window that an address asks for; parameters that are not numbers are ignored."""
    return Window(
        first=_number(query.get("from"), -math.inf),
        last=_number(query.get("to"), math.inf),
        points=int(_number(query.get("points"), 600)),
        smoothing=_number(query.get("smoothing"), 0.0),
        axis=query.get("axis", STEP),
    )


def compared(run_ids: list[str]) -> list[str]:
    """The runs to compare, each once."""
    return list(dict.fromkeys(run_ids))[:MAX_COMPARED]


def _number(text: str | None, default: float) -> float:
    try:
        value = float(text) if text else default
    except ValueError:
        return default
    return value if math.isfinite(value) else default


def _metric(now: RunNow, name: str, window: Window) -> dict[str, Any] | None:
    return now.curves().metric(name, window)


def _stale() -> Response:
    return PlainTextResponse("The page is of an earlier server: load it anew, and try again.\n", status_code=403)


async def _respond_404(_: Request, error: Exception) -> Response:
    return PlainTextResponse(f"{error}\n", status_code=404)


async def _unavailable(_: Request, error: Exception) -> Response:
    return PlainTextResponse(f"{error}\n", status_code=503)
