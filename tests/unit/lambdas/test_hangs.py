"""A job that hangs in a collective operation ends soon after its log says so; one that goes on is left alone."""

from __future__ import annotations

import json
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from benchmarks import failures as benchmark
from lambdas.handlers import poll_job, publish_metrics, submit_job
from lambdas.logic.step_metrics import AFTERMATH, Batch, advanced, next_batch
from lambdas.logic.unreachable import timestamp
from lambdas.logic.watching import HANG_GRACE, require_no_hang
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import STARTED_AT, run_of
from tests.unit.lambdas.conftest import CONTEXT
from trainflow.deployment.kubernetes_names import JOB_LABEL
from trainflow.errors import named_errors
from trainflow.failures.error_table import error_table
from trainflow.failures.hangs import CLUES, MAX_QUOTATION, hang_line
from trainflow.failures.table import Kind, failure_table
from trainflow.observed.job import JobStatus
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.run import Hang, JobPhase, JobRef, LogPosition, MetricsCursor, Stage

CollectiveTimeout, ScriptFailed = map(named_errors().__getitem__, ("CollectiveTimeout", "ScriptFailed"))

CORPORA = Path(__file__).parents[2] / "assets" / "failures"
RUN = run_of()
JOB = JobRef(name="bert-training-1", stage=Stage.TRAINING, attempt=1, num_nodes=2)
STATUS = JobStatus(phase=JobPhase.RUNNING, started_at=STARTED_AT)
NOW = STARTED_AT + timedelta(hours=5)

WATCHDOG = (
    "[rank0]:[E321 02:07:08.408 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600060 milliseconds before timing out."
)
SAYS_SO = [
    ("CollectiveTimeout", WATCHDOG),
    (
        "CollectiveTimeout",
        "[E ProcessGroupNCCL.cpp:488] Some NCCL operations have failed or timed out. Due to the asynchronous nature",
    ),
    (
        "CollectiveTimeout",
        "[rank3]:[E ProcessGroupNCCL.cpp:1316] Received a dump signal due to a collective timeout from this local rank",
    ),
    (
        "CollectiveTimeout",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for "
        "recv operation to complete",
    ),
    (
        "CollectiveTimeout",
        "2026-Nov-21 07:01:12.5 91:412 ERROR  ENC:enc_poll  [nec_dev 3] Timeout waiting for RX from rank 12",
    ),
    ("CollectiveTimeout", "nrt_exec failed: NRT_EXEC_HW_ERR_COLLECTIVES"),
    (
        "DeviceFailed",
        "2026-Nov-20 04:00:11.1  211:9000  ERROR  TDRV:exec_consume_infer_status_notifications  "
        "(FATAL-RT-UNDEFINED-STATE) execution timeout (600000 ms) on Neuron Device 5 NC 1",
    ),
    (
        "NetworkFailed",
        "libfabric:4411:1700000000:efa:cq:efa_rdm_cq_poll_ibv_cq():319<warn> err: 14, message: Unresponsive receiver "
        "(reachable by EFA device but handshake failed)",
    ),
]
SAYS_NOTHING = [
    "W0321 Watchdog caught collective operation timeout soon? retrying",
    "WARNING:acme: Timed out waiting 30ms for recv, will retry",
    "INFO: init_process_group(backend='nccl', timeout=datetime.timedelta(seconds=1800))",
    "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='hub'): Read timed out.",
    "downloading shard 17 timed out waiting for lock",
    "NCCL INFO 16 coll channels, 16 collnet channels, 0 nvls channels, 32 p2p channels: collectives are ready",
]


def step_line(step: int) -> str:
    return f"LOG Wed Dec 21 00:51:01 2022 - (0, {step}) step_loss : 9.0 learning_rate : 4e-4 throughput : 200.00"


def read(
    lines: list[tuple[float, str]], cursor: MetricsCursor | None = None, *, minute: float = 0, pod: str = "pod"
) -> MetricsCursor:
    """The cursor after one poll, of lines with their times in seconds, at a minute after `NOW`."""
    before = cursor or MetricsCursor()
    batch = next_batch([LogLine(NOW + timedelta(seconds=at), text) for at, text in lines], before)
    position = LogPosition(pod=pod, since=NOW, num_lines=1, first_line=1)
    return advanced(before, batch, log=position, now=NOW + timedelta(minutes=minute))


def require(cursor: MetricsCursor, *, after: timedelta, job: JobRef = JOB, **status: Any) -> None:
    known = STATUS if not status else JobStatus(**{"phase": JobPhase.RUNNING, "started_at": STARTED_AT, **status})
    require_no_hang(job, known, cursor, poll_seconds=30, now=NOW + after)


@pytest.mark.parametrize(("error", "line"), SAYS_SO)
def test_a_line_by_which_a_library_gives_up_is_known_and_names_its_error(error: str, line: str) -> None:
    said = hang_line(line)
    assert said is not None
    assert said.error == error
    assert len(said.text) <= MAX_QUOTATION


@pytest.mark.parametrize("line", SAYS_NOTHING)
def test_a_warning_and_a_line_that_only_has_the_words_say_nothing(line: str) -> None:
    assert hang_line(line) is None


def test_a_rule_about_hangs_leads_to_a_restart_and_its_lines_have_a_clue() -> None:
    rules = [rule for rule in failure_table().rules if rule.hang]
    assert rules
    for rule in rules:
        assert rule.kind is Kind.LINK
        assert rule.error.restart
        assert rule.error == rule.error_after_steps
    lines = [
        line for corpus in CORPORA.glob("*.jsonl") for case in benchmark.read_corpus(corpus) for line in case["logs"]
    ]
    found = [line for line in lines if any(each.search(line.lower()) for rule in rules for each in rule.log)]
    assert len(found) >= 10
    assert [line for line in found if not any(clue in line.lower() for clue in CLUES)] == []


def test_a_job_that_says_nothing_more_ends_two_minutes_after_the_line() -> None:
    cursor = read([(-700, step_line(7)), (0, WATCHDOG), (0.2, "frame #0: c10d::ProcessGroupNCCL"), (3, "dump written")])
    assert cursor.hang is not None
    assert (cursor.hang.seen_at, cursor.last_step) == (NOW, 7)
    require(cursor, after=timedelta(seconds=119))
    with pytest.raises(CollectiveTimeout, match=r"step after 7\b.* 2 minutes.*SeqNum=1580"):
        require(cursor, after=HANG_GRACE)


def test_a_program_without_steps_ends_likewise() -> None:
    cursor = read([(0, "epoch 1 begins"), (5, WATCHDOG)])
    with pytest.raises(CollectiveTimeout, match=r"no step\b(?! after)"):
        require(cursor, after=HANG_GRACE)


@pytest.mark.parametrize("life", [step_line(8), step_line(7), '{"trainflow_metrics": {"step": 8, "loss": 1.0}}'])
@pytest.mark.parametrize("at_another_poll", [False, True])
def test_a_step_behind_the_line_ends_the_suspicion_also_a_repeated_one(life: str, at_another_poll: bool) -> None:
    before = [(-700.0, step_line(7)), (0.0, WATCHDOG)]
    cursor = read([(1, life)], read(before)) if at_another_poll else read([*before, (1, life)])
    assert cursor.hang is None


def test_any_other_line_that_comes_later_than_what_belongs_to_the_hang_ends_the_suspicion() -> None:
    later = AFTERMATH.total_seconds() + 1
    hanging = read([(0, step_line(7)), (10, WATCHDOG)])
    assert read([(later, "[rank1]: the same"), (10 + later, "evaluating batch 3 of 900")], hanging).hang is None
    assert read([(9 + later, "stack of thread 12")], hanging).hang is not None


def of_file(step: int, at: float) -> str:
    logged_at = (NOW + timedelta(seconds=at)).timestamp()
    return json.dumps({"trainflow_metrics": {"loss": 1.0, "logged_at": logged_at, "step": step, "relayed": True}})


def test_what_is_printed_of_files_ends_the_suspicion_only_with_a_younger_step() -> None:
    """Event files are written every two minutes, and a library that gives up dumps its state into files."""
    hanging = read([(-60, of_file(6, -60)), (0, WATCHDOG)])
    assert hanging.last_step == 6
    late = read([(60, '{"trainflow_alive": {"changed_files": 1}}'), (110, of_file(7, -2))], hanging)
    assert (late.hang is not None, late.last_step) == (True, 7)
    assert read([(120, of_file(8, 90))], late).hang is None


def test_the_line_again_is_no_sign_of_life_and_does_not_begin_the_time_anew() -> None:
    hanging = read([(0, WATCHDOG)])
    again = read([(90, WATCHDOG.replace("1580", "1581"))], hanging, minute=1.5)
    assert again.hang is not None
    assert ("SeqNum=1580" in again.hang.line, again.hang.seen_at) == (True, NOW)
    with pytest.raises(CollectiveTimeout):
        require(again, after=HANG_GRACE)


def test_a_second_hang_after_a_step_has_its_own_time() -> None:
    hanging = read([(0, WATCHDOG)])
    second = read([(30, step_line(8)), (90, WATCHDOG)], hanging, minute=2)
    require(second, after=timedelta(minutes=3.9))
    with pytest.raises(CollectiveTimeout):
        require(second, after=timedelta(minutes=4))


def test_a_job_whose_steps_lay_further_apart_has_as_long_again() -> None:
    """An evaluation of twelve minutes: other ranks' watchdogs may give up while rank 0 goes on."""
    cursor = read([(-1, step_line(1))], minute=-20)
    cursor = read([(-1, step_line(2))], cursor, minute=-8)
    cursor = read([(0, WATCHDOG)], cursor)
    assert cursor.longest_pause_seconds == 12 * 60
    require(cursor, after=timedelta(minutes=11.9))
    with pytest.raises(CollectiveTimeout):
        require(cursor, after=timedelta(minutes=12))


def test_the_pause_of_a_restart_is_none_between_steps() -> None:
    cursor = read([(-1, step_line(1))], minute=-60)
    assert read([(-1, step_line(2))], cursor, pod="pod of the next attempt").longest_pause_seconds == 0


def test_a_job_that_is_polled_rarely_has_two_polls() -> None:
    cursor = read([(0, WATCHDOG)])
    require_no_hang(JOB, STATUS, cursor, poll_seconds=300, now=NOW + timedelta(minutes=9))
    with pytest.raises(CollectiveTimeout):
        require_no_hang(JOB, STATUS, cursor, poll_seconds=300, now=NOW + timedelta(minutes=10))


def test_the_hang_of_the_attempt_before_does_not_end_the_next_one() -> None:
    cursor = read([(0, WATCHDOG)])
    require(cursor, after=timedelta(hours=1), started_at=NOW + timedelta(minutes=3))
    assert read([(400, "loading")], cursor, pod="pod of the next attempt").hang is None


def test_jobs_that_have_ended_elastic_jobs_and_other_stages_are_left_alone() -> None:
    cursor, later = read([(0, WATCHDOG)]), timedelta(hours=1)
    require(cursor, after=later, phase=JobPhase.SUCCEEDED)
    require(cursor, after=later, job=JOB.model_copy(update={"min_nodes": 1}))
    require(cursor, after=later, job=JOB.model_copy(update={"stage": Stage.PRECOMPILE}))
    with pytest.raises(CollectiveTimeout):
        require(cursor, after=later)


def test_cursors_of_earlier_versions_know_of_no_hang_and_new_ones_pass_through_json() -> None:
    assert MetricsCursor.model_validate({"last_step": 7}).hang is None
    cursor = read([(0, WATCHDOG)])
    assert MetricsCursor.model_validate(json.loads(cursor.model_dump_json())) == cursor


def test_signs_of_a_hang_are_kept_where_steps_could_not_be_published() -> None:
    hanging = read([(0, WATCHDOG)])
    assert MetricsCursor().alive_as(hanging).hang == hanging.hang
    assert hanging.alive_as(read([(60, step_line(8))], hanging)).hang is None


def test_a_batch_that_is_cut_to_what_is_new_keeps_the_hang() -> None:
    hang = Hang(error="CollectiveTimeout", line=WATCHDOG, logged_at=NOW, seen_at=NOW)
    assert Batch(hang=hang, hang_is_new=True).behind(MetricsCursor(last_step=7)).hang == hang


def stamped(at: datetime, text: str) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%S.%f}000Z {text}\n"


@pytest.mark.usefixtures("aws")
class TestPolls:
    """PublishMetrics and PollJob in turn, as the state machine calls them."""

    @pytest.fixture
    def job(self, cluster: FakeKubernetesApi) -> Any:
        event = {"run": RUN.model_dump(mode="json"), "stage": "training", "attempt": 1, "cache": None}
        event["submitted_at"] = timestamp(datetime.now(UTC))
        job = submit_job.lambda_handler(event, CONTEXT)["job"]
        (found,) = (each for each in cluster.objects.values() if each["kind"] == "Job")
        started_at = datetime.now(UTC) - timedelta(hours=1)
        found["status"] = {"active": 2, "ready": 2, "startTime": started_at.isoformat()}
        return job

    def published(self, cursor: Any = None) -> Any:
        event = {"run": RUN.model_dump(mode="json"), "rank0": "pod"}
        event["cursor"] = cursor or MetricsCursor().model_dump(mode="json")
        return json.loads(json.dumps(publish_metrics.lambda_handler(event, CONTEXT)["cursor"]))

    def polled(self, job: Any, cursor: Any, **fields: Any) -> Any:
        event = {"run": RUN.model_dump(mode="json"), "job": job, "progress": cursor, "phase": "running", **fields}
        return poll_job.lambda_handler(event, CONTEXT)

    def earlier(self, cursor: Any, minutes: float) -> Any:
        """The cursor as if the hang had been seen before."""
        at = datetime.fromisoformat(cursor["hang"]["seen_at"]) - timedelta(minutes=minutes)
        return cursor | {"hang": cursor["hang"] | {"seen_at": at.isoformat()}}

    def test_a_gang_that_prints_a_time_out_and_hangs_ends_long_before_the_stall_limit(
        self, cluster: FakeKubernetesApi, job: Any
    ) -> None:
        now = datetime.now(UTC)
        cluster.logs["pod"] = stamped(now, step_line(7)) + stamped(now, WATCHDOG)
        cursor = self.published()
        assert self.polled(job, cursor)["phase"] == "running"
        hung = self.earlier(cursor, 3)
        assert self.polled(job, hung, log_unread=True)["phase"] == "running", "what is not read says nothing"
        with pytest.raises(CollectiveTimeout) as error:
            self.polled(job, hung)
        assert error.value.what_to_do == error_table()["CollectiveTimeout"].what_to_do

    def test_a_gang_one_pod_of_which_ended_well_does_not_hang_by_itself(
        self, cluster: FakeKubernetesApi, job: Any
    ) -> None:
        now = datetime.now(UTC)
        ended = {"state": {"terminated": {"exitCode": 0, "finishedAt": now.isoformat()}}}
        for index, phase, statuses in ((0, "Running", []), (1, "Succeeded", [ended])):
            labels = {JOB_LABEL: job["name"], "batch.kubernetes.io/job-completion-index": str(index)}
            status = {"phase": phase, "containerStatuses": statuses}
            pod = {"metadata": {"name": f"pod-{index}", "labels": labels}, "spec": {"nodeName": f"n{index}"}}
            cluster.add("pods", pod | {"status": status})
            ready = {"conditions": [{"type": "Ready", "status": "True"}]}
            cluster.add("nodes", {"metadata": {"name": f"n{index}"}, "spec": {}, "status": ready})
        cluster.logs["pod-1"] = stamped(now, "no more data here")
        cluster.logs["pod"] = stamped(now, step_line(7)) + stamped(now, WATCHDOG)
        with pytest.raises(ScriptFailed, match=r"node 1 .*code 0 .*step 7 .*no more data"):
            self.polled(job, self.earlier(self.published(), 3))

    def test_a_gang_that_goes_on_after_a_time_out_does_not_end(self, cluster: FakeKubernetesApi, job: Any) -> None:
        now = datetime.now(UTC)
        cluster.logs["pod"] = stamped(now, step_line(7)) + stamped(now, WATCHDOG)
        hung = self.earlier(self.published(), 3)
        cluster.logs["pod"] += stamped(now, step_line(8))
        cursor = self.published(hung)
        assert cursor["hang"] is None
        assert self.polled(job, cursor)["phase"] == "running"

    def test_time_counts_only_once_the_log_has_been_read_to_its_end(
        self, cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = datetime.now(UTC)
        same_second = "".join(stamped(now, "stack of a thread") for _ in range(1500))
        cluster.logs["pod"] = stamped(now, WATCHDOG) + same_second
        cursor = self.earlier(self.published(), 3)
        cluster.logs["pod"] += same_second
        with monkeypatch.context() as patch:
            patch.setattr(publish_metrics, "READING_SECONDS", -1.0)
            behind = self.published(cursor)
        assert datetime.fromisoformat(behind["hang"]["seen_at"]) >= now
        assert MetricsCursor(**self.published(cursor)).hang == MetricsCursor(**cursor).hang


@pytest.mark.parametrize(("seconds", "hangs"), [(-1, False), (0, False), (1, True)])
def test_a_hang_counts_only_if_it_was_seen_after_the_job_had_started(seconds: int, hangs: bool) -> None:
    """Kubernetes reports the start to the second: a line of that second may be the attempt before's."""
    started = STARTED_AT + timedelta(hours=1)
    status = JobStatus(phase=JobPhase.RUNNING, started_at=started)
    at = started + timedelta(seconds=seconds)
    seen = Hang(error="CollectiveTimeout", line=WATCHDOG, logged_at=at, seen_at=at)
    with pytest.raises(CollectiveTimeout) if hangs else nullcontext():
        require_no_hang(JOB, status, MetricsCursor(hang=seen), poll_seconds=30, now=NOW)
