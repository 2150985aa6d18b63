"""The situation of a run in words: one function for terminal, list, page and report.

It says what the run does or waits for, since when, and what a person can do. Every figure in its sentences is computed
from the observed facts; what is not known is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta
from enum import StrEnum
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from trainflow.observed.node_wait import NodeWait
from trainflow.observed.pod import Pod
from trainflow.observed.run_state import RECENT_STEPS, RunState
from trainflow.record.restarts_in_words import restarts_in_words
from trainflow.record.wording import MINUTE, count, duration, speed_of
from trainflow.workflow.run_status import RunStatus

if TYPE_CHECKING:
    from trainflow.workflow.blockage import Blockage


class Kind(StrEnum):
    """Activity of a run, in the words that people see."""

    STARTING = "Starting"
    STAGING = "Staging data"
    QUEUED = "Queued"
    WAITING_FOR_NODES = "Waiting for nodes"
    COMPILING = "Compiling"
    TRAINING = "Training"
    NO_STEP = "No step"
    RECOVERING = "Recovering"
    STOPPING = "Stopping"
    FINISHING = "Finishing"
    FAILING = "Failing"
    SUCCEEDED = "Succeeded"
    SUCCEEDED_WITH_WARNINGS = "Succeeded with warnings"
    FAILED = "Failed"
    STOPPED = "Stopped"
    TIMED_OUT = "Timed out"


class Tone(StrEnum):
    """The colour's meaning: the same on terminal and page."""

    ACTIVE = "active"
    WAITING = "waiting"
    WARNING = "warning"
    GOOD = "good"
    BAD = "bad"
    NEUTRAL = "neutral"


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A run's situation at the moment of its observation."""

    kind: Kind
    headline: str
    """A few words, such as `No step for 3 min 05 s` or `Failed: OutOfMemory`."""
    sentence: str
    """The facts behind the headline; empty where it says it all."""
    tone: Tone
    to_do: str = ""
    """Advice for a person; empty where nothing has to be done."""

    def as_json(self) -> dict[str, str]:
        """The part of `trainflow status --json`."""
        return {
            "kind": self.kind.name,
            "headline": self.headline,
            "sentence": self.sentence,
            "tone": self.tone.value,
            "to_do": self.to_do,
        }


STATES: Mapping[Kind, frozenset[str]] = {
    Kind.STARTING: frozenset({"ValidateRun", "Preflight", "IsPreflightDone", "WaitForPreflight", "NeedsDataset"}),
    Kind.STAGING: frozenset({"StageData", "IsDataStaged", "WaitForStaging"}),
    Kind.WAITING_FOR_NODES: frozenset(
        {"BeginToAskForNodes", "EnsureCapacity", "AreNodesReady", "ReleaseNodes", "WaitForNodes"}
    ),
    Kind.COMPILING: frozenset(
        {
            *("NeedsCache", "AcquireCache", "IsCacheAcquired", "WaitForCache", "NeedsPrecompile", "SubmitPrecompile"),
            *("WatchPrecompile", "IsPrecompileFinished", "RetryFailedGraphs", "CheckCompilation"),
        }
    ),
    Kind.TRAINING: frozenset(
        {
            *("SubmitTraining", "IsRestartAnnounced", "WatchTraining", "IsTrainingFinished", "WaitForNextWindow"),
            "MayWatchOn",
        }
    ),
    Kind.RECOVERING: frozenset(
        {
            *("ForgetCache", "ShouldSubmitAgain", "HasProgressed", "CountAnew", "CountRestart", "DeleteJob"),
            *("NotifyRestart", "IsJobSubmitted"),
        }
    ),
    Kind.STOPPING: frozenset(
        {
            *("BeginToStop", "StopAtLimit", "IsStopped", "WaitForStop", "HasTrained", "PublishAtLimit"),
            *("IsPublishedAtLimit", "WaitForPublisher"),
        }
    ),
    Kind.FINISHING: frozenset(
        {
            *("ShouldTearDown", "TearDown", "PublishArtifacts", "AreArtifactsPublished", "WaitForArtifacts"),
            *("WriteRecord", "Notify", "RunSucceeded"),
        }
    ),
    Kind.FAILING: frozenset(
        {
            *("CollectDiagnostics", "ShouldTearDownAfterFailure", "TearDownAfterFailure", "WriteFailureRecord"),
            *("NotifyFailure", "WriteRejectionRecord", "NotifyRejection", "DescribeFailure", "RunFailed"),
        }
    ),
}
"""States of the workflow by what the run does in them. A test compares them with the definition."""

USUAL_INTERVALS = 5
"""Steps that may fail to appear, at the usual interval, before it is worth a warning."""

MIN_SILENCE = timedelta(minutes=1)
"""Shortest time without a step that is worth a warning: evaluations and checkpoints interrupt the steps, and some
steps have times in whole seconds."""

MIN_UNSEEN_SILENCE = timedelta(minutes=15)
"""The same where the log cannot be read directly: the workflow stores steps at its polls only."""

NAMED_RUNS = 3
"""Runs that a sentence names."""


def situation(run: RunState) -> Situation:
    """The situation of a run.

    Args:
        run: The run as it was observed last.
    """
    if run.status.is_over:
        return _ended(run)
    unknown = Kind.TRAINING if run.steps else Kind.STARTING
    kind = next((kind for kind, states in STATES.items() if run.state in states), unknown)
    if kind in (Kind.WAITING_FOR_NODES, Kind.COMPILING, Kind.TRAINING, Kind.RECOVERING) and _is_recovering(run, kind):
        return _recovering(run, kind)
    describe = {
        Kind.STAGING: _staging,
        Kind.WAITING_FOR_NODES: _waiting,
        Kind.COMPILING: _compiling,
        Kind.TRAINING: _training,
        Kind.STOPPING: _stopping,
        Kind.FINISHING: _finishing,
        Kind.FAILING: _failing,
    }
    return describe.get(kind, _starting)(run)


def last_step_age(run: RunState) -> timedelta | None:
    """Time since the newest step of a run that goes on; None without one, and after its end."""
    if run.status.is_over or not run.steps:
        return None
    return max(run.observed_at - run.steps[-1].logged_at, timedelta())


WITHOUT_PROGRESS = frozenset({Kind.NO_STEP, Kind.RECOVERING, Kind.STOPPING, Kind.FAILING, Kind.FINISHING})
"""Situations in that the newest steps say nothing about the present speed."""


def present_speed(run: RunState) -> str:
    """The speed in the program's own unit; empty if unknown, and while no steps come."""
    if situation(run).kind in WITHOUT_PROGRESS:
        return ""
    return speed_of(run.throughput, run.metrics, run.throughput_of)


def present_seconds_left(run: RunState) -> float | None:
    """Time until the last step at the present speed; None while that is unknown, and while no steps come."""
    return None if situation(run).kind in WITHOUT_PROGRESS else run.seconds_left


def age_in_words(age: timedelta) -> str:
    """The age of a step, without tenths: some steps have times in whole seconds."""
    seconds = round(age.total_seconds())
    return f"{f'{seconds} s' if seconds < MINUTE else duration(seconds)} ago"


def usual_interval(run: RunState) -> timedelta | None:
    """Median time between the latest logged steps; None with fewer than three."""
    times = [step.logged_at for step in run.steps[-RECENT_STEPS:]]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    return timedelta(seconds=median(gap.total_seconds() for gap in gaps)) if len(gaps) >= 2 else None


def _ended(run: RunState) -> Situation:
    error = run.error
    if run.status is RunStatus.SUCCEEDED:
        return _succeeded(run)
    message, to_do = (error.message, error.what_to_do) if error else ("", "")
    if run.status is RunStatus.ABORTED:
        return Situation(kind=Kind.STOPPED, headline="Stopped", sentence=message, tone=Tone.NEUTRAL, to_do=to_do)
    kind = Kind.TIMED_OUT if run.status is RunStatus.TIMED_OUT else Kind.FAILED
    headline = f"{kind.value}: {error.name}" if error else kind.value
    return Situation(kind=kind, headline=headline, sentence=message, tone=Tone.BAD, to_do=to_do)


def _succeeded(run: RunState) -> Situation:
    parts = [restarts_in_words(run.restarts, run.avoided_nodes)] if run.restarts else []
    if run.warnings:
        return Situation(
            kind=Kind.SUCCEEDED_WITH_WARNINGS,
            headline=Kind.SUCCEEDED_WITH_WARNINGS.value,
            sentence=" ".join([*parts, count(len(run.warnings), "warning") + ", see below."]),
            tone=Tone.WARNING,
        )
    return Situation(kind=Kind.SUCCEEDED, headline="Succeeded", sentence=" ".join(parts), tone=Tone.GOOD)


def _starting(run: RunState) -> Situation:
    sentence = "The spec and what it needs are examined." if run.state else "The workflow begins."
    return Situation(kind=Kind.STARTING, headline="Starting", sentence=sentence, tone=Tone.ACTIVE)


def _staging(run: RunState) -> Situation:
    return Situation(kind=Kind.STAGING, headline="Staging data", sentence="The data set is copied.", tone=Tone.ACTIVE)


def _waiting(run: RunState) -> Situation:
    wait = run.node_wait
    if wait is None:
        return _for_nodes(Kind.WAITING_FOR_NODES, "Its nodes are requested.")
    if wait.blockage is not None:
        return _for_nodes(Kind.QUEUED, " ".join([_blockage_in_words(wait, wait.blockage), *_given_up(run)]))
    ready = f"{wait.nodes_ready} of {wait.nodes_wanted} {wait.instance_type} are ready."
    shortage = [f"AWS answers: {wait.shortage.rstrip('.')}."] if wait.shortage else []
    pending = [f"The cluster reports: {wait.pending_reason.rstrip('.')}."] if wait.pending_reason else []
    parts = [ready, *(pending or shortage), *_given_up(run)]
    return _for_nodes(Kind.WAITING_FOR_NODES, " ".join(parts))


def _for_nodes(kind: Kind, sentence: str) -> Situation:
    return Situation(kind=kind, headline=kind.value, sentence=sentence, tone=Tone.WAITING)


def _blockage_in_words(wait: NodeWait, blockage: Blockage) -> str:
    holders = [f"{run} holds {nodes}" for run, nodes in list(blockage.held.items())[:NAMED_RUNS]]
    others = len(blockage.held) - len(holders)
    held = ", ".join([*holders, *([f"{count(others, 'other run')} more"] if others > 0 else [])])
    held = held or "no other run holds any"
    place = f"{count(blockage.num_ahead, 'run')} in line before it" if blockage.num_ahead else "it is the next in line"
    if blockage.maximum is None:
        limit = "which the cluster makes for one waiting run after the other"
    else:
        limit = f"and {blockage.maximum} can run at once"
    return f"It needs {wait.nodes_wanted} {wait.instance_type}, {limit}: {held}; {place}."


def _given_up(run: RunState) -> Iterator[str]:
    began = next((visit.entered_at for visit in reversed(run.states) if visit.name == "BeginToAskForNodes"), None)
    if began is not None:
        moment = (began + timedelta(minutes=_limit(run, "capacity_timeout_minutes"))).astimezone(UTC)
        yield f"The wait ends at {moment:%H:%M} UTC at the latest (limits.capacity_timeout_minutes)."


def _compiling(run: RunState) -> Situation:
    if run.state in ("AcquireCache", "IsCacheAcquired", "WaitForCache", "NeedsCache"):
        sentence = "Compiled graphs are looked up; another run may be compiling them."
    else:
        sentence = "The graphs of the training are compiled before it starts."
    return Situation(kind=Kind.COMPILING, headline="Compiling", sentence=sentence, tone=Tone.ACTIVE)


def _training(run: RunState) -> Situation:
    age, usual = last_step_age(run), usual_interval(run)
    if age is None or not _has_step_of_this_attempt(run):
        return _before_the_first_step(run)
    threshold = MIN_SILENCE if _is_log_read(run) else MIN_UNSEEN_SILENCE
    if usual is not None:
        threshold = max(threshold, USUAL_INTERVALS * usual)
    if age > threshold and usual is not None:
        return _silent(run, age, usual)
    sentence = restarts_in_words(run.restarts, run.avoided_nodes) if run.restarts else ""
    return Situation(kind=Kind.TRAINING, headline="Training", sentence=sentence, tone=Tone.ACTIVE)


def _silent(run: RunState, age: timedelta, usual: timedelta) -> Situation:
    silent = duration(age.total_seconds())
    return Situation(
        kind=Kind.NO_STEP,
        headline=f"No step for {silent}",
        sentence=(
            f"The newest step is {run.step:,}; usually one comes every {duration(usual.total_seconds())}. "
            f"limits.stall_minutes of the run is {_limit(run, 'stall_minutes'):g}."
        ),
        tone=Tone.WARNING,
        to_do="Read the newest lines of its log: trainflow logs RUN",
    )


def _before_the_first_step(run: RunState) -> Situation:
    pods = _newest_gang(run.pods)
    running = [pod for pod in pods if pod.phase == "Running"]
    waiting = next((pod for pod in pods if pod.phase == "Pending" and pod.waiting_reason), None)
    if pods and len(running) < len(pods):
        sentence = f"{len(running)} of {count(len(pods), 'pod')} run."
        if waiting is not None:
            sentence += f" {waiting.name} waits: {waiting.waiting_reason}."
        return Situation(kind=Kind.STARTING, headline="Starting", sentence=sentence, tone=Tone.ACTIVE)
    since = max((pod.started_at for pod in running if pod.started_at is not None), default=None)
    if since is None:
        return Situation(kind=Kind.STARTING, headline="Starting", sentence="The job is submitted.", tone=Tone.ACTIVE)
    ran = duration((run.observed_at - since).total_seconds())
    return Situation(
        kind=Kind.TRAINING,
        headline="Training",
        sentence=f"The program has run for {ran}; no step was read from its log yet.",
        tone=Tone.ACTIVE,
    )


def _is_recovering(run: RunState, kind: Kind) -> bool:
    return kind is Kind.RECOVERING or (bool(run.restarts) and not _has_step_of_this_attempt(run))


def _recovering(run: RunState, kind: Kind) -> Situation:
    """The loss and what is done; nothing is promised about where the program continues."""
    if not run.restarts:
        sentence = "A job has failed; it is decided whether it is started again."
        return Situation(kind=Kind.RECOVERING, headline="Recovering", sentence=sentence, tone=Tone.WARNING)
    newest = run.restarts[-1]
    again = "The program was started again in its pods" if newest.in_place else f"Attempt {newest.attempt + 1}"
    parts = [f"{again} after {newest.error} in the {newest.stage} job."]
    if newest.last_step is not None:
        parts.append(f"The newest step before was {newest.last_step:,}.")
    if run.checkpoints:
        parts.append(f"The newest checkpoint that was reported is of step {run.checkpoints[-1].step:,}.")
    if run.avoided_nodes:
        parts.append(f"Avoided: {', '.join(run.avoided_nodes)}.")
    if kind is Kind.WAITING_FOR_NODES:
        parts.append(_waiting(run).sentence)
    return Situation(kind=Kind.RECOVERING, headline="Recovering", sentence=" ".join(parts), tone=Tone.WARNING)


def _stopping(run: RunState) -> Situation:
    sentence = "The program is asked to save and to end; what it has written is published."
    return Situation(kind=Kind.STOPPING, headline="Stopping", sentence=sentence, tone=Tone.ACTIVE)


def _finishing(run: RunState) -> Situation:
    sentence = "The training has ended; its results are published and its nodes released."
    return Situation(kind=Kind.FINISHING, headline="Finishing", sentence=sentence, tone=Tone.ACTIVE)


def _failing(run: RunState) -> Situation:
    sentence = "The run has failed; its logs are kept and its nodes released."
    return Situation(kind=Kind.FAILING, headline="Failing", sentence=sentence, tone=Tone.BAD)


def _has_step_of_this_attempt(run: RunState) -> bool:
    """Whether a step was logged after the newest restart."""
    return bool(run.steps) and (not run.restarts or run.steps[-1].logged_at > run.restarts[-1].at)


def _is_log_read(run: RunState) -> bool:
    """Whether the steps come from the log itself, and not from the workflow's polls."""
    return run.trouble is None and any(pod.phase == "Running" for pod in _newest_gang(run.pods))


def _newest_gang(pods: Sequence[Pod]) -> list[Pod]:
    from trainflow.workflow.run import Stage  # its models take long to import, and a run that has ended needs none

    training = [pod for pod in pods if pod.stage == Stage.TRAINING and not pod.deleted]
    attempt = max((pod.attempt for pod in training), default=0)
    return [pod for pod in training if pod.attempt == attempt]


def _limit(run: RunState, name: str) -> float:
    """A limit of the run's spec, or its default."""
    limits: Any = run.spec.get("limits")
    given = limits.get(name) if isinstance(limits, Mapping) else None
    if isinstance(given, (int, float)):
        return float(given)
    from trainflow.spec.run_spec import Limits  # the models take long to import, and most views need none

    return float(Limits.model_fields[name].default)
