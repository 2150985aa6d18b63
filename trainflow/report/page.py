"""The report: one HTML file that needs nothing else, made of the run record and rank 0's steps."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from trainflow.links import execution_link, object_link
from trainflow.models.run_record import MetricsPublished, Pod, RunRecord, RunStatus
from trainflow.protocol.metrics_line import StepMetrics
from trainflow.record.build import overhead_by_state
from trainflow.record.wording import count, duration, number, rate
from trainflow.report.charts import charts
from trainflow.report.timeline import timeline

EVENT_QUOTA = 25_000
"""History events that an execution may have (Step Functions quotas)."""

STATUS_IN_WORDS = {
    RunStatus.RUNNING: "Running",
    RunStatus.SUCCEEDED: "Succeeded",
    RunStatus.FAILED: "Failed",
    RunStatus.ABORTED: "Aborted",
    RunStatus.TIMED_OUT: "Timed out",
}

CACHE_IN_WORDS = {
    "hit": "every graph came from the cache",
    "miss": "every graph was compiled anew",
    "partial": "some graphs came from the cache",
}

MAX_OVERHEAD_ROWS = 8
"""States whose overhead is shown in a row of their own; the others are added up."""

SHORTEST_OVERHEAD_SECONDS = 0.05
"""States with less overhead are added up."""


@dataclass(frozen=True)
class KeyFigure:
    """One number that summarises a run."""

    label: str
    value: str
    note: str = ""
    tone: str = ""
    """`good` or `bad` if the number is."""


@dataclass(frozen=True)
class OverheadRow:
    """A state's share of the time without a running pod."""

    label: str
    seconds: str
    percent: float


@dataclass(frozen=True)
class PodRow:
    """A line of the pods' table."""

    pod: Pod
    label: str
    """Its name without the run id that all of them begin with."""
    stage: str
    duration: str
    log: str | None
    """Path of its log, relative to the report."""
    is_rank0: bool


def render_report(
    record: RunRecord,
    steps: Sequence[StepMetrics],
    *,
    logs: Collection[str] = (),
    folder: str | None = None,
    now: datetime | None = None,
) -> str:
    """The report of a run as an HTML page.

    Args:
        record: The record of the run.
        steps: Logged steps in their order, each once.
        logs: Names of the files that lie in `logs/` beside the report.
        folder: s3://bucket/prefix/ of a report that is read from S3, where a browser opens one object at a time and
            links to neighbours lead nowhere; None of one that lies in a folder on disk.
        now: The end of the timeline of a run that is still running.
    """
    script = _resource("report.js")
    end = record.ended_at or now
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            record=record,
            name=record.spec.get("name") or record.run_id,
            status=STATUS_IN_WORDS[record.status],
            period=_period(record.started_at, end),
            figures=_figures(record, end),
            overhead=_overhead_rows(record) if record.overhead_seconds is not None else [],
            was_watched=record.overhead_seconds is not None,
            files=_files(record, folder),
            execution_link=execution_link,
            timeline=timeline(record, now=now),
            charts=charts(steps),
            pods=_pod_rows(record, set(logs)),
            executions=[
                (execution, execution.arn.rsplit(":", 1)[-1], round(100 * execution.events / EVENT_QUOTA, 2))
                for execution in record.executions
            ],
            event_quota=EVENT_QUOTA,
            spec=yaml.safe_dump(record.spec, sort_keys=False, allow_unicode=True),
            diagnostics=[_finding(finding) for finding in record.diagnostics],
            style=_resource("report.css"),
            script=script,
            script_hash=_csp_hash(script),
        )
    )


def _files(record: RunRecord, folder: str | None) -> list[tuple[str, str]]:
    """The run's files in S3 with their pages of the console; none for a report on disk, or without an execution."""
    if folder is None or not record.executions:
        return []
    urls = (f"{folder}run.json", f"{folder}report.html")
    return [(url, object_link(url, record.executions[0].arn)) for url in urls]


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("trainflow.report", "."),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(prose=_prose)
    return environment


def _resource(name: str) -> str:
    return (files("trainflow.report") / name).read_text(encoding="utf-8")


def _csp_hash(script: str) -> str:
    """Hash with which the page's security policy allows this script and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _period(start: datetime, end: datetime | None) -> str:
    """`2026-11-21 09:30:00 – 09:32:10 UTC`; the day again only where it is another one."""
    start = start.astimezone(UTC)
    if end is None:
        return f"since {start:%Y-%m-%d %H:%M:%S} UTC"
    end = end.astimezone(UTC)
    day = "" if end.date() == start.date() else f"{end:%Y-%m-%d} "
    return f"{start:%Y-%m-%d %H:%M:%S} – {day}{end:%H:%M:%S} UTC"


def _prose(text: str) -> Markup:
    """Text with the parts between backticks set as code; everything in it is escaped."""
    parts = [escape(part) for part in text.split("`")]
    if len(parts) % 2 == 0:  # a backtick without its partner is just a character
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if odd % 2 else part for odd, part in enumerate(parts)
    )


def _figures(record: RunRecord, end: datetime | None) -> list[KeyFigure]:
    seconds = (end - record.started_at).total_seconds() if end else None
    figures = [KeyFigure("Duration", duration(seconds) if seconds is not None else "–", "from start to end")]
    if record.overhead_seconds is not None:
        share = f"{record.overhead_seconds / seconds:.0%} of it " if seconds else ""
        figures.append(KeyFigure("Overhead", duration(record.overhead_seconds), f"{share}without a running pod"))
    if record.training is not None:
        training = record.training
        losses = f"{number(training.first_loss)} → {number(training.last_loss)}"
        figures += [
            KeyFigure("Steps", f"{training.steps:,}", "of the optimizer"),
            KeyFigure("Loss", losses, "first → last step, in nats"),
            KeyFigure("Sequences/s", rate(training.sequences_per_second), "median, all ranks together"),
        ]
    if record.compile is not None:
        compiled = record.compile
        tone = "bad" if compiled.failed else "good" if compiled.cache == "hit" else ""
        note = f"{count(compiled.graphs, 'graph')}; {CACHE_IN_WORDS.get(compiled.cache, compiled.cache)}"
        figures.append(KeyFigure("Compile cache", compiled.cache, note, tone))
    if record.metrics_published is not None:
        figures.append(_published_figure(record.metrics_published))
    return figures


def _published_figure(published: MetricsPublished) -> KeyFigure:
    faults = [
        count(published.gaps, "gap") if published.gaps else "",
        count(published.duplicates, "duplicate") if published.duplicates else "",
        f"lines lost in {count(published.log_rotations, 'log rotation')}" if published.log_rotations else "",
    ]
    said = ", ".join(fault for fault in faults if fault)
    if published.gaps is None and not said:
        return KeyFigure("Metrics published", f"{published.datapoints:,}", "steps, by the workflow's own count")
    note = said or "as in rank 0's log: no gap, no duplicate"
    return KeyFigure("Metrics published", f"{published.datapoints:,}", note, "bad" if said else "good")


def _overhead_rows(record: RunRecord) -> list[OverheadRow]:
    """Where the overhead went, longest first."""
    told = sorted(overhead_by_state(record).items(), key=lambda entry: -entry[1])
    shown = [entry for entry in told[:MAX_OVERHEAD_ROWS] if entry[1] >= SHORTEST_OVERHEAD_SECONDS]
    rest = [seconds for _, seconds in told[len(shown) :] if seconds > 0]
    if shown and sum(rest) >= SHORTEST_OVERHEAD_SECONDS:
        shown.append((count(len(rest), "other state"), sum(rest)))
    longest = max((seconds for _, seconds in shown), default=1.0)
    return [OverheadRow(label, duration(seconds), round(100 * seconds / longest, 2)) for label, seconds in shown]


def _pod_rows(record: RunRecord, logs: set[str]) -> list[PodRow]:
    return [
        PodRow(
            pod=pod,
            label=pod.name.removeprefix(f"{record.run_id}-"),
            stage=stage,
            duration=_pod_duration(pod),
            log=f"logs/{pod.name}.log" if f"{pod.name}.log" in logs else None,
            is_rank0=pod.name == job.rank0,
        )
        for stage, job in record.jobs.items()
        for pod in job.pods
    ]


def _pod_duration(pod: Pod) -> str:
    if pod.started_at is None or pod.finished_at is None:
        return "–"
    return duration((pod.finished_at - pod.started_at).total_seconds())


def _finding(finding: Mapping[str, Any]) -> dict[str, Any]:
    """A diagnosis, sorted into its title, its facts and its log lines, whatever fields it has."""
    lines = finding.get("last_lines")
    text = "\n".join(map(str, lines)) if isinstance(lines, list) else str(lines or "")
    facts = {
        str(key).replace("_", " "): value
        for key, value in finding.items()
        if key not in ("pod", "last_lines") and value is not None
    }
    return {"title": str(finding.get("pod") or "Diagnosis"), "facts": facts, "text": text}
