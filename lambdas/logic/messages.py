"""Messages to people, short enough for an e-mail read on a phone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from lambdas.logic.fleet import IdleNodes, unknown_price_text, usd
from trainflow.errors import NodeUnhealthy, TrainflowError
from trainflow.failures.error_table import error_list
from trainflow.links import execution_link, object_link
from trainflow.nodes.failed_nodes import proves_node_bad, refutation
from trainflow.record.restarts_in_words import restarts_in_words
from trainflow.record.results import status_suffix
from trainflow.record.run_commands import pasted
from trainflow.record.wording import duration, estimated_cost, owner_facts
from trainflow.workflow.run import JobRef, LimitWarning, MetricsCursor, Stage
from trainflow.workflow.run_record import RunError, RunRecord, RunStatus

MAX_REASON_LENGTH = 2000
"""Longest reason of a refusal in a message: an error about a spec may quote much of it."""

TORN_DOWN = "its jobs are deleted and its nodes released; the clean-up that follows the run's end repeats what failed."
CLEANED_UP = "its jobs are deleted, and the nodes that no other run needs are released."
"""No numbers: the call that sends the message may not be the one that deleted the jobs."""
KEPT = "pods and nodes stay, as the spec's teardown.on_failure asks; they continue to cost money."
"""Sentence about the resources of a failed run that are kept by its spec."""

LONGEST_SUBJECT = 99
"""Characters that SNS takes: it refuses subjects of 100."""

SHORTEST_CAUSE = 12
"""Room in a subject that is too small for the beginning of a cause."""

EVIDENCE_LINES = 5
"""Lines of the log in a message; the report has all that decided."""

LONGEST_TITLE = 60
"""Longest name in a subject, which has room for 99 characters: an uploaded file, or an execution of up to 80 characters
whose name is not a run id. Its end is kept, because that distinguishes names."""


def subject(run_id: str, status: RunStatus, *, error: RunError | None = None, warnings: Sequence[str] = ()) -> str:
    """Subject of the message about the end of a run; of one that has reached a limit, the error says more than its
    status."""
    if error and _is_limit(error):
        return f"Trainflow: {_short(run_id)} {error.name}"
    outcome = f"Trainflow: {_short(run_id)} {status}{status_suffix(status, warnings)}"
    return _with_cause(outcome, error) if error else outcome


def _with_cause(outcome: str, error: RunError) -> str:
    """A subject with the place of the failure and the line that decided; with the error's name if no line did."""
    cause = f"{error.place} {error.line}".strip() if error.line else error.name
    cause = "".join(letter if " " <= letter <= "~" else "?" for letter in cause)
    room = LONGEST_SUBJECT - len(outcome) - len(": ")
    if room < min(len(cause), SHORTEST_CAUSE):
        return outcome
    return f"{outcome}: {cause if len(cause) <= room else f'{cause[: room - 3]}...'}"


def _is_limit(error: RunError) -> bool:
    return error.name in error_list("ended_by_limit")


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_TITLE else f"...{name[-LONGEST_TITLE:]}"


def message(
    run_id: str,
    status: RunStatus,
    *,
    arn: str,
    error: RunError | None,
    progress: MetricsCursor | None,
    artifacts: Mapping[str, Any] | None,
    folder: str | None,
    instance_type: str | None = None,
    given_up: Sequence[str] = (),
    avoided_nodes: Sequence[str] = (),
    warnings: Sequence[str] = (),
    tear_down: bool | None = None,
    record: RunRecord | None = None,
) -> str:
    """The whole message, with one fact per line.

    Args:
        run_id: The run.
        status: How it ended.
        arn: ARN of its execution.
        error: Error of a failed run.
        progress: Progress of its training.
        artifacts: Result of publishing its artifacts.
        folder: s3://bucket/prefix/ of its record and report; None if they do not exist.
        instance_type: Type of its nodes.
        given_up: Types of its spec without capacity.
        avoided_nodes: Nodes that its jobs did not use any more after they had failed there.
        warnings: Warnings of its record.
        tear_down: Whether a failed run is torn down; None for a run without jobs or without a failure.
        record: Its record; None if it does not exist.
    """
    lines = [f"Run: {run_id}", f"Status: {status}", *_figures(record)]
    if given_up:
        lines.append(f"Nodes: {instance_type}, because there was no capacity of {', '.join(given_up)}")
    if avoided_nodes:
        lines.append(f"Avoided nodes: {', '.join(avoided_nodes)}, on which jobs of the run had failed; examine them")
    if error is not None:
        lines += [f"Error: {error.name}", f"What happened: {error.message}", *_judged_by(error), *_evidence(error)]
        if _is_limit(error):
            saved = "its artifacts were published" if artifacts else "nothing was published"
            lines.append(f"What was done: the program was asked to save its state and end, {saved}, nodes released.")
        elif tear_down is not None:
            lines.append(f"What was done: {TORN_DOWN if tear_down else KEPT}")
        lines.append(f"What to do: {pasted(error.what_to_do, run_id)}")
        lines += _continuation(record)
    if progress is not None and progress.last_step is not None:
        lines.append(f"Steps: {progress.last_step}, loss {progress.first_loss} to {progress.last_loss}")
    if artifacts and artifacts.get("checkpoint"):
        lines.append(f"Checkpoint: {artifacts['checkpoint']}")
    lines += [f"Warning: {warning}" for warning in warnings]
    logs = _logs(run_id, folder, pod=error.pod) if error is not None and tear_down is not None else []
    return "\n".join([*lines, *logs, *_links(arn, folder)])


def _figures(record: RunRecord | None) -> list[str]:
    """Owner, team, duration, cost and restarts, as far as the record has them."""
    if record is None:
        return []
    lines = [f"{label}: {value}" for label, value in owner_facts(record)]
    if record.ended_at is not None:
        lines.append(f"Duration: {duration((record.ended_at - record.started_at).total_seconds())}")
    if record.cost is not None and record.cost.usd is not None:
        lines.append(f"Cost: {estimated_cost(record.cost.usd)}")
    if record.restarts:
        lines.append(f"Restarts: {restarts_in_words(record.restarts, record.avoided_nodes)}")
    return lines


def _evidence(error: RunError) -> list[str]:
    """The end of the lines that decided, and where they come from."""
    if not error.excerpt:
        return []
    return [f"Evidence: {error.source or 'last lines'}", *(f"  {line}" for line in error.excerpt[-EVIDENCE_LINES:])]


def _continuation(record: RunRecord | None) -> list[str]:
    """The command that goes on from the newest checkpoint, if one is known from before the loss was not finite."""
    step = _newest_step(record)
    if record is None or step is None:
        return []
    first_odd = record.training.first_non_finite_step if record.training is not None else None
    if first_odd is not None and step >= first_odd:
        return []
    return [f"To continue from the checkpoint of step {step}: trainflow resume {record.run_id}"]


def _newest_step(record: RunRecord | None) -> int | None:
    steps = [saved.step for saved in record.checkpoints if saved.step is not None] if record is not None else []
    return max(steps, default=None)


def unseen(run_id: str, *, arn: str, job: JobRef, error: RunError, ends_by: datetime) -> tuple[str, str]:
    """Subject and message about a job that has not been polled for `limits.blind_minutes`."""
    lines = [
        f"Run: {run_id}",
        f"What happened: the job '{job.name}' cannot be polled: {error.message}",
        f"What was done: nothing was stopped. The job trains on, until {ends_by:%Y-%m-%d %H:%M} UTC at most. It is "
        "polled every minute, and the run goes on when a poll succeeds.",
        f"What to do: {pasted(error.what_to_do, run_id)}",
    ]
    return f"Trainflow: {_short(run_id)} cannot be seen", "\n".join([*lines, *_links(arn, None)])


def unread(run_id: str, *, arn: str, job: JobRef, error: RunError, ends_by: datetime) -> tuple[str, str]:
    """Subject and message about a job that is polled, but whose log has not been read for `limits.blind_minutes`."""
    lines = [
        f"Run: {run_id}",
        f"What happened: the log of the job '{job.name}' cannot be read: {error.message}",
        f"What was done: nothing was stopped. The job trains on, until {ends_by:%Y-%m-%d %H:%M} UTC at most. Its steps "
        "are not published, and it cannot be told whether it hangs, until its log can be read; every poll tries.",
        f"What to do: {pasted(error.what_to_do, run_id)} If the job may hang, stop the run: trainflow stop {run_id}.",
    ]
    return f"Trainflow: {_short(run_id)} has no readable log", "\n".join([*lines, *_links(arn, None)])


def restarted(
    run_id: str,
    *,
    arn: str,
    job: JobRef,
    error: RunError,
    next_attempt: int,
    avoided_nodes: Sequence[str],
    refuted_test_nodes: Sequence[str] = (),
    progress: MetricsCursor | None,
    folder: str | None,
) -> tuple[str, str]:
    """Subject and message about a job that has failed and is submitted again.

    Args:
        run_id: The run.
        arn: ARN of its execution.
        job: The job that has failed.
        error: Its error.
        next_attempt: Attempt of the next job.
        avoided_nodes: Nodes that the run does not use any more.
        refuted_test_nodes: Nodes that the test before the training named in attempts in a row; the run goes on without
            it.
        progress: Progress of its training.
        folder: s3://bucket/prefix/ of its artifacts.
    """
    node = error.node
    done = [f"the job was deleted and is submitted again, as attempt {next_attempt}."]
    if job.stage is Stage.TRAINING:
        done.append(_known_checkpoint(progress))
    if node in avoided_nodes:
        done.append(f"The run does not use the node {node} any more{_unless_it_must(error.name)}.")
    if error.name == NodeUnhealthy.__name__ and refuted_test_nodes:
        done.append(refutation(refuted_test_nodes))
    examine = f"examine the node {node}. " if node in avoided_nodes else "nothing now. "
    step = [f"Steps: {progress.last_step}"] if progress is not None and progress.last_step is not None else []
    lines = [
        f"Run: {run_id}",
        f"What happened: the job '{job.name}' failed with {error.name}: {error.message}",
        *_judged_by(error),
        *_evidence(error),
        f"What was done: {' '.join(done)}",
        f"What to do: {examine}If it fails in the same way again: {pasted(error.what_to_do, run_id)}",
        *step,
        *_logs(run_id, folder, pod=error.pod),
    ]
    subject = _with_cause(f"Trainflow: {_short(run_id)} restarts", error)
    return subject, "\n".join([*lines, *_links(arn, None)])


def _known_checkpoint(progress: MetricsCursor | None) -> str:
    """The checkpoint that a restart may continue from. The next attempt looks for the newest complete one itself."""
    if progress is None or progress.last_checkpoint is None:
        return "No checkpoint of the run is known. Without one, it begins at its first step."
    newest, last_step = progress.last_checkpoint, progress.last_step
    if last_step is None or newest > last_step:  # the time of a checkpoint without a step, or of an earlier run
        return "The run has a checkpoint."
    return f"The newest checkpoint that is known is that of step {newest}."


def _judged_by(error: RunError) -> list[str]:
    return [f"Judged by: {error.rule}"] if error.rule else []


def _unless_it_must(error: str) -> str:
    """The exception for a node that is not proven bad."""
    return "" if proves_node_bad(error) else ", unless the node group has no room for another"


def near_limit(run_id: str, *, arn: str, warning: LimitWarning) -> tuple[str, str]:
    """Subject and message about a run that has used 80 % of one of its limits."""
    step = "no step yet" if warning.last_step is None else f"step {warning.last_step}"
    of_steps = f" of {warning.total_steps}" if warning.total_steps is not None else ""
    higher = f" --set {warning.limit}=VALUE" if warning.limit else ", when there are nodes again"
    cost = f", nodes for about {warning.usd:.2f} USD" if warning.usd else ""
    lines = [
        f"Run: {run_id}",
        f"What happened: the run has used 80 % of {warning.limit or 'the time of its nodes'}: {step}{of_steps}{cost}.",
        f"Forecast: {_forecast(warning)}",
        f"What was done: nothing yet. At {warning.ends_at:%Y-%m-%d %H:%M} UTC its program is asked to save its state "
        "and end, and its artifacts are published.",
        "What to do: nothing, if it may end then. A running spec cannot be changed; to go on afterwards: "
        f"trainflow resume {run_id}{higher}",
    ]
    return f"Trainflow: {_short(run_id)} nears its limit", "\n".join([*lines, *_links(arn, None)])


def _forecast(warning: LimitWarning) -> str:
    if warning.trained_at is None:
        return "not known: the spec names no number of steps, or the run has logged too few."
    cost = f" and cost {warning.total_usd:.2f} USD" if warning.total_usd else ""
    verdict = "before the limit" if warning.trained_at <= warning.ends_at else "after the limit"
    return f"at its present rate the training would end at {warning.trained_at:%Y-%m-%d %H:%M} UTC{cost}, {verdict}."


def _logs(run_id: str, folder: str | None, *, pod: str | None = None) -> list[str]:
    """Places of the logs: the last lines of pods in S3, and the command that shows the log of the pod that failed."""
    command = f"trainflow logs {run_id}{f' --pod {pod}' if pod else ''}"
    return [*([f"Last lines: {folder}logs/"] if folder else []), f"Logs: {command}"]


def _links(arn: str, folder: str | None) -> list[str]:
    """Links to the run's report, record and execution: pages of the console for people, URLs and ARN for programs."""
    lines = []
    if folder:
        lines += [f"Report: {object_link(f'{folder}report.html', arn)}", f"Files: {folder}report.html {folder}run.json"]
    return [*lines, f"Execution: {execution_link(arn)}", f"Its ARN: {arn}"]


def refusal(title: str, error: TrainflowError) -> tuple[str, str]:
    """Subject and message about a request that cannot be run."""
    lines = [
        f"Request: {title}",
        f"What happened: {str(error)[:MAX_REASON_LENGTH]}",
        f"What to do: {error.what_to_do}",
        "Nothing was started.",
    ]
    return f"Trainflow: {_short(title)} was refused", "\n".join(lines)


def lost_request(title: str, *, is_upload: bool) -> tuple[str, str]:
    """Subject and message about a request that was given up unanswered. Whether its run has started is not known."""
    again = (
        "upload the file again" if is_upload else "start the run by hand if it cannot wait for the schedule's next time"
    )
    lines = [
        f"Request: {title}",
        "What happened: the request could not be answered, because its function failed each time or because AWS could "
        "not deliver it. It is not tried again.",
        f"What to do: see with 'trainflow list' whether its run has started nevertheless. If not, {again}; if that "
        "fails as well, read the log of the function StartRun.",
    ]
    return f"Trainflow: {_short(title)} was not answered", "\n".join(lines)


def refused_upload(message: str) -> str:
    """Content of the object beside an upload that started no run."""
    return f"{message}\nThis file is deleted when a spec of the same name is accepted.\n"


def overlap_message(title: str, scheduled_at: str, *, waits: bool, arn: str) -> tuple[str, str]:
    """Subject and message about a scheduled run that was not started, because the schedule's previous run is going.

    Args:
        title: The schedule.
        scheduled_at: When the run was to start.
        waits: Whether it starts when that run has ended.
        arn: ARN of that run's execution.
    """
    before = arn.rsplit(":", 1)[1]
    done = "It starts when that run has ended." if waits else "It was not started."
    lines = [
        f"Request: {title}, {scheduled_at}",
        f"What happened: the run before it, {before}, is still going, or another one waits for its end.",
        f"What was done: {done}",
        f"What to do: nothing, or stop that run: trainflow stop {before}. The schedule's field overlap decides what "
        "happens.",
        *_links(arn, None),
    ]
    return f"Trainflow: {_short(title)} {'waits' if waits else 'was skipped'}", "\n".join(lines)


def already_run(title: str, run_id: str, status: RunStatus) -> tuple[str, str]:
    """Subject and message about a spec whose run is over."""
    lines = [
        f"Request: {title}",
        f"What happened: the run of exactly this spec, {run_id}, ended {status}. Nothing was started.",
        "What to do: to run it again as it is, use trainflow run SPEC; or give the spec another name and upload it.",
    ]
    return f"Trainflow: {run_id} has run before", "\n".join(lines)


def stopped(
    run_id: str,
    status: RunStatus,
    *,
    arn: str,
    error_name: str | None,
    kept: bool,
    folder: str | None,
    warnings: Sequence[str] = (),
    record: RunRecord | None = None,
) -> str:
    """The message about a run that ended without its own tear-down, mostly because a person stopped it.

    Args:
        run_id: The run.
        status: How it ended.
        arn: ARN of its execution.
        error_name: Name of the error, if Step Functions reported one.
        kept: Whether pods and nodes stay.
        folder: s3://bucket/prefix/ of its record and report; None if they do not exist.
        warnings: Warnings of its record.
        record: Its record; None if it could not be written.
    """
    step = _newest_step(record)
    onward = "continue it, if it has saved a checkpoint"
    if step is not None:
        onward = f"continue it from the checkpoint of step {step}"
    how = {
        RunStatus.ABORTED: "the run was stopped",
        RunStatus.TIMED_OUT: "the run's execution reached its time limit",
    }.get(status, "Step Functions ended the run's execution, or its end could not be reported")
    lines = [
        f"Run: {run_id}",
        f"Status: {status}",
        *_figures(record),
        *([f"Error: {error_name}"] if error_name else []),
        f"What happened: {how}.",
        f"What was done: {KEPT if kept else CLEANED_UP}",
        f"What to do: nothing, or {onward}: trainflow resume {run_id}",
        *(f"Warning: {warning}" for warning in warnings),
    ]
    return "\n".join([*lines, *_logs(run_id, folder), *_links(arn, folder)])


def idle_nodes_released(idle: IdleNodes, num_nodes: int, *, region: str, now: datetime) -> tuple[str, str]:
    """Subject and message about idle nodes that were released."""
    minutes = (now - idle.since).total_seconds() / 60
    cost = usd(idle.instance_type, num_nodes, now - idle.since, region=region)
    lines = [
        f"Nodes: {num_nodes} x {idle.instance_type}",
        f"What happened: no run claimed them for {minutes:.0f} minutes, so they were released.",
        unknown_price_text(idle.instance_type, region=region)
        if cost is None
        else f"They cost about {cost:.2f} USD in that time, at the on-demand price.",
    ]
    return f"Trainflow: {num_nodes} idle {idle.instance_type} released", "\n".join(lines)
