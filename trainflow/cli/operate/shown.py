"""Runs as text for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from trainflow.protocol.plain_text import plain_line, plain_text
from trainflow.record.restarts_in_words import restarts_in_words
from trainflow.record.run_commands import pasted
from trainflow.record.situation import age_in_words, last_step_age, present_seconds_left, present_speed, situation
from trainflow.record.wording import HOUR, count, duration, estimated_cost, owner_facts, significant, usd
from trainflow.workflow.owner import UNKNOWN

if TYPE_CHECKING:
    from trainflow.client.place import RunSummary
    from trainflow.client.plan import Plan
    from trainflow.observed.run_state import RunState
    from trainflow.observed.step import Step
    from trainflow.workflow.event_bound import EventBound
    from trainflow.workflow.planned_run import PlannedRun
    from trainflow.workflow.run_record import RunRecord


EVENTS_TO_SHOW = 0.95
"""A plan names the bound on events if it exceeds this share of the quota."""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns of text; the last one is not filled up with blanks."""
    lines = [[plain_line(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def listed(run: RunSummary) -> dict[str, Any]:
    """An entry of `trainflow list --json`."""
    return {
        "run_id": run.run_id,
        "status": run.status.value,
        "started_at": run.started_at.isoformat(),
        "ended_at": run.ended_at.isoformat() if run.ended_at else None,
        "restarts": run.restarts,
        "note": run.note,
        "owner": asdict(run.owner) if run.owner is not None else None,
        "team": run.team,
        "project": run.project,
    }


def with_owners(runs: Iterable[RunSummary], records: Iterable[tuple[str, RunRecord | None]]) -> list[RunSummary]:
    """The runs with owner, team and project of their records, where there is one."""
    known = {run_id: record for run_id, record in records if record is not None}
    return [
        replace(run, owner=found.owner, team=found.team, project=found.project)
        if (found := known.get(run.run_id))
        else run
        for run in runs
    ]


def list_text(runs: Sequence[RunSummary], now: datetime) -> str:
    """The list for people."""
    columns = {
        "RUN": [run.run_id for run in runs],
        "STATUS": [run.status.value for run in runs],
        "STARTED": [f"{time_between(run.started_at, now)} ago" for run in runs],
        "DURATION": [time_between(run.started_at, run.ended_at or now) for run in runs],
        "OWNER": [run.owner.short if run.owner not in (None, UNKNOWN) else "" for run in runs],
        "TEAM": [run.team or "" for run in runs],
        "NOTE": [list_note(run) for run in runs],
    }
    if len({*columns["OWNER"]}) == 1:  # as on the machine of one person
        del columns["OWNER"]
    always = ("RUN", "STATUS", "STARTED", "DURATION")
    shown = [name for name, cells in columns.items() if name in always or any(cells)]
    return table(shown, zip(*(columns[name] for name in shown), strict=True))


def list_note(run: RunSummary) -> str:
    """The words of a list beside the status of a run: `OutOfMemory, 2 restarts`."""
    return ", ".join(filter(None, [run.note, count(run.restarts, "restart") if run.restarts else ""]))


def details_json(run: RunState) -> dict[str, Any]:
    """The document of `trainflow status --json`."""
    return {**run.as_json(), "situation": situation(run).as_json()}


def details_text(run: RunState, now: datetime, words: Sequence[str] = ()) -> str:
    """A run for people: a line for each fact that is known, and a table of its pods.

    Args:
        run: The run.
        now: Current time.
        words: Options of a command that name its place.
    """
    now_in_words = situation(run)
    facts = [("run", run.run_id), ("status", now_in_words.headline)]
    if now_in_words.sentence and not run.error:
        facts.append(("", now_in_words.sentence))
    if now_in_words.to_do and not run.error:
        facts.append(("to do", pasted(now_in_words.to_do, run.run_id, words)))
    if run.state:
        facts.append(("state", run.state))
    if run.started_at:
        facts.append(("started", f"{run.started_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"))
        facts.append(("duration", time_between(run.started_at, run.ended_at or now)))
    facts += [(label.lower(), value) for label, value in owner_facts(run)]
    if run.step is not None:
        of = f"/{run.total_steps:,}" if run.total_steps else ""
        loss = f", loss {significant(run.loss)}" if run.loss is not None else ""
        speed = present_speed(run)
        age = last_step_age(run)
        ago = f", {age_in_words(age)}" if age is not None else ""
        facts.append(("step", f"{run.step:,}{of}{loss}{f', {speed}' if speed else ''}{ago}"))
    else:
        facts.append(("step", "none" if run.status.is_over else "none yet"))
    if (left := present_seconds_left(run)) is not None and left > 0:
        facts.append(("left", f"about {duration(left)}"))
    if run.cost_usd is not None:
        facts.append(("cost", estimated_cost(run.cost_usd)))
    if run.error:
        facts += [
            ("error", f"{run.error.name}: {run.error.message}"),
            ("to do", pasted(run.error.what_to_do, run.run_id, words)),
        ]
    if run.error and run.restarts:
        facts.append(("restarts", restarts_in_words(run.restarts, run.avoided_nodes)))
    facts += [("warning", warning) for warning in run.warnings]
    if run.trouble:
        facts.append(("not known", run.trouble))
    text = "\n".join(f"{name:<10}{value}" for name, value in facts)
    if run.error and run.error.excerpt:
        text = "\n".join([text, "", run.error.source or "last lines", *(f"  {line}" for line in run.error.excerpt)])
    text = plain_text(text)
    if not run.pods:
        return text
    rows = [
        (pod.name, pod.phase, pod.node or "", " ".join(filter(None, [pod.reason, _exit(pod.exit_code)])))
        for pod in run.pods
    ]
    phase = "LAST PHASE" if run.status.is_over else "PHASE"  # pods of a stopped run were deleted running
    return f"{text}\n\n{table(('POD', phase, 'NODE', ''), rows)}"


def plan_text(plan: Plan) -> str:
    """A plan for people."""
    first, *others = plan.candidates
    processes = count(plan.processes, "process")
    spares = f" and {count(plan.spares, 'spare')}" if plan.spares else ""
    facts = [("place", plan.place)] if plan.place else []
    facts += [
        ("run", f"{plan.name}: {plan.num_nodes} × {first.instance_type}{spares}, {processes}, {plan.backend}"),
        ("price", f"{_price(first.usd_per_hour)} an hour in {plan.region}, on demand, while the nodes are up"),
        ("at most", f"{plan.max_hours:g} h for each job (limits.max_duration_hours): {_price(plan.max_usd)}"),
    ]
    facts += [
        (
            "spot",
            f"{usd(one.spot_usd_per_hour)} an hour for {one.instance_type} in {one.spot_zone}, the cheapest now",
        )
        for one in plan.candidates
        if one.spot_usd_per_hour is not None
    ]
    if plan.spot_trouble:
        facts.append(("spot", f"price not known, so that the one on demand counts: {plan.spot_trouble}"))
    if plan.run_limits:
        limits = ", ".join(f"limits.{name} {value}" for name, value in plan.run_limits.items())
        facts.append(("ends at", f"{limits}, whichever comes first, with a checkpoint"))
    facts += [("or", f"{one.instance_type}: {_price(one.usd_per_hour)} an hour") for one in others]
    if plan.estimate:
        took = duration(plan.estimate.hours * HOUR)
        rate = f"{plan.estimate.seconds_per_step:.3g} s a step"
        if plan.estimate.run_id:
            rate = f"by {rate} in {plan.estimate.run_id}"
        else:
            rate += f" by published figures, without waits for nodes and data ({plan.estimate.source})"
        cost = f", {usd(plan.estimate.usd)}" if plan.estimate.usd is not None else ""
        facts.append(("estimate", f"{took} for {plan.total_steps:,} steps{cost}; {rate}"))
    else:
        why = (
            "no earlier run of this program on these nodes, and no published figure of it"
            if plan.total_steps
            else "the spec names no number of steps, such as workload.arguments.max_steps"
        )
        facts.append(("estimate", f"none: {why}"))
    facts.append(("compiles", f"{'first' if plan.precompiles else 'no'}, since {plan.precompile_reason}"))
    if plan.events.events > EVENTS_TO_SHOW * plan.events.quota:
        facts.append(("events", _events(plan.events)))
    text = "\n".join(f"{name:<10}{value}" for name, value in facts)
    return f"{text}\n\n{_planned_text(plan)}"


def _events(bound: EventBound) -> str:
    """The most events of the run's executions."""
    attempts = f"with all {bound.attempts} attempts" if bound.attempts > 1 else "without a restart"
    return (
        f"at most {bound.events:,} of the {bound.quota:,} that Step Functions allows, in a year {attempts}; a window "
        f"of {bound.window_polls} polls ({bound.window_hours:g} h) has at most {bound.window_events:,} of its own"
    )


def _planned_text(plan: Plan) -> str:
    if plan.planned is None:
        return f"What the run would create was not asked: {plan.planned_trouble}"
    parts = []
    if plan.planned.jobs:
        rows = [
            (job.stage.value, str(found.get("kind", "sbatch")), str(found.get("metadata", found)["name"]))
            for job in plan.planned.jobs
            for found in job.objects
        ]
        parts.append(f"{table(('STAGE', 'CREATES', 'NAME'), rows)}\n\n--objects prints them in full.")
    problems = "\n".join(f"  - {sentence}" for sentence in plan.planned.problems)
    parts.append(
        f"The run could not start:\n{problems}" if problems else "Nothing that was checked keeps the run from starting."
    )
    if plan.planned.notes:
        parts.append("\n".join(["Not checked, or known later:", *(f"  - {each}" for each in plan.planned.notes)]))
    return "\n\n".join(parts)


def objects_text(planned: PlannedRun) -> str:
    """Objects that a run would create as YAML documents, each after a comment with its stage."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes scripts as blocks of lines, and repeats what several objects have in common."""

        def ignore_aliases(self, _data: Any) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    return "".join(
        f"---\n# {job.stage.value}\n{yaml.dump(found, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120)}"
        for job in planned.jobs
        for found in job.objects
    )


def metrics_rows(steps: Sequence[Step]) -> tuple[list[str], list[list[Any]]]:
    """Names and values of every figure, a row for each step."""
    further = list(dict.fromkeys(name for step in steps for name in step.metrics))
    names = ["step", "logged_at", "epoch", "loss", "learning_rate", "throughput", *further]
    rows = [
        [
            step.step,
            step.logged_at.isoformat(),
            step.epoch,
            step.loss,
            step.learning_rate,
            step.throughput,
            *(step.metrics.get(name) for name in further),
        ]
        for step in steps
    ]
    return names, rows


def time_between(begin: datetime, end: datetime) -> str:
    """A length of time in at most two units."""
    return duration((end - begin).total_seconds())


def _price(amount: float | None) -> str:
    return "no price known" if amount is None else usd(amount)


def _exit(code: int | None) -> str | None:
    return f"exit code {code}" if code else None
