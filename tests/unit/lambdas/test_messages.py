"""Every message to people, whole: tests/assets/messages.txt is what they read.

`python -m tests.goldens` writes the file anew after a change that is meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from lambdas.logic import messages
from lambdas.logic.fleet import IdleNodes
from tests.fakes.runs import STARTED_AT, job_ref, run_of
from trainflow.errors import InvalidRunSpec
from trainflow.protocol.lost_files import LostFile, LostFiles
from trainflow.record.results import lost_files_warning
from trainflow.workflow.run import LimitWarning, MetricsCursor, Stage
from trainflow.workflow.run_record import Cost, Restart, RunError, RunRecord, SavedCheckpoint
from trainflow.workflow.run_status import RunStatus

GOLDEN = Path(__file__).parents[2] / "assets" / "messages.txt"

RUN = run_of()
NAMES: dict[str, Any] = {"run_id": RUN.run_id, "arn": RUN.execution_arn}
TRAINING = job_ref(RUN, Stage.TRAINING)
FOLDER = f"s3://artifacts/runs/{RUN.run_id}/"
LOST = RunError(
    name="NodeLost",
    message="Pod 'x-1' on node 'n7' was lost after step 40.",
    what_to_do="Examine the node of RUN.",
    rule="node lost",
    pod="x-1",
    node="n7",
)
BAD_BATCH = RunError(
    name="ScriptFailed",
    message="Pod 'x-1' on node 'n7' ended with exit code 1 (Error) after step 40: ValueError: label of -1 (fit.py:16).",
    what_to_do="Correct the program.",
    rule="error in the program",
    line="ValueError: label of -1",
    pod="x-1",
    excerpt=(
        "Traceback (most recent call last):",
        '  File "/code/fit.py", line 33, in <module>',
        "    main()",
        '  File "/code/fit.py", line 24, in main',
        "    check(batch)",
        '  File "/code/fit.py", line 16, in check',
        '    raise ValueError("label of -1")',
        "ValueError: label of -1",
    ),
    place="fit.py:16",
    rank=1,
)
RECORD = RunRecord(
    run_id=RUN.run_id,
    status=RunStatus.FAILED,
    error=BAD_BATCH,
    spec={},
    started_at=STARTED_AT,
    ended_at=STARTED_AT + timedelta(minutes=95),
    restarts=[Restart(stage="training", attempt=1, at=STARTED_AT, error="NodeLost", message="lost")],
    avoided_nodes=["n9"],
    checkpoints=[SavedCheckpoint(step=20), SavedCheckpoint(step=30)],
    cost=Cost(node_hours=3.0, usd=63.4, region="us-west-2"),
)
OUT_OF_SIGHT = RunError(
    name="ClusterUnavailable", message="no answer for 30 minutes", what_to_do="Look at the cluster."
)
ENDED = RunError(name="BudgetReached", message="The run has cost 100 USD.", what_to_do="Continue: trainflow resume RUN")
LOST_MODEL = lost_files_warning(
    LostFiles(num_files=1, num_bytes=1258291, largest=(LostFile(name="model.pt", num_bytes=1258291),))
)
PROGRESS = MetricsCursor(last_step=40, first_loss=10.5, last_loss=2.25)
LIMIT = LimitWarning(
    limit="limits.max_usd",
    ends_at=STARTED_AT + timedelta(hours=10),
    usd=80.0,
    last_step=800,
    total_steps=1200,
    trained_at=STARTED_AT + timedelta(hours=12),
    total_usd=120.0,
)


def all_messages() -> Iterator[tuple[str, str, str]]:
    """What each message is about, its subject and its text."""
    yield from _of_ends()
    yield from _of_running_runs()
    yield from _of_requests()


def _of_ends() -> Iterator[tuple[str, str, str]]:
    nothing: dict[str, Any] = {"error": None, "progress": None, "artifacts": None, "folder": None}
    ends: dict[str, tuple[RunStatus, dict[str, Any]]] = {
        "a run that succeeded": (
            RunStatus.SUCCEEDED,
            {"progress": PROGRESS, "artifacts": {"checkpoint": f"{FOLDER}step-40.pt"}, "folder": FOLDER},
        ),
        "a run that failed after it had avoided a node": (
            RunStatus.FAILED,
            {"error": LOST, "progress": PROGRESS, "folder": FOLDER, "avoided_nodes": ("n7", "n9")},
        ),
        "a run whose program failed after a restart": (
            RunStatus.FAILED,
            {"error": BAD_BATCH, "progress": PROGRESS, "folder": FOLDER, "tear_down": True, "record": RECORD},
        ),
        "a run that failed before its first step, on the second choice of nodes": (
            RunStatus.FAILED,
            {
                "error": LOST,
                "progress": MetricsCursor(),
                "artifacts": {"checkpoint": None},
                "instance_type": "trn1.2xlarge",
                "given_up": ("trn2.48xlarge", "trn1.32xlarge"),
            },
        ),
        "a run that succeeded and lost its files": (
            RunStatus.SUCCEEDED,
            {"progress": PROGRESS, "folder": FOLDER, "warnings": (LOST_MODEL,)},
        ),
        "a run that reached its limit": (RunStatus.FAILED, {"error": ENDED, "artifacts": {"num_files": 3}}),
        "a run that reached its limit with nothing to publish": (RunStatus.FAILED, {"error": ENDED}),
    }
    for what, (status, known) in ends.items():
        subject = messages.subject(RUN.run_id, status, error=known.get("error"))
        yield what, subject, messages.message(status=status, **NAMES, **{**nothing, **known})
    stopped: dict[str, Any] = {"status": RunStatus.ABORTED, "error_name": None, "folder": None}
    subject = messages.subject(RUN.run_id, RunStatus.ABORTED)
    yield "a run that was stopped", subject, messages.stopped(**NAMES, **stopped, kept=False)
    known: dict[str, Any] = {**stopped, "folder": FOLDER, "record": RECORD}
    yield "a run that was stopped after a checkpoint", subject, messages.stopped(**NAMES, **known, kept=False)
    named = {**stopped, "error_name": "States.Runtime", "folder": FOLDER, "warnings": [LOST_MODEL]}
    yield "a run that ended with its pods kept", subject, messages.stopped(**NAMES, **named, kept=True)


def _of_running_runs() -> Iterator[tuple[str, str, str]]:
    late = STARTED_AT + timedelta(hours=6)
    blind: dict[str, Any] = {**NAMES, "job": TRAINING, "error": OUT_OF_SIGHT, "ends_by": late}
    yield "a job that cannot be polled", *messages.unseen(**blind)
    yield "a job whose log cannot be read", *messages.unread(**blind)
    again: dict[str, Any] = {**NAMES, "error": LOST, "next_attempt": 2}
    yield (
        "a training that is submitted again without its bad node",
        *messages.restarted(**again, job=TRAINING, avoided_nodes=("n7",), progress=PROGRESS, folder=FOLDER),
    )
    saved = PROGRESS.model_copy(update={"last_checkpoint": 30})
    yield (
        "a training that is submitted again after a checkpoint",
        *messages.restarted(
            **{**again, "error": BAD_BATCH}, job=TRAINING, avoided_nodes=(), progress=saved, folder=FOLDER
        ),
    )
    precompile = job_ref(RUN, Stage.PRECOMPILE)
    yield (
        "a compilation that is submitted again",
        *messages.restarted(**again, job=precompile, avoided_nodes=(), progress=None, folder=None),
    )
    yield "a run that will not be ready at its limit", *messages.near_limit(**NAMES, warning=LIMIT)
    early = LIMIT.model_copy(update={"trained_at": STARTED_AT + timedelta(hours=9), "total_usd": None})
    yield "a run that will be ready before its limit", *messages.near_limit(**NAMES, warning=early)
    on_time = LIMIT.model_copy(update={"trained_at": LIMIT.ends_at})
    yield "a run that will be ready just at its limit", *messages.near_limit(**NAMES, warning=on_time)
    unknown = {"limit": None, "usd": 0.0, "last_step": None, "total_steps": None, "trained_at": None}
    nodes_end = LIMIT.model_copy(update=unknown)
    yield "a run whose nodes will end before it has logged a step", *messages.near_limit(**NAMES, warning=nodes_end)


def _of_requests() -> Iterator[tuple[str, str, str]]:
    long = f"runs/{'a-folder-of-a-folder/' * 4}bert.yaml"
    refused = InvalidRunSpec(f"compute.num_nodes: must be a whole number, got {'x' * 3000}")
    subject, text = messages.refusal(long, refused)
    yield "a spec that was refused", subject, text
    beside = messages.refused_upload(messages.refusal("bert.yaml", InvalidRunSpec("no"))[1])
    yield "an object beside an upload that was refused", "bert.yaml.refused.txt", beside
    for waits in (True, False):
        what = f"a scheduled run that {'waits' if waits else 'is left out'}"
        yield what, *messages.overlap_message("nightly", "2026-11-21T12:00:00Z", waits=waits, arn=RUN.execution_arn)
    yield "a spec whose run is over", *messages.already_run("bert.yaml", RUN.run_id, RunStatus.FAILED)
    now = STARTED_AT + timedelta(minutes=90)
    for instance_type in ("trn1.32xlarge", "trn9.none"):
        idle = IdleNodes(instance_type=instance_type, since=STARTED_AT)
        what = f"idle nodes {'with' if instance_type == 'trn1.32xlarge' else 'without'} a known price"
        yield what, *messages.idle_nodes_released(idle, 2, region="us-west-2", now=now)


def as_text() -> str:
    """The content of the golden file."""
    return "\n".join(f"# {what}\n{subject}\n\n{text.rstrip()}\n" for what, subject, text in all_messages())


def test_every_message_is_what_people_are_meant_to_read() -> None:
    assert as_text() == GOLDEN.read_text()


def test_a_subject_fits_into_what_sns_takes_and_keeps_the_end_of_a_long_name() -> None:
    for what, subject, _ in all_messages():
        assert len(subject) < 100, what
    error = replace(BAD_BATCH, line="ValueError: " + "ö" * 200)
    subject = messages.subject(RUN.run_id, RunStatus.FAILED, error=error)
    assert len(subject) == messages.LONGEST_SUBJECT
    assert subject.isascii() and subject.endswith("...")
    longest = "x" * (messages.LONGEST_TITLE - 3) + "end"
    assert longest in messages.subject(longest, RunStatus.SUCCEEDED)
    cut = messages.subject(f"y{longest}", RunStatus.SUCCEEDED)
    assert cut == f"Trainflow: ...{longest} SUCCEEDED"
