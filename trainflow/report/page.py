"""The report: one HTML file that needs nothing else, made of the run record and rank 0's steps."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from statistics import mean
from typing import Any
from urllib.parse import quote

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from trainflow.links import execution_link, object_link
from trainflow.observed.step import Step
from trainflow.record.build import overhead_by_state
from trainflow.record.last_lines import Part, last_own_line, parts
from trainflow.record.pod_messages import cause
from trainflow.record.restarts_in_words import restarts_in_words
from trainflow.record.results import status_suffix
from trainflow.record.run_commands import pasted
from trainflow.record.wording import count, duration, owner_facts, rate, significant, size, usd
from trainflow.report.charts import TITLES, charts
from trainflow.report.plain_markup import plain_value
from trainflow.report.published_figures import PROGRAM, published_figure
from trainflow.report.timeline import timeline
from trainflow.spec.section import NAME
from trainflow.workflow.event_bound import HISTORY_QUOTA
from trainflow.workflow.run_record import Cost, MetricsPublished, Pod, RunRecord, RunStatus, Training

STATUS_IN_WORDS = {
    RunStatus.STARTING: "Starting",
    RunStatus.RUNNING: "Running",
    RunStatus.SUCCEEDED: "Succeeded",
    RunStatus.FAILED: "Failed",
    RunStatus.ABORTED: "Stopped",
    RunStatus.TIMED_OUT: "Timed out",
}


def status_in_words(status: RunStatus, warnings: Sequence[str]) -> str:
    """The status for people; a success with warnings is not a plain success."""
    return f"{STATUS_IN_WORDS[status]}{status_suffix(status, warnings)}"


CACHE_IN_WORDS = {
    "hit": "every graph came from the cache",
    "miss": "every graph was compiled anew",
    "partial": "some graphs came from the cache",
}

MAX_OVERHEAD_ROWS = 8
"""States whose overhead is shown in a row of their own; the others are added up."""

MAX_OWN_FIGURES = 4
"""Figures of the program's own that are shown as key figures; all have their curve."""

SMALLEST_COST_SHARE = 0.01
"""States with a smaller part of the largest cost are added up."""

MAX_CHECKPOINT_ROWS = 10
"""Checkpoints that are shown; the record has more."""

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
    summary: str
    """Last line of its message."""
    message: list[Part]
    """The whole message, if it has more than that line."""


@dataclass(frozen=True)
class CheckpointRow:
    """A line of the checkpoints' table."""

    step: str
    saved: str
    """Time after the start of the run."""
    age: str
    """Time before the end of the run."""
    size: str
    url: str | None


@dataclass(frozen=True)
class RestartRow:
    """A line of the restarts' table."""

    stage: str
    attempt: int
    at: str
    """Time after the start of the run."""
    last_step: str
    error: str
    summary: str
    message: list[Part]


@dataclass(frozen=True)
class CostRow:
    """A state's share of the cost."""

    label: str
    node_hours: str
    usd: str
    percent: float


@dataclass(frozen=True)
class Comparison:
    """The run's throughput beside the published one."""

    recipe: str
    published: str
    own: str
    share: str
    source: str
    url: str


def render_report(
    record: RunRecord,
    steps: Sequence[Step],
    *,
    logs: Collection[str] = (),
    folder: str | None = None,
    now: datetime | None = None,
    words: Sequence[str] = (),
) -> str:
    """The report of a run as an HTML page.

    Args:
        record: The record of the run.
        steps: Logged steps in their order, each once.
        logs: Names of the files that lie in `logs/` beside the report.
        folder: s3://bucket/prefix/ of a report that is read from S3, where a browser opens one object at a time and
            links to neighbours lead nowhere; None of one that lies in a folder on disk.
        now: The end of the timeline of a run that is still running.
        words: Options of a command that name the run's place.
    """
    script = _resource("report.js")
    end = record.ended_at or now
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            record=record,
            to_do=pasted(record.error.what_to_do, record.run_id, words) if record.error else "",
            name=record.spec.get("name") or record.run_id,
            status=status_in_words(record.status, record.warnings),
            period=_period(record.started_at, end),
            owner_facts=owner_facts(record),
            figures=_figures(record, end),
            overhead=_overhead_rows(record) if record.overhead_seconds is not None else [],
            was_watched=record.overhead_seconds is not None,
            files=_files(record, folder),
            lineage=_lineage(record, folder),
            execution_link=execution_link,
            timeline=timeline(record, now=now),
            charts=charts(steps, restarts=record.restarts, checkpoints=record.checkpoints),
            nodes=nodes_of(record),
            comparison=_comparison(record),
            restarts=_restart_rows(record),
            checkpoints=_checkpoint_rows(record, end),
            cost=record.cost,
            cost_rows=_cost_rows(record.cost) if record.cost is not None else [],
            inputs=_input_facts(record),
            loss_unit="nats" if _is_ours(record) else "",
            pods=_pod_rows(record, set(logs)),
            executions=[
                (execution, execution.arn.rsplit(":", 1)[-1], round(100 * execution.events / HISTORY_QUOTA, 2))
                for execution in record.executions
            ],
            event_quota=HISTORY_QUOTA,
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


def _lineage(record: RunRecord, folder: str | None) -> list[tuple[str, str | None]]:
    """The runs that this one continues, the newest first, each with the address of its report; None where that is not
    known. Folders of runs lie beside each other, on disk and in S3."""
    earlier = record.spec.get("resume_from")
    named = earlier if isinstance(earlier, list) else []  # a refused spec may say anything
    runs = [run for run in named if isinstance(run, str) and re.fullmatch(NAME, run)]
    if folder is None:
        return [(run, f"../{quote(run, safe='')}/report.html") for run in runs]
    beside = folder.removesuffix(f"{record.run_id}/")
    arn = record.executions[0].arn if record.executions else None
    return [(run, object_link(f"{beside}{run}/report.html", arn) if arn else None) for run in runs]


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("trainflow.report", "."),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        finalize=plain_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(prose=_prose)
    return environment


def _resource(name: str) -> str:
    return (files("trainflow.report") / name).read_text(encoding="utf-8")


def _csp_hash(script: str) -> str:
    """Hash of this script for the page's security policy, which allows no other."""
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


def busy_figure(of: str, by_node: Mapping[str, float], when: str) -> KeyFigure:
    """Utilization of the nodes.

    Args:
        of: The measured resource, such as `NeuronCores`.
        by_node: Per cent, by the nodes' names; not empty.
        when: The time that the figures are of.
    """
    values = by_node.values()
    lowest, highest = f"{min(values):.0f}", f"{max(values):.0f}"
    spread = f", each from {lowest} to {highest} %" if lowest != highest else ""
    return KeyFigure(f"{of} busy", f"{mean(values):.0f} %", f"of {count(len(values), 'node')}, {when}{spread}")


DURING_TRAINING = "mean of the training"


def _figures(record: RunRecord, end: datetime | None) -> list[KeyFigure]:
    seconds = (end - record.started_at).total_seconds() if end else None
    figures = [KeyFigure("Duration", duration(seconds) if seconds is not None else "–", "from start to end")]
    if record.overhead_seconds is not None:
        share = f"{record.overhead_seconds / seconds:.0%} of it " if seconds else ""
        figures.append(KeyFigure("Overhead", duration(record.overhead_seconds), f"{share}without a running pod"))
    if record.training is not None:
        training = record.training
        figures.append(KeyFigure("Steps", f"{training.steps:,}", "of the optimizer"))
        if training.last_loss is not None:
            losses = f"{significant(training.first_loss)} → {significant(training.last_loss)}"
            figures.append(KeyFigure("Loss", losses, "first → last step"))
        if training.sequences_per_second is not None:
            speed = rate(training.sequences_per_second)
            figures.append(KeyFigure(f"{training.throughput_of.capitalize()}/s", speed, "median, all ranks together"))
        if training.non_finite_steps:
            first = f"first at step {training.first_non_finite_step:,}" if training.first_non_finite_step else ""
            figures.append(KeyFigure("Loss not finite", count(training.non_finite_steps, "step"), first, "bad"))
        figures += _own_figures(training)
    if record.nodes_busy is not None and record.nodes_busy.by_node:
        figures.append(busy_figure(record.nodes_busy.of, record.nodes_busy.by_node, DURING_TRAINING))
    if record.restarts:
        words = restarts_in_words(record.restarts, record.avoided_nodes)
        figures.append(KeyFigure("Restarts", f"{len(record.restarts):,}", words))
    if record.checkpoints:
        figures.append(_checkpoint_figure(record, end))
    if record.cost is not None:
        hours = f"{record.cost.node_hours:,.1f} node-hours"
        figures.append(KeyFigure("Cost (estimate)", usd(record.cost.usd), f"{hours} at the on-demand price"))
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
        f"{count(published.moved, 'data point')} moved to the time of their poll" if published.moved else "",
        f"{count(published.dropped, 'data point')} not taken by CloudWatch" if published.dropped else "",
        f"{count(published.unparsable_lines, 'line')} that could not be read" if published.unparsable_lines else "",
    ]
    said = ", ".join(fault for fault in faults if fault)
    left_out = f"; {count(published.non_finite, 'step')} without a finite loss" if published.non_finite else ""
    if published.gaps is None and not said:
        return KeyFigure("Metrics published", f"{published.datapoints:,}", f"steps, by the workflow's count{left_out}")
    note = (said or "as in rank 0's log: no gap, no duplicate") + left_out
    return KeyFigure("Metrics published", f"{published.datapoints:,}", note, "bad" if said else "good")


def _own_figures(training: Training) -> list[KeyFigure]:
    """The newest values of the program's own figures, with the units of those whose meaning is fixed."""
    figures = []
    for name, value in list(training.last_metrics.items())[:MAX_OWN_FIGURES]:
        title, unit = TITLES.get(name, (name, ""))
        note = f"{unit}, newest value" if unit else "newest value, as the program says it"
        figures.append(KeyFigure(title, significant(value), note))
    return figures


def _checkpoint_figure(record: RunRecord, end: datetime | None) -> KeyFigure:
    newest = record.checkpoints[-1]
    value = f"step {newest.step:,}" if newest.step is not None else size(newest.size_bytes)
    if newest.saved_at is None or end is None:
        return KeyFigure("Checkpoint", value, "the newest")
    age = duration(max(0.0, (end - newest.saved_at).total_seconds()))
    when = "old" if record.status is RunStatus.RUNNING else "before the end"
    return KeyFigure("Checkpoint", value, f"the newest, {age} {when}")


def nodes_of(record: RunRecord) -> str:
    """`2 × trn1.32xlarge`; empty where it is not known."""
    compute = record.spec.get("compute")
    described: Mapping[str, Any] = compute if isinstance(compute, Mapping) else {}
    name, number_of = record.instance_type or described.get("instance_type"), described.get("num_nodes")
    return f"{number_of} × {name}" if name and number_of else ""


def _is_ours(record: RunRecord) -> bool:
    workload = record.spec.get("workload")
    return isinstance(workload, Mapping) and workload.get("module") == PROGRAM


def _comparison(record: RunRecord) -> Comparison | None:
    figure = published_figure(record)
    own = record.training.sequences_per_second if record.training else None
    if figure is None or own is None:
        return None
    return Comparison(
        recipe=figure.recipe,
        published=rate(figure.sequences_per_second),
        own=rate(own),
        share=f"{own / figure.sequences_per_second:.0%}",
        source=figure.source,
        url=figure.url,
    )


def _after_start(record: RunRecord, moment: datetime | None) -> str:
    if moment is None:
        return "–"
    return duration(max(0.0, (moment - record.started_at).total_seconds()))


def _restart_rows(record: RunRecord) -> list[RestartRow]:
    return [
        RestartRow(
            stage=restart.stage,
            attempt=restart.attempt,
            at=_after_start(record, restart.at),
            last_step="–" if restart.last_step is None else f"{restart.last_step:,}",
            error=restart.error,
            summary=last_own_line(restart.message),
            message=_unless_one_line(restart.message),
        )
        for restart in record.restarts
    ]


def _checkpoint_rows(record: RunRecord, end: datetime | None) -> list[CheckpointRow]:
    """The newest checkpoints, newest first."""
    return [
        CheckpointRow(
            step="–" if saved.step is None else f"{saved.step:,}",
            saved=_after_start(record, saved.saved_at),
            age="–"
            if saved.saved_at is None or end is None
            else duration(max(0.0, (end - saved.saved_at).total_seconds())),
            size=size(saved.size_bytes),
            url=saved.url,
        )
        for saved in reversed(record.checkpoints[-MAX_CHECKPOINT_ROWS:])
    ]


def _cost_rows(cost: Cost) -> list[CostRow]:
    longest = max(state.node_hours for state in cost.states)
    several = len({state.instance_type for state in cost.states}) > 1
    shown = [state for state in cost.states if state.node_hours >= SMALLEST_COST_SHARE * longest]
    rest = [state for state in cost.states if state not in shown]
    rows = [
        CostRow(
            label=f"{state.state} ({state.instance_type})" if several else state.state,
            node_hours=f"{state.node_hours:,.2f}",
            usd=usd(state.usd),
            percent=round(100 * state.node_hours / longest, 2),
        )
        for state in shown
    ]
    if rest:
        hours, priced = sum(state.node_hours for state in rest), [state.usd for state in rest if state.usd is not None]
        total = sum(priced) if len(priced) == len(rest) else None
        rows.append(
            CostRow(count(len(rest), "other state"), f"{hours:,.2f}", usd(total), round(100 * hours / longest, 2))
        )
    return rows


def _input_facts(record: RunRecord) -> list[tuple[str, str]]:
    """Inputs of the run, as label and value; unknown facts are left out."""
    made_of = record.inputs
    if made_of is None:
        return []
    staged = ", ".join(
        said
        for said in (
            count(made_of.dataset_files, "file") if made_of.dataset_files is not None else "",
            size(made_of.dataset_bytes) if made_of.dataset_bytes is not None else "",
        )
        if said
    )
    facts = (
        ("Image", made_of.image),
        ("Image digest", made_of.image_digest),
        ("Code", made_of.code_url),
        ("Code SHA-256", made_of.code_sha256),
        ("Git commit", made_of.git_commit),
        ("Packages", ", ".join(f"{name} {version}" for name, version in made_of.packages.items())),
        ("Trainflow's programs", made_of.tools_image),
        ("Data set", made_of.dataset_url),
        ("Data set holds", staged),
        ("Data set version (ETag)", made_of.dataset_etag),
        ("Data set SHA-256", made_of.dataset_sha256),
        ("Data set manifest", made_of.dataset_manifest),
        (
            "Data set verified by",
            made_of.dataset_verified or (made_of.dataset_etag and "nothing"),
        ),
    )
    return [(label, value) for label, value in facts if value]


def _unless_one_line(text: str) -> list[Part]:
    return parts(text) if len(text.strip().splitlines()) > 1 else []


def _overhead_rows(record: RunRecord) -> list[OverheadRow]:
    """Overhead by state, longest first."""
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
            summary=cause(pod.name, pod.message or "", pod.exit_code, record.error),
            message=_unless_one_line(pod.message or ""),
        )
        for stage, job in record.jobs.items()
        for pod in job.pods
    ]


def _pod_duration(pod: Pod) -> str:
    if pod.started_at is None or pod.finished_at is None:
        return "–"
    return duration((pod.finished_at - pod.started_at).total_seconds())


def _finding(finding: Mapping[str, Any]) -> dict[str, Any]:
    """A diagnosis, sorted into its title, its facts and the parts of its log lines, whatever fields it has."""
    lines = finding.get("evidence") or finding.get("last_lines")
    text = "\n".join(map(str, lines)) if isinstance(lines, list) else str(lines or "")
    facts = {
        str(key).replace("_", " "): value
        for key, value in finding.items()
        if key not in ("pod", "evidence", "last_lines") and value is not None
    }
    return {"title": str(finding.get("pod") or "Diagnosis"), "facts": facts, "parts": parts(text)}
