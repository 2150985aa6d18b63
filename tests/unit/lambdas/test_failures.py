"""The judgement of a failed job: which evidence decides, and that any text is judged, in bounded time."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import failures as benchmark
from lambdas.logic.departures import PodEvidence
from lambdas.logic.gang_failures import failure
from lambdas.logic.watching import require_hope
from tests.fakes.runs import job_ref, run_of
from tests.wording import wording
from trainflow.errors import ScriptFailed, WorkerFailed, named_errors
from trainflow.failures.error_table import Group, error_list
from trainflow.failures.judging import Evidence, Strength, Verdict, judge
from trainflow.failures.log_lines import MAX_LINES, evidence_lines, rank_exit_code
from trainflow.failures.table import Kind, failure_table
from trainflow.observed.job import JobStatus
from trainflow.observed.pod import Pod
from trainflow.workflow.run import Stage

pytestmark = pytest.mark.lengthy

DeviceFailed, ImageUnavailable, JobEvicted, NodeLost, StorageUnavailable = map(
    named_errors().__getitem__, ("DeviceFailed", "ImageUnavailable", "JobEvicted", "NodeLost", "StorageUnavailable")
)

CORPORA = Path(__file__).parents[2] / "assets" / "failures"
RUN = run_of()
TRAINING = job_ref(RUN, Stage.TRAINING)
FAILED = JobStatus(phase=None, failure_reason="BackoffLimitExceeded", failure_message="Job has reached the limit")


def judged(*lines: str, **known: Any) -> Verdict:
    return judge(Evidence(lines=lines, **{"exit_code": 1, **known}))


def report(exit_code: int, *, others: int = 0) -> list[str]:
    """torchrun's report of a rank, behind those of ranks that it ended itself."""
    ended = [
        line
        for rank in range(others)
        for line in (
            f"[{rank + 1}]:",
            f"  rank      : {rank}",
            "  exitcode  : -15 (pid: 7)",
            "  traceback : Signal 15 (SIGTERM)",
        )
    ]
    return [
        f"E1121 1 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: {exit_code}) local_rank: 0",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "Failures:",
        *ended,
        "Root Cause (first observed failure):",
        "[0]:",
        f"  exitcode  : {exit_code} (pid: 8)",
    ]


@pytest.mark.parametrize("corpus", ["corpus.jsonl", "holdout.jsonl"])
def test_decisions_and_names_are_right_for_the_corpora(corpus: str) -> None:
    result = benchmark.run(CORPORA / corpus)
    assert result.details["restarted_in_vain"] == []
    assert result.ratios["restart_right"] >= 0.95
    assert result.ratios["class_right"] >= 0.9


def test_the_corpora_have_two_hundred_cases_and_every_case_has_a_name_of_its_own() -> None:
    names = [case["name"] for corpus in CORPORA.glob("*.jsonl") for case in benchmark.read_corpus(corpus)]
    assert len(names) == len(set(names)) >= 200


def test_the_exit_code_is_that_of_the_rank_that_failed_first_and_not_torchruns() -> None:
    assert rank_exit_code(report(-9, others=32)) == 137
    assert rank_exit_code(report(3)) == 3
    assert rank_exit_code(["nothing of torchrun's"]) is None
    assert judged(*report(-9, others=32)).error.name == "WorkerFailed"


def test_torchruns_error_file_is_read_from_the_termination_message() -> None:
    error_file = {
        "message": {
            "message": "RuntimeError: CUDA error: uncorrectable ECC error encountered",
            "errorCode": -6,
            "extraInfo": {"py_callstack": "Traceback (most recent call last):\nRuntimeError: …", "timestamp": "1"},
        }
    }
    verdict = judged(message=json.dumps(error_file))
    assert (verdict.error.name, verdict.rank_exit_code) == ("DeviceFailed", 134)
    assert judged(message='{"message": "ModuleNotFoundError: No module named x"}').error.name == "ScriptFailed"


def test_a_cause_beats_what_follows_from_it_wherever_it_stands() -> None:
    cause, consequence = "[rank3]: AssertionError: loss is nan", "[rank0]: RuntimeError: Connection reset by peer"
    assert judged(cause, consequence).error.name == judged(consequence, cause).error.name == "LossNotFinite"


def test_a_warning_decides_only_where_nothing_else_does() -> None:
    warning = "WARNING:botocore: SlowDown, will retry"
    assert judged(warning, "KeyError: 'labels'").error.name == "ScriptFailed"
    assert judged(warning).error.name == "StorageUnavailable"
    assert judged(warning).strength is Strength.WEAK


def test_what_keeps_a_pod_from_starting_explains_the_deadline_of_its_job() -> None:
    waited = {"exit_code": None, "job_reason": "DeadlineExceeded"}
    assert judged(**waited).error.name == "JobDeadlineExceeded"
    assert judged(**waited, pending_reason="Unschedulable").error.name == "JobDeadlineExceeded"
    assert judged(**waited, pending_reason="InvalidImageName").error.name == "ImageUnavailable"


def test_of_a_pod_that_never_ran_the_clusters_own_words_count() -> None:
    refused = judged('Error: secret "token" not found', exit_code=None, pending_reason="CreateContainerConfigError")
    assert refused.error.name == "SecretUnavailable"
    ran = judged("Failed to pull image: 503", exit_code=1, pending_reason="ErrImagePull")
    assert ran.error.name == "ScriptFailed"


def test_the_source_code_in_a_traceback_is_no_evidence() -> None:
    verdict = judged(
        "Traceback (most recent call last):",
        '  File "/workspace/train.py", line 3, in main',
        '    raise RuntimeError("no space left on device") if full else error',
        "RuntimeError: the moon is full",
    )
    assert verdict.strength is Strength.UNCAUGHT
    assert verdict.quotation == "RuntimeError: the moon is full"


def test_an_exception_that_the_program_handled_is_not_the_one_that_ended_it() -> None:
    handling = "During handling of the above exception, another exception occurred:"
    assert judged("KeyError: 'x'", handling, "RuntimeError: no cache").quotation == "RuntimeError: no cache"
    assert judged("KeyError: 'x'", handling, "TypeError: no").quotation == "TypeError: no"


def test_an_exception_that_no_rule_knows_is_the_programs_own_unless_it_says_that_it_may_pass() -> None:
    ended = "W1121 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 8549 closing signal SIGTERM"
    assert judged("acme.Plan: stage 3 has no optimizer", ended, has_steps=True).error.name == "ScriptFailed"
    closed = "RuntimeError: the ledger is closed"
    assert judged(closed, *report(1, others=2), has_steps=True).error.name == "ScriptFailed"
    assert judged("acme.QuorumError: member 3 was lost, try again", has_steps=True).error.name == "WorkerFailed"
    assert judged(closed, *report(-9), has_steps=True).error.name == "WorkerFailed"
    assert judged("no exception at all", has_steps=True).error.name == "WorkerFailed"


def test_a_word_that_only_contains_the_name_of_a_launcher_is_no_evidence_of_it() -> None:
    assert judged("ValueError: a supported device is needed").error.name == "ScriptFailed"
    assert judged("orted was not able to start").error.name == "NetworkFailed"


def test_a_worker_out_of_memory_is_restarted_only_after_a_step() -> None:
    killed = Evidence(pod_reason="OOMKilled", exit_code=137)
    assert judge(killed).error.name == "OutOfMemory"
    assert judge(Evidence(**{**vars(killed), "has_steps": True})).error.name == "WorkerOutOfMemory"


def test_what_a_program_names_is_kept_unless_its_reason_passes() -> None:
    full = {"error": "StorageFailed", "message": "/runs: [Errno 28] No space left on device"}
    gone = {"error": "StorageFailed", "message": "/runs: [Errno 108] Cannot send after transport endpoint shutdown"}
    assert judged(message=json.dumps(full)).error.name == "StorageFailed"
    assert judged(message=json.dumps(gone)).error.name == "StorageUnavailable"


def test_the_pod_with_the_strongest_evidence_names_the_jobs_error() -> None:
    """Times in whole seconds do not order the pods of a gang that fails at once."""
    victim = PodEvidence(Pod(name="a-0", exit_code=1), ("RuntimeError: Connection closed by peer",))
    broken = PodEvidence(Pod(name="a-1", exit_code=1), ("NRT_EXEC_HW_ERR_HBM_UE", *report(-6)))
    error = failure(TRAINING, FAILED, [victim, broken], last_step=7)
    assert type(error) is DeviceFailed
    assert str(error) == (
        wording("failures.the_pod_with_the_strongest_evidence_names_the_jobs_error", "'a-1'", "'None'", "134")
    )


def test_a_pod_that_ended_for_an_unknown_reason_is_a_better_cause_than_one_that_lost_it() -> None:
    first = PodEvidence(Pod(name="a-1", exit_code=1))
    victim = PodEvidence(Pod(name="a-0", exit_code=1), ("RuntimeError: Connection closed by peer",))
    error = failure(TRAINING, FAILED, [first, victim], last_step=7)
    assert type(error) is WorkerFailed
    assert "Pod 'a-1'" in str(error)


def test_a_disrupted_pod_and_a_file_system_out_of_reach_have_names_of_their_own() -> None:
    drained = PodEvidence(Pod(name="a", exit_code=143, end_reason="EvictionByEvictionAPI"))
    assert type(failure(TRAINING, FAILED, [drained], last_step=None)) is JobEvicted
    lustre = PodEvidence(Pod(name="a", exit_code=1), ("OSError: [Errno 108] Cannot send after transport endpoint",))
    assert type(failure(TRAINING, FAILED, [lustre], last_step=None)) is StorageUnavailable


def test_what_the_cluster_says_of_a_job_beats_the_end_of_a_pod_and_not_what_it_says_of_the_pod() -> None:
    """A pod's condition names its node; the job's is less exact."""
    status = JobStatus(phase=None, failure_reason="NodeLost", failure_message="lost node 'n1' (NodeDown)")
    ended = PodEvidence(Pod(name="a-0", node="n0", exit_code=1), ("ValueError: no flux",))
    drained = PodEvidence(Pod(name="a-1", node="n1", exit_code=143, end_reason="EvictionByEvictionAPI"))
    by_job = failure(TRAINING, status, [ended], last_step=7)
    assert type(by_job) is NodeLost
    assert str(by_job) == f"The job '{TRAINING.name}' lost node 'n1' (NodeDown)."
    by_pod = failure(TRAINING, status, [ended, drained], last_step=7)
    assert type(by_pod) is JobEvicted
    assert "Pod 'a-1' on node 'n1'" in str(by_pod)


def test_only_the_cluster_says_that_a_job_ran_longer_than_its_limit() -> None:
    """A program may use the name for a time limit of its own, and is quoted then."""
    named = json.dumps({"error": "JobDeadlineExceeded", "message": "my own limit of 5 s has passed"})
    error = failure(
        TRAINING, FAILED, [PodEvidence(Pod(name="a-0", exit_code=1, termination_message=named))], last_step=7
    )
    assert "my own limit of 5 s has passed" in str(error)
    assert "limits.max_duration_hours" not in str(error)


def test_what_a_rule_advises_stands_behind_the_sentence_that_names_the_pod() -> None:
    advice = "The pod wrote more to its own disk than it may: write to the run's folder, or raise the volume's size."
    said = "Usage of EmptyDir volume 'spill' exceeds the limit '1Gi'"
    for words in (said, f"{said}."):
        pod = Pod(name="a-0", node="n0", exit_code=137, end_reason="Evicted", termination_message=words)
        error = failure(TRAINING, FAILED, [PodEvidence(pod, (words,))], last_step=None)
        assert str(error) == f"Pod 'a-0' on node 'n0' ended with exit code 137 (Evicted): {said}. {advice}"


def test_a_place_that_may_not_be_written_and_a_full_disk_call_for_different_things() -> None:
    read_only = judged("OSError: [Errno 30] Read-only file system: 'rank0.txt'")
    full = judged("OSError: [Errno 28] No space left on device: '/runs/a/step-9.pt'")
    assert (read_only.error.name, full.error.name) == ("StorageFailed", "StorageFailed")
    assert "workload.writable_root" in read_only.advice
    assert read_only.advice != full.advice


def test_a_job_without_a_message_fails_with_its_reason() -> None:
    status = JobStatus(phase=None, failure_reason="BackoffLimitExceeded")
    error = failure(TRAINING, status, [], last_step=None)
    assert (type(error), str(error)) == (WorkerFailed, f"The job '{TRAINING.name}' failed: BackoffLimitExceeded.")


def test_a_gang_whose_image_cannot_be_pulled_is_not_submitted_again() -> None:
    reason = 'ImagePullBackOff: Back-off pulling image "bert:v9"'
    with pytest.raises(ImageUnavailable, match=re.escape(reason)):
        require_hope(TRAINING, reason, waited=timedelta(minutes=31), limits=RUN.spec.limits)


def test_every_rule_has_evidence_and_leads_to_a_class() -> None:
    table = failure_table()
    assert len({rule.name for rule in table.rules}) == len(table.rules)
    for rule in table.rules:
        by_cluster = rule.pending or rule.job_reasons or rule.pod_reasons or rule.exit_codes
        assert rule.log or by_cluster or (rule.kind is Kind.UNCAUGHT and rule.exception_says), rule.name
        assert rule.error.group is Group.JOB
    assert "ScriptFailed" not in error_list("restarted")


@given(
    st.builds(
        Evidence,
        lines=st.lists(st.text(max_size=300), max_size=20),
        message=st.none() | st.text() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps),
        exit_code=st.none() | st.integers(-(2**40), 2**40),
        pod_reason=st.none() | st.text(),
        job_reason=st.none() | st.text(),
        pending_reason=st.none() | st.text(),
        has_steps=st.booleans(),
    )
)
def test_any_evidence_is_judged(evidence: Evidence) -> None:
    assert judge(evidence).error.group is Group.JOB


@given(st.dictionaries(st.sampled_from(["message", "error", "extraInfo", "errorCode"]), st.text() | st.integers()))
def test_any_document_is_judged_as_a_termination_message(document: dict[str, Any]) -> None:
    for message in (document, {"message": document}, {"message": {"extraInfo": document}}):
        assert judge(Evidence(message=json.dumps(message), exit_code=1)).error.group is Group.JOB


@pytest.mark.parametrize(
    "line",
    [
        "nan loss error failed to timeout nccl connection s3 nvlink " * 20_000,
        "[" * 1_000_000,
        "a." * 500_000 + "Error: ",
        "failed to allocate " * 50_000,
        "\r" * 1_000_000,
        "exitcode: " * 100_000,
    ],
    ids=["words", "brackets", "dots", "prefix", "carriage returns", "exit codes"],
)
def test_long_lines_are_judged_in_bounded_time(line: str) -> None:
    began = time.process_time()
    judged(*[line] * 3, *(f"{number} {line[:2000]}" for number in range(2 * MAX_LINES)))
    assert time.process_time() - began < 10


STEPS = [f"{{'loss': 2.{number}, 'learning_rate': 1e-05}}" for number in range(3)]

WAITING = [
    "[rank1]:[E1123 11:29:55.4 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout",
    "trn-0:4119:4302 [0] socket.c:62 NCCL WARN socketProgressOpt: Call to recv from 10.0.4.17 failed : Broken pipe",
    "2026-Nov-23 11:30:12 404:904 ERROR  NMGR:dlr_infer      Inference completed with err: 5. mode->h_nn=1016",
    "[rank6]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error",
    "[rank6]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
]
"""What other ranks print when one has ended."""


class JudgedCase(NamedTuple):
    """A case of the corpora as it is."""

    case: dict[str, Any]
    evidence: Evidence
    verdict: Verdict


@cache
def judged_cases(every: int) -> Sequence[JudgedCase]:
    """Each n-th case of the corpora; judging them is the dearest part of the tests that change them."""
    cases = [case for corpus in sorted(CORPORA.glob("*.jsonl")) for case in benchmark.read_corpus(corpus)]
    evidence = map(benchmark.case_evidence, cases[::every])
    return [JudgedCase(case, each, judge(each)) for case, each in zip(cases[::every], evidence, strict=True)]


sampled = pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)], ids="1 of {} cases".format)


@sampled
def test_what_waiting_ranks_print_causes_no_restart_of_what_cannot_be_helped(every: int) -> None:
    restarted = []
    for case, evidence, verdict in judged_cases(every):
        if case["restart"] or verdict.rule == "default" or is_error_without_exception(verdict):
            continue
        surrounded = Evidence(**{**vars(evidence), "lines": [*WAITING, *evidence.lines, *WAITING]})
        if judge(surrounded).restart:
            restarted.append(case["name"])
    assert restarted == []


def is_error_without_exception(verdict: Verdict) -> bool:
    """Whether only the place of a line at the end of the log shows that it ended the program."""
    return verdict.strength is Strength.PASSING and not verdict.restart


def test_a_line_that_steps_follow_decides_only_where_nothing_else_does() -> None:
    overcome = "torch.OutOfMemoryError: CUDA out of memory"
    assert judged(overcome, *STEPS, "KeyError: 'x'", has_steps=True).error.name == "ScriptFailed"
    assert judged(overcome, *STEPS, has_steps=True).error.name == "OutOfMemory"
    assert judged(overcome, *STEPS[:1], "KeyError: 'x'", has_steps=True).error.name == "OutOfMemory"


def test_trouble_with_a_service_decides_unless_an_exception_that_ended_the_program_is_explained() -> None:
    trouble = "ERROR fetch: 503 Service Unavailable"
    assert judged(trouble).error.name == "RemoteUnavailable"
    assert judged(trouble, "KeyError: 'x'").error.name == "ScriptFailed"
    assert judged(trouble, "acme.Fetcher: nothing was fetched").error.name == "RemoteUnavailable"
    assert judged("KeyError: 'x'", f"requests.HTTPError: {trouble}").error.name == "RemoteUnavailable"


def test_the_message_of_an_exception_ends_where_another_record_begins() -> None:
    lines = evidence_lines(
        ["[rank1]: acme.Refused: two lines", "[rank1]:   more", "[rank0]: other", "acme.Refused: one", "NVRM: Xid"]
    )
    assert [line.text for line in lines if line.last_words] == ["acme.Refused: two lines", "more", "acme.Refused: one"]


def test_an_unknown_exception_of_a_rank_comes_before_what_the_others_say_of_their_connections() -> None:
    assert judged(*WAITING, "[rank3]: acme.Exhausted: stage 4 is empty").error.name == "ScriptFailed"
    assert judged(*WAITING, "[rank3]: acme.Lost: the peer was lost").error.name == "CollectiveTimeout"
    wrapper = ["The above exception was the direct cause of the following exception:", "acme.SetupFailed: no group"]
    assert judged("DistNetworkError: timed out", *wrapper).error.name == "NetworkFailed"
    assert judged("KeyError: 'x'", *wrapper, *WAITING).error.name == "ScriptFailed"


def test_an_unknown_exception_of_a_pod_explains_the_pods_that_lost_it() -> None:
    own = PodEvidence(Pod(name="a-1", exit_code=1), ("acme.Exhausted: stage 4 is empty",))
    victim = PodEvidence(Pod(name="a-0", exit_code=1), tuple(WAITING))
    assert type(failure(TRAINING, FAILED, [victim, own], last_step=7)) is ScriptFailed


def test_words_that_an_exception_of_the_program_quotes_are_not_its_cause() -> None:
    assert judged("ValueError: cannot tokenize 'connection reset by peer, timed out'").error.name == "ScriptFailed"
    assert judged("RuntimeError: connection timed out").error.name == "NetworkFailed"


def test_an_exit_code_that_no_other_process_brings_about_comes_before_connections() -> None:
    assert judged(*WAITING, *report(-11), has_steps=True).error.name == "WorkerFailed"
    assert judged(*WAITING, *report(-6), has_steps=True).error.name == "CollectiveTimeout"
    assert judged(*WAITING, exit_code=127).error.name == "ScriptFailed"
    assert judged(*WAITING, exit_code=137).error.name == "CollectiveTimeout"
    assert rank_exit_code(["['python', 'train.py', '--local_rank=7'] exits with return code = -9"]) == 137
    assert rank_exit_code(["ERROR:composer.cli.launcher:Rank 3 crashed with exit code -7."]) == 135


def test_an_error_that_a_program_logs_before_it_ends_by_itself_is_its_own() -> None:
    gate = "ERROR train: accuracy 0.1 is below 0.5 at step 500"
    assert judged(gate, has_steps=True).error.name == "ScriptFailed"
    assert judged(gate, exit_code=143, has_steps=True).error.name == "WorkerFailed"
    assert judged(gate, "a", "b", "c", has_steps=True).error.name == "WorkerFailed"


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("nrt_execute: status=2", "ScriptFailed"),
        ("nrt_load status=4", "OutOfMemory"),
        ("nrt_execute: status=5, Operation timed out", "DeviceFailed"),
        ("nrt_load: status=9", "ConfigInvalid"),
        ("nrt_load: status=10", "GraphCompilationFailed"),
        ("nrt_load: status=11", "OutOfMemory"),
        ("nrt_execute: status=1003", "LossNotFinite"),
        ("nrt_execute: status=1006", "ScriptFailed"),
        ("nrt_execute: status=1202", "DeviceFailed"),
        ("OSError: [Errno 36] File name too long", "ScriptFailed"),
        ("OSError: [Errno 116] Stale file handle", "StorageUnavailable"),
        ("HTTPError: 422 Client Error: Unprocessable Entity", "ScriptFailed"),
        ("HTTPError: 429 Client Error: Too Many Requests", "RemoteUnavailable"),
        ("status = StatusCode.UNIMPLEMENTED", "ScriptFailed"),
        ("status = StatusCode.PERMISSION_DENIED", "AccessDenied"),
        ("NVRM: Xid (PCI:0000:3b:00): 119, pid=1, Timeout waiting for RPC from GPU3 GSP", "DeviceFailed"),
        ("RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain", "ScriptFailed"),
    ],
)
def test_codes_are_read_by_their_documented_meaning(line: str, error: str) -> None:
    assert judged(line, has_steps=True).error.name == error


def test_the_user_behind_a_cancelled_job_is_no_part_of_the_reason() -> None:
    assert judged(job_reason="CANCELLED by 1001", exit_code=None).error.name == "JobCancelled"


def test_repeated_lines_of_many_ranks_are_judged_once() -> None:
    lines = [f"[rank{rank}]: RuntimeError: NCCL error" for rank in range(64)]
    assert [line.text for line in evidence_lines(lines)] == ["RuntimeError: NCCL error"]


PREFIXES = {
    "containerd": "2026-11-24T08:12:40.113423117Z stderr F ",
    "kubectl": "[pod/bert-0-xk2lp/train] ",
    "compose": "train-0  | ",
    "srun": " 3: ",
    "Ray": "(RayTrainWorker pid=4412, ip=10.0.3.4) ",
    "colour": "\x1b[36m",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
def test_what_stands_before_every_line_of_a_log_decides_nothing(prefix: str) -> None:
    differing = []
    for case, evidence, verdict in judged_cases(4)[::2]:
        prefixed = Evidence(**{**vars(evidence), "lines": [prefix + line for line in evidence.lines]})
        if judge(prefixed).error != verdict.error:
            differing.append(case["name"])
    assert differing == []


def test_a_record_in_json_is_read_with_its_level_and_its_exception() -> None:
    error = {"level": "ERROR", "message": "unhandled", "exc_info": "Traceback:\nRuntimeError: stage 3 has no optimizer"}
    warning = {"level": "warning", "msg": "SlowDown, will retry"}
    assert judged(json.dumps(warning), json.dumps(error), has_steps=True).error.name == "ScriptFailed"
    docker = {"log": "CUDA out of memory\n", "stream": "stderr", "time": "2026-11-24T08:12:40Z"}
    assert judged(json.dumps(docker)).error.name == "OutOfMemory"
    assert judged("{" + "[" * 5000 + "}").rule == judged('{"level": 3}').rule == "default"


def test_a_traceback_that_a_logger_relays_as_information_counts() -> None:
    relayed = ["INFO - Traceback (most recent call last):", "INFO - KeyError: 'labels'"]
    assert judged("INFO - max retries exceeded with url", *relayed, has_steps=True).error.name == "ScriptFailed"
    assert judged("INFO - KeyError: 'labels'", has_steps=True).error.name == "WorkerFailed"


def test_a_warning_restarts_nothing_if_the_program_said_more_before_it_ended_by_itself() -> None:
    warning = "WARNING:botocore: SlowDown, will retry"
    assert judged(warning, "no such device type").error.name == "ScriptFailed"
    assert judged(warning, *report(1)).error.name == "StorageUnavailable"
    assert judged(warning, "no such device type", exit_code=None).error.name == "StorageUnavailable"


def test_an_exception_in_a_finalizer_ended_no_program() -> None:
    ignored = ["Exception ignored in: <function Loader.__del__>", "AssertionError: can only test a child process"]
    assert judged("CUDA error: uncorrectable ECC error", *ignored).error.name == "DeviceFailed"
    assert judged(*ignored, "ConnectionResetError: gone", has_steps=True).error.name == "NetworkFailed"


def test_the_source_code_in_a_traceback_of_rich_is_no_evidence() -> None:
    box = ["╭─ Traceback (most recent call last) ─╮", '│ 111 │ raise ConnectionError("reset by peer") │', "╰────╯"]
    assert judged(*box, "KeyError: 'shard'", has_steps=True).error.name == "ScriptFailed"
    assert judged(*box, "ran out of ideas").rule == "default"


def test_an_exit_code_above_those_of_signals_is_the_programs_own() -> None:
    assert judged("bye", exit_code=255).error.name == "ScriptFailed"
    assert judged("bye", exit_code=255, has_steps=True).error.name == "WorkerFailed"
    assert judged("bye", exit_code=137).error.name == "WorkerFailed"


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("acme.ClientAuthenticationError: the server failed", "AccessDenied"),
        ("acme.MissingConfigError: not set on this machine", "ConfigInvalid"),
        ("acme.ResourceNotFoundError: the server failed to find it", "ScriptFailed"),
        ("acme.HostNotFoundError: connection lost", "NetworkFailed"),
        ("ray.exceptions.RayTaskError(TypeError): connection lost", "ScriptFailed"),
        ("tenacity.RetryError: RetryError[<Future at 0x7f state=finished raised KeyError>]", "ScriptFailed"),
        ("acme.Store: gave no answer within 60 s", "WorkerFailed"),
        ("acme.StoreError: bucket gave no answer", "StorageUnavailable"),
        ("acme.DeviceError: GPU 3 has vanished", "DeviceFailed"),
        ("acme.InstanceError: will be reclaimed", "JobPreempted"),
        ("acme.ApiError: the service is down", "RemoteUnavailable"),
        ("acme.SendError: no transport configured", "ScriptFailed"),
    ],
)
def test_an_unknown_exception_is_judged_by_its_name_and_then_by_what_it_speaks_of(line: str, error: str) -> None:
    assert judged(line, has_steps=True).error.name == error


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("DatasetInvalid: CUDA out of memory. Tried to allocate 2 GiB", "DatasetInvalid"),
        ("NodeUnhealthy: CUDA error: uncorrectable ECC error encountered", "NodeUnhealthy"),
        ("DatasetInvalid: CUDA error: uncorrectable ECC error encountered", "DeviceFailed"),
    ],
)
def test_a_reason_in_the_words_of_a_named_error_decides_only_if_it_passes_and_the_error_does_not(
    line: str, error: str
) -> None:
    """A cause that no restart mends adds nothing; an error that is restarted anyway keeps its own name."""
    assert judged(line).error.name == error
