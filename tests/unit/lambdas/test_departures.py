"""A pod whose program ended with exit code 0 before the others: the cause, if the others only noticed its end."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.gateways.kubernetes_objects import peer_pods
from lambdas.logic.departures import PodEvidence
from lambdas.logic.gang_failures import failure, waiting_failure
from tests.fakes.runs import job_ref, run_of, spec_with
from tests.unit.lambdas.test_lost_nodes import NODES, pod_on
from trainflow.errors import JobStalled, ScriptFailed, TrainflowError, named_errors
from trainflow.failures.judgement import Judgement, to_text
from trainflow.nodes.failed_nodes import FailedNodes
from trainflow.observed.job import JobStatus
from trainflow.observed.pod import Pod
from trainflow.protocol.ended_ranks import LINE
from trainflow.record.failure import explained
from trainflow.workflow.run import Stage

NAMES = ("NetworkFailed", "WorkerFailed", "DeviceFailed", "JobEvicted", "NodeLost", "OutOfMemory", "StorageUnavailable")
NetworkFailed, WorkerFailed, DeviceFailed, JobEvicted, NodeLost, OutOfMemory, StorageUnavailable = map(
    named_errors().__getitem__, NAMES
)
JOB = job_ref(run_of(spec_with(compute__num_nodes=5)), Stage.TRAINING)
FAILED = JobStatus(phase=None, failure_reason="BackoffLimitExceeded", failure_message="Job has reached the limit")
NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)

RESET = "[rank0]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error: Connection reset"
CLOSED = "[rank2]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"
NOTICES = (RESET, CLOSED, "ConnectionResetError: [Errno 104] Connection reset by peer", "Socket closed")

BARRIER_FAILED = (
    "E1127 12:00:09.1 7 torch/distributed/elastic/agent/server/api.py:1008] Error waiting on exit barrier. Elapsed: 0",
    "Traceback (most recent call last):",
    '  File "torch/distributed/elastic/agent/server/api.py", line 990, in _exit_barrier',
    "torch.distributed.DistNetworkError: Connection reset by peer",
)


def ended(index: int, code: int | None, *lines: str, second: int | None = 8, reason: str | None = None) -> PodEvidence:
    """A pod that ended with an exit code, or that runs."""
    phase = "Running" if code is None else "Failed" if code else "Succeeded"
    at = None if second is None or code is None else NOON + timedelta(seconds=second)
    given = reason or (None if code is None else "Error" if code else "Completed")
    pod = Pod(
        name=f"a-{index}", index=index, node=f"n{index}", phase=phase, exit_code=code, end_reason=given, finished_at=at
    )
    return PodEvidence(pod, lines)


def judged(*pods: PodEvidence, last_step: int | None = 8) -> TrainflowError:
    failed = [each for each in pods if each.pod.phase == "Failed"]
    peers = [each for each in pods if each.pod.phase != "Failed"]
    return failure(JOB, FAILED, failed, peers=peers, last_step=last_step)


def avoided_after(error: TrainflowError, attempts: int) -> tuple[str, ...]:
    """Nodes that a run avoids after attempts that all ended with this error."""
    text = to_text(str(error), error.judgement or Judgement(rule=""))
    nodes, cause = FailedNodes(), explained(type(error).__name__, json.dumps({"errorMessage": text}))
    for _ in range(attempts):
        nodes = nodes.after(error=cause.name, node=cause.node)
    return nodes.avoided


@pytest.mark.parametrize("notice", NOTICES)
@pytest.mark.parametrize("size", [2, 3, 5, 7])
def test_a_rank_that_leaves_with_exit_code_0_is_the_cause_and_not_the_network(size: int, notice: str) -> None:
    for leaver in {0, 1, size - 1}:
        others = [ended(index, 1, notice, second=9) for index in range(size) if index != leaver]
        error = judged(ended(leaver, 0, "step 8 loss 0.3", "no more data here, leaving"), *others)
        assert type(error) is ScriptFailed
        assert str(error).startswith(
            f"The program of node {leaver} (pod 'a-{leaver}' on node 'n{leaver}') ended with exit code 0 after step 8 "
            "while the others went on: no more data here, leaving. Then: Pod "
        )
        assert ("Rank 0 is among them" in str(error)) == (leaver == 0)
        assert avoided_after(error, 3) == ()


def test_pods_that_end_in_the_same_second_have_no_certain_order_and_the_sentence_says_so() -> None:
    tied = judged(ended(1, 0, second=8), ended(0, 1, RESET, second=8))
    assert type(tied) is ScriptFailed
    assert "in the same second as the first pod that failed, so their order is not certain" in str(tied)
    assert "same second" not in str(judged(ended(1, 0, second=8), ended(0, 1, RESET, second=9)))


def test_a_pod_that_ended_well_after_the_first_failure_is_not_its_cause() -> None:
    assert type(judged(ended(0, 1, RESET, second=8), ended(1, 0, second=9))) is NetworkFailed


@pytest.mark.parametrize("sign", [(LINE,), BARRIER_FAILED, ("doing well", *BARRIER_FAILED, LINE)])
@pytest.mark.parametrize(("code", "second"), [(None, None), (0, 20), (137, 40), (143, 9)])
def test_torchruns_exit_barrier_shows_that_the_ranks_of_a_node_had_ended_whenever_its_pod_ends(
    sign: tuple[str, ...], code: int | None, second: int | None
) -> None:
    error = judged(ended(0, code, "no more data here, leaving", *sign, second=second), ended(1, 1, RESET, second=9))
    assert type(error) is ScriptFailed
    assert str(error).startswith("The program of node 0 (pod 'a-0' on node 'n0') ended with exit code 0 after step 8")


def test_a_pod_whose_ranks_failed_is_no_departure_although_torchrun_slept() -> None:
    report = ("Root Cause (first observed failure):", "[0]:", "  exitcode  : 1 (pid: 8)")
    assert type(judged(ended(0, None, LINE, *report), ended(1, 1, RESET))) is NetworkFailed


TRACEBACK = (
    "[rank2]: Traceback (most recent call last):",
    '[rank2]:   File "/workspace/code/train.py", line 14, in check',
    '[rank2]:     raise ValueError(f"batch {step} of rank {rank} has a label of -1")',
    "[rank2]: ValueError: batch 3 of rank 2 has a label of -1",
)


@pytest.mark.parametrize("size", [2, 3, 5, 7])
def test_a_pod_that_says_why_it_fails_and_has_not_ended_yet_is_the_cause(size: int) -> None:
    others = [ended(index, 1, RESET) for index in range(size) if index != size - 1]
    error = judged(ended(size - 1, None, *TRACEBACK), *others)
    assert type(error) is ScriptFailed
    assert str(error).startswith(
        f"Pod 'a-{size - 1}' on node 'n{size - 1}' failed, and had not ended yet, after step 8: "
        "ValueError: batch 3 of rank 2 has a label of -1 (train.py:14, rank 2)"
    )


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("step 8 loss 0.3",),
        (RESET,),
        (*TRACEBACK, *(f"step {step} loss 0.3" for step in range(9, 30))),
        ("Traceback (most recent call last):", '  File "/workspace/code/train.py", line 14, in check'),
    ],
)
def test_a_pod_that_runs_and_does_not_say_why_it_fails_is_no_cause(lines: tuple[str, ...]) -> None:
    error = judged(ended(1, None, *lines), ended(0, 1, RESET), ended(2, 1, RESET))
    assert type(error) is NetworkFailed


@pytest.mark.parametrize(
    ("lines", "code", "error"),
    [
        (("torch.OutOfMemoryError: CUDA out of memory",), 1, OutOfMemory),
        (("KeyError: 'labels'",), 1, ScriptFailed),
        (("NRT_EXEC_HW_ERR_HBM_UE",), 1, DeviceFailed),
        ((), 137, WorkerFailed),
        ((), 139, WorkerFailed),
        (("acme.Plan: stage 3 has no optimizer",), 1, ScriptFailed),
        (("OSError: [Errno 108] Cannot send after transport endpoint shutdown",), 1, StorageUnavailable),
    ],
)
def test_a_pod_with_a_reason_of_its_own_is_the_cause_although_others_had_left(
    lines: tuple[str, ...], code: int, error: type[TrainflowError]
) -> None:
    found = judged(ended(1, 0, second=8), ended(2, code, *lines, second=9), ended(0, 1, RESET, second=9))
    assert type(found) is error
    assert "Pod 'a-2'" in str(found)


def test_a_program_that_says_why_it_leaves_with_exit_code_0_is_judged_by_that() -> None:
    left = ended(1, 0, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "skipping the rest")
    error = judged(left, ended(0, 1, RESET, second=9))
    assert type(error) is OutOfMemory
    assert "ended with exit code 0 after step 8 while the others went on: torch.OutOfMemoryError" in str(error)


def test_a_program_that_lost_the_others_and_ended_with_exit_code_0_is_no_cause() -> None:
    assert type(judged(ended(1, 0, RESET), ended(0, 1, CLOSED))) is NetworkFailed


def test_several_pods_that_left_are_all_named() -> None:
    error = judged(ended(1, 0), ended(3, 0), ended(4, 0), ended(0, 1, RESET), ended(2, 1, CLOSED))
    assert "(pod 'a-1' on node 'n1'), like that of nodes 3, 4, ended with exit code 0" in str(error)


def test_a_program_that_ends_well_because_its_node_is_drained_or_lost_is_restarted() -> None:
    [drained] = peer_pods([pod_on("scaled", phase="Succeeded", exit_code=0)], NODES)
    left = PodEvidence(drained)
    assert drained.end_reason == "NodeDrained"
    assert type(judged(left, ended(0, 1, RESET))) is JobEvicted
    evicted = ended(1, 0, reason="EvictionByEvictionAPI")
    assert type(failure(JOB, FAILED, [ended(0, 1, RESET), evicted], last_step=8)) is JobEvicted


def test_peers_are_the_pods_that_have_not_failed_the_first_to_end_first() -> None:
    def at(pod: dict[str, Any], second: int) -> dict[str, Any]:
        pod["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = f"2026-11-27T12:00:0{second}Z"
        return pod

    pods = [
        pod_on("well"),
        at(pod_on("silent", phase="Succeeded", exit_code=0), 4),
        at(pod_on("spot", phase="Succeeded", exit_code=0), 2),
        at(pod_on("unready", phase="Failed", exit_code=1), 1),
        pod_on("well", condition="EvictionByEvictionAPI"),
    ]
    assert [pod.name for pod in peer_pods(pods, NODES)] == ["pod-on-spot", "pod-on-silent", "pod-on-well"]


HANG = JobStalled("The job 'a' has not logged a step after 40 for 60 minutes.")


def test_a_finished_training_whose_last_pod_hangs_is_not_started_again() -> None:
    error = waiting_failure(JOB, [ended(0, 0, "training is complete"), ended(1, None, "saving")], HANG, last_step=40)
    assert type(error) is ScriptFailed
    assert str(error).startswith("The program of node 0 (pod 'a-0' on node 'n0') ended with exit code 0 after step 40")
    assert f"training is complete. Then: {HANG}"[:-1] in str(error)
    assert "the training is complete" in str(error)


def test_a_gang_that_hangs_as_a_whole_has_stalled() -> None:
    assert waiting_failure(JOB, [ended(0, None), ended(1, None)], HANG, last_step=40) is HANG
    assert waiting_failure(JOB, [], HANG, last_step=40) is HANG


@pytest.mark.parametrize("line", [*NOTICES, "nothing that explains it"])
def test_a_pod_that_noticed_the_end_of_another_is_no_reason_to_avoid_its_node(line: str) -> None:
    assert avoided_after(judged(ended(0, 1, line)), 3) == ()


@pytest.mark.parametrize(
    ("pod", "avoided"),
    [
        (ended(0, 1, "NRT_EXEC_HW_ERR_HBM_UE"), ("n0",)),
        (ended(0, 139), ("n0",)),
        (ended(0, 143, reason="EvictionByEvictionAPI"), ("n0",)),
        (ended(0, 134), ()),
        (ended(0, 143), ()),
        (ended(0, 1, "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling PutObject"), ()),
        (ended(0, 1, "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable"), ()),
    ],
)
def test_a_node_is_avoided_only_for_a_sign_about_the_node(pod: PodEvidence, avoided: tuple[str, ...]) -> None:
    assert avoided_after(judged(pod), 2) == avoided


@given(
    st.lists(
        st.builds(
            ended,
            st.integers(0, 6),
            st.sampled_from([None, 0, 0, 1, 137, 143]),
            st.sampled_from([RESET, CLOSED, LINE, "KeyError: 'x'", "step 8 loss 2.0", *BARRIER_FAILED]),
            second=st.none() | st.integers(0, 3),
        ),
        min_size=1,
        max_size=7,
    )
)
def test_any_gang_is_judged_and_no_order_of_its_pods_changes_the_class(pods: list[PodEvidence]) -> None:
    assert type(judged(*pods)) is type(judged(*reversed(pods)))
