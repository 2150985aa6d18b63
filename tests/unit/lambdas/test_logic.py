"""The decisions of the workflow: capacity, failure, progress, compilation, metrics."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.logic.capacity import Capacity, count_ready, is_given_up
from lambdas.logic.compilation import compilation
from lambdas.logic.departures import PodEvidence
from lambdas.logic.gang_failures import failure
from lambdas.logic.step_metrics import next_batch
from lambdas.logic.watching import (
    HOPELESS_AFTER,
    gang_is_overdue,
    may_be_hopeless,
    phase_since,
    require_hope,
    require_progress,
)
from tests.fakes.runs import STARTED_AT, job_ref, run_of, run_on, spec_with
from tests.wording import wording
from trainflow.errors import (
    CapacityTimeout,
    CompilationNotReported,
    GangIncomplete,
    GangTooLarge,
    GraphCompilationFailed,
    JobDeadlineExceeded,
    JobStalled,
    ScriptFailed,
    TrainflowError,
    WorkerFailed,
    named_errors,
)
from trainflow.observed.job import JobStatus
from trainflow.observed.node import Node, read_node
from trainflow.observed.pod import Pod
from trainflow.observed.step import Step, parse_metrics_line
from trainflow.record.failure import caught_error
from trainflow.spec.gang_fit import require_fit
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.run import JobPhase, MetricsCursor, Stage

DatasetInvalid = named_errors()["DatasetInvalid"]

RUN = run_of()
TRAINING = job_ref(RUN)
FAILED = JobStatus(phase=None, failure_reason="BackoffLimitExceeded", failure_message="Job has reached the limit")


def node(
    name: str, *, ready: bool = True, cordoned: bool = False, neuron: int = 16, cores: int = 32, efa: int = 8
) -> Node:
    devices = {"aws.amazon.com/neuron": neuron, "aws.amazon.com/neuroncore": cores, "vpc.amazonaws.com/efa": efa}
    conditions = [{"type": "Ready", "status": str(ready)}]
    return read_node(
        {
            "metadata": {"name": name},
            "spec": {"unschedulable": cordoned},
            "status": {
                "conditions": conditions,
                "allocatable": {resource: str(count) for resource, count in devices.items() if count},
            },
        }
    )


@pytest.mark.parametrize(
    ("found", "ready"),
    [
        (node("a"), 1),
        (node("a", ready=False), 0),
        (node("a", cordoned=True), 0),
        (node("a", neuron=0, cores=0), 0),
        (node("a", efa=4), 0),
        (node("busy"), 0),
    ],
    ids=["ready", "not ready", "cordoned", "no devices yet", "too few interfaces", "used by another run"],
)
def test_a_node_counts_once_it_is_ready_free_and_advertises_its_devices(found: Node, ready: int) -> None:
    assert count_ready([found], RUN.spec.compute, used_by_others={"busy"}) == ready


def test_a_single_node_counts_without_the_interfaces_that_only_gangs_use() -> None:
    alone = run_on("job", num_nodes=1).spec.compute
    assert count_ready([node("a", efa=0)], alone, used_by_others=()) == 1
    assert count_ready([node("a", efa=0, neuron=0)], alone, used_by_others=()) == 0


def test_waiting_for_nodes_ends_with_how_many_there_were() -> None:
    capacity, late = Capacity(nodes_ready=1, nodes_wanted=2), STARTED_AT + timedelta(minutes=61)
    with pytest.raises(CapacityTimeout, match=r"1 of 2 trn1\.32xlarge.*ready.*60 minutes"):
        is_given_up(RUN, capacity, waiting_since=STARTED_AT, now=late)
    assert not is_given_up(RUN, capacity, waiting_since=STARTED_AT, now=late - timedelta(minutes=2))
    complete = Capacity(nodes_ready=2, nodes_wanted=2)
    assert not is_given_up(RUN, complete, waiting_since=STARTED_AT, now=late)


def pod(**fields: Any) -> Pod:
    return Pod(**{"name": "bert-1-x7k2p", "node": "n1", "exit_code": 1, "end_reason": "Error", **fields})


def failed(status: JobStatus, pods: list[Pod], *, last_step: int | None, log: tuple[str, ...] = ()) -> TrainflowError:
    return failure(TRAINING, status, [PodEvidence(pod, log) for pod in pods], last_step=last_step)


TORCHRUN_REPORT = (
    "E1121 06:38:02.754000 8495 site-packages/torch/distributed/elastic/multiprocessing/api.py:1002] failed "
    "(exitcode: 1) local_rank: 0 (pid: 8548) of binary: python",
    "Traceback (most recent call last):",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
)


def test_the_program_is_quoted_and_not_torchruns_report_about_it() -> None:
    log = (
        "Traceback (most recent call last):",
        '  File "train.py", line 3',
        "ValueError: no flux",
        "",
        *TORCHRUN_REPORT,
    )
    error = failed(FAILED, [pod(termination_message="\n".join(log))], last_step=None, log=log)
    assert str(error) == wording(
        "logic.the_program_is_quoted_and_not_torchruns_report_about_it",
        "'bert-1-x7k2p'",
        "'n1'",
        "ValueError",
        "train.py",
    )


def test_a_program_without_output_is_not_quoted() -> None:
    assert str(failed(FAILED, [pod()], last_step=None, log=TORCHRUN_REPORT)).endswith("exit code 1 (Error).")
    killed = failed(FAILED, [pod(exit_code=137)], last_step=7, log=(line(7),))
    assert str(killed).endswith("exit code 137 (Error) after step 7.")


def test_one_failed_worker_fails_the_job_and_is_named() -> None:
    error = failed(FAILED, [pod()], last_step=41, log=("the moon is full",))
    assert isinstance(error, WorkerFailed)
    assert str(error) == (wording("logic.one_failed_worker_fails_the_job_and_is_named", "'bert-1-x7k2p'", "'n1'", "41"))


@pytest.mark.parametrize(
    ("exit_code", "last_step", "name"),
    [(1, None, ScriptFailed), (1, 5, WorkerFailed), (137, None, WorkerFailed), (143, 5, WorkerFailed)],
    ids=["at once", "while training", "killed before training", "stopped while training"],
)
def test_a_program_that_ends_by_itself_before_its_first_step_is_its_authors_to_mend(
    exit_code: int, last_step: int | None, name: type[Exception]
) -> None:
    assert type(failed(FAILED, [pod(exit_code=exit_code)], last_step=last_step)) is name


def test_a_program_without_reports_that_has_checkpoints_may_have_come_further() -> None:
    error = failure(TRAINING, FAILED, [PodEvidence(pod())], last_step=None, may_resume=True)
    assert type(error) is WorkerFailed


def test_the_pod_that_died_is_named_and_not_the_one_that_missed_it() -> None:
    victim = pod(name="a-0", termination_message="PeerLost: rank 3 has gone away")
    dead = pod(name="a-1", exit_code=137, end_reason="Error")
    assert "Pod 'a-1'" in str(failed(FAILED, [victim, dead], last_step=3))
    assert "Pod 'a-0'" in str(failed(FAILED, [victim], last_step=3))


def test_an_error_that_the_program_names_itself_keeps_its_name() -> None:
    message = json.dumps({"error": "DatasetInvalid", "message": "shard 3 lacks 'input_mask'"})
    error = failed(FAILED, [pod(termination_message=message)], last_step=None)
    assert isinstance(error, DatasetInvalid)
    assert str(error) == "shard 3 lacks 'input_mask' (pod 'bert-1-x7k2p' on node 'n1')"


def test_an_error_with_an_unknown_name_is_reported_in_the_programs_words() -> None:
    message = json.dumps({"error": "Whatever", "message": "the moon is full"})
    error = failed(FAILED, [pod(termination_message=message)], last_step=None)
    assert isinstance(error, ScriptFailed)
    assert str(error).endswith("the moon is full")


def test_a_job_beyond_its_time_limit_fails_with_the_name_of_the_limit() -> None:
    status = JobStatus(phase=None, failure_reason="DeadlineExceeded")
    error = failed(status, [pod(exit_code=143)], last_step=5)
    assert isinstance(error, JobDeadlineExceeded)


def test_a_failure_without_pods_has_the_controllers_message() -> None:
    assert "Job has reached the limit" in str(failed(FAILED, [], last_step=None))


def test_a_long_last_line_is_cut_in_the_message() -> None:
    assert len(str(failed(FAILED, [pod()], last_step=None, log=("x" * 10_000,)))) < 1000


RUNNING = JobStatus(phase=JobPhase.RUNNING, started_at=STARTED_AT)


def test_a_hung_collective_is_noticed() -> None:
    progress = MetricsCursor(last_step=7, progressed_at=STARTED_AT + timedelta(minutes=5))
    limits = RUN.spec.limits
    require_progress(TRAINING, RUNNING, progress, limits=limits, now=STARTED_AT + timedelta(minutes=64))
    with pytest.raises(JobStalled, match=r"step after 7 .*60 minutes.*file"):
        require_progress(TRAINING, RUNNING, progress, limits=limits, now=STARTED_AT + timedelta(minutes=66))


def test_compiling_is_no_stall() -> None:
    job, late = job_ref(RUN, Stage.PRECOMPILE), STARTED_AT + timedelta(days=1)
    require_progress(job, RUNNING, MetricsCursor(), limits=RUN.spec.limits, now=late)


def test_a_pod_that_ran_too_long_is_reported_with_the_specs_limit() -> None:
    error = failed(FAILED, [pod(end_reason="DeadlineExceeded")], last_step=7)
    assert isinstance(error, JobDeadlineExceeded)


PENDING = JobStatus(phase=JobPhase.PENDING, submitted_at=STARTED_AT)


@pytest.mark.parametrize(("minutes", "overdue"), [(29, False), (31, True)])
def test_a_gang_has_its_time_to_come_together(minutes: int, overdue: bool) -> None:
    now = STARTED_AT + timedelta(minutes=minutes)
    assert gang_is_overdue(PENDING, limits=RUN.spec.limits, now=now) is overdue


def test_an_incomplete_gang_is_reported_with_the_schedulers_message() -> None:
    pending_reason = "0/2 nodes are available: 2 Insufficient aws.amazon.com/neuron."
    with pytest.raises(GangIncomplete) as caught:
        require_hope(TRAINING, pending_reason, waited=timedelta(minutes=31), limits=RUN.spec.limits)
    assert str(caught.value) == (
        f"The job '{TRAINING.name}' did not have its 2 pods running after 31 minutes: {pending_reason}"
    )
    with pytest.raises(GangIncomplete, match=r"after 30\.3 minutes\.$"):
        require_hope(TRAINING, None, waited=timedelta(minutes=30, seconds=20), limits=RUN.spec.limits)


HOPELESS = [
    ('ImagePullBackOff: Back-off pulling image "bert:v9"', "ImageUnavailable"),
    ('CreateContainerConfigError: secret "hub" not found', "SecretUnavailable"),
    ('CreateContainerConfigError: configmap "flags" not found', "ContainerNotStarted"),
    ('FailedMount: MountVolume.SetUp failed for volume "keys" : secret "keys" not found', "SecretUnavailable"),
    (
        'FailedCreate: Error creating: pods "a-0" is forbidden: exceeded quota: runs, requested: pods=1, used: pods=4, '
        "limited: pods=4",
        "JobRefused",
    ),
    (
        "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 node(s) had untolerated taint "
        "{team: other}. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
        "GangIncomplete",
    ),
    ("PartitionNodeLimit: the job is larger than its partition allows", "JobRefused"),
]


@pytest.mark.parametrize(("reason", "error"), HOPELESS)
def test_a_gang_that_cannot_start_is_given_up_long_before_its_time(reason: str, error: str) -> None:
    with pytest.raises(TrainflowError) as caught:
        require_hope(TRAINING, reason, waited=HOPELESS_AFTER, limits=RUN.spec.limits)
    assert type(caught.value).__name__ == error
    assert "after 5 minutes: " in str(caught.value)


@pytest.mark.parametrize(
    "reason",
    [
        None,
        "0/2 nodes are available: 2 Insufficient aws.amazon.com/neuron.",
        "0/3 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }, 2 node(s) didn't "
        "match Pod's node affinity/selector.",
        "ErrImagePull: failed to pull and unpack image: 429 Too Many Requests",
        "ErrImagePull: dial tcp 10.0.0.2:443: i/o timeout",
        "3/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable",
        "Resources: the job waits for resources",
        "JobHeldAdmin: an administrator holds the job",
    ],
)
def test_a_gang_whose_reason_may_pass_has_its_whole_time(reason: str | None) -> None:
    require_hope(TRAINING, reason, waited=timedelta(minutes=29), limits=RUN.spec.limits)
    with pytest.raises(TrainflowError):
        require_hope(TRAINING, reason, waited=timedelta(minutes=31), limits=RUN.spec.limits)


def test_a_reason_that_does_not_pass_is_asked_for_after_five_minutes() -> None:
    def asked(minutes: float, **limits: float) -> bool:
        now = STARTED_AT + timedelta(minutes=minutes)
        return may_be_hopeless(PENDING, limits=run_of(spec_with(limits=limits)).spec.limits, now=now)

    assert (asked(4), asked(5)) == (False, True)
    assert (asked(1, gang_timeout_minutes=2), asked(2, gang_timeout_minutes=2)) == (False, True)


@pytest.mark.parametrize(
    ("before", "now", "phase"),
    [
        (JobPhase.PENDING, JobPhase.PENDING, JobPhase.PENDING),
        (JobPhase.RUNNING, JobPhase.PENDING, JobPhase.RUNNING),
        (JobPhase.PENDING, JobPhase.RUNNING, JobPhase.RUNNING),
        (JobPhase.RUNNING, JobPhase.SUCCEEDED, JobPhase.SUCCEEDED),
        (JobPhase.SUCCEEDED, JobPhase.PENDING, JobPhase.RUNNING),
    ],
)
def test_a_gang_that_was_complete_is_not_called_incomplete_when_its_pods_end_one_by_one(
    before: JobPhase, now: JobPhase, phase: JobPhase
) -> None:
    assert phase_since(before, now) is phase


def test_a_gang_beyond_the_node_groups_maximum_is_refused() -> None:
    group = "trainflow-trn1-32xlarge"
    with pytest.raises(GangTooLarge, match=rf"num_nodes is 2\b.*{group}.*at most 1\b"):
        require_fit(RUN.spec, nodegroup=group, maximum=1)
    require_fit(RUN.spec, nodegroup=group, maximum=2)


def counts(graphs: int, succeeded: int, failed: int, cached: int) -> list[str]:
    return [
        f"2026-11-21 12:00:00.000925: INFO ||PARALLEL_COMPILE||: Total {what}: {count}"
        for what, count in {
            "graphs": graphs,
            "successful compilations": succeeded,
            "failed compilations": failed,
            "cached graphs": cached,
        }.items()
    ]


@pytest.mark.parametrize(("cached", "cache"), [(0, "miss"), (6, "hit"), (2, "partial")])
def test_the_compilers_counts_tell_whether_the_cache_was_hit(cached: int, cache: str) -> None:
    result = compilation(TRAINING, ["noise", *counts(6, 6, 0, cached), "more noise"])
    assert (result.graphs, result.succeeded, result.failed, result.cache) == (6, 6, 0, cache)


def test_one_failed_graph_stops_the_run() -> None:
    with pytest.raises(GraphCompilationFailed, match="1 of 6 graphs failed"):
        compilation(TRAINING, counts(6, 5, 1, 0))


def test_failed_graphs_are_named_where_the_log_names_them() -> None:
    said = [
        "ERROR ||NCC_WRAPPER||: Compilation failed for /tmp/w/model.MODULE_17+e30acd3a.hlo.pb after 0 retries.",
        "INFO ||NCC_WRAPPER||: Got a cached failed neff at /c/neuronxcc-2.0/MODULE_17+e30acd3a/model.neff.",
        "Failed graph: forward (model.py:88)",
    ]
    with pytest.raises(GraphCompilationFailed, match=r"MODULE_17\+e30acd3a, forward \(.*88\)\.$"):
        compilation(TRAINING, [*said, *counts(6, 4, 2, 0)])


def test_a_compiler_without_counts_is_an_error() -> None:
    with pytest.raises(CompilationNotReported):
        compilation(TRAINING, ["all is well"])


def line(step: int, *, loss: float = 9.5) -> str:
    return (
        f"[0]:LOG Wed Dec 21 00:51:{step % 60:02d} 2022 - (0, {step}) step_loss : {loss:.4f} "
        "learning_rate : 2.80e-06 throughput : 6449.36"
    )


def test_the_tutorials_metrics_line_is_understood() -> None:
    text = (
        "[0]:LOG Wed Dec 21 00:51:01 2022 - (0, 14) step_loss : 10.7011 learning_rate : 2.80e-06 throughput : 6449.36"
    )
    step = parse_metrics_line(text)
    assert step is not None
    assert step == Step(step.logged_at, 0, 14, 10.7011, 2.80e-06, 6449.36)
    assert step.logged_at.isoformat() == "2022-12-21T00:51:01+00:00"
    assert parse_metrics_line(text.removeprefix("[0]:")) == step


@pytest.mark.parametrize("rest", [" ", "  ", " grad-norm : 1.2345678", " grad-norm : nan", "  grad-norm : 1e-05 "])
def test_so_is_the_end_that_the_tutorials_script_gives_it(rest: str) -> None:
    """A space behind the throughput, and the norm under --print_grad_norm."""
    step, plain = parse_metrics_line(line(14) + rest), parse_metrics_line(line(14))
    assert step is not None
    assert replace(step, metrics={}) == plain
    assert list(step.metrics) == (["grad_norm"] if rest.strip() else [])


def test_so_are_days_of_one_digit_and_doubled_spaces() -> None:
    text = "LOG Sat Nov  1 00:51:01 2025 - (0, 14) step_loss : 9.5000  learning_rate : 2.80e-06  throughput : 6449.36"
    step = parse_metrics_line(text)
    assert step is not None
    assert (step.step, step.logged_at.day) == (14, 1)


@given(st.text())
def test_any_other_line_is_no_step(text: str) -> None:
    assert parse_metrics_line(text) is None or text.lstrip("[0123456789]: ").startswith("LOG ")


def test_steps_that_a_restart_replays_are_not_published_again() -> None:
    cursor = MetricsCursor(last_step=10, datapoints=10, first_step=1)
    lines = [LogLine(STARTED_AT, line(step)) for step in (8, 9, 10, 11)]
    assert [step.step for step in next_batch(lines, cursor).steps] == [11]


def test_an_error_of_a_lambda_keeps_its_message() -> None:
    cause = json.dumps({"errorType": "WorkerFailed", "errorMessage": "Pod 'x' died.", "stackTrace": []})
    error = caught_error({"Error": "WorkerFailed", "Cause": cause})
    assert (error.name, error.message, error.what_to_do) == ("WorkerFailed", "Pod 'x' died.", WorkerFailed().what_to_do)


@pytest.mark.parametrize("error", [{}, {"Error": "States.Timeout", "Cause": ""}, {"Error": "X", "Cause": "[1]"}])
def test_every_error_is_explained_with_what_to_do(error: dict[str, str]) -> None:
    assert caught_error(error).what_to_do
