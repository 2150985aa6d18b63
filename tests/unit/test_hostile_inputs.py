"""Parsers of what comes from outside answer any input: with a value, or with an error that names the input's fault."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from lambdas.backends.slurm import slurmrestd, ssm
from lambdas.backends.slurm.forms import comment_form, parse_comment
from lambdas.gateways.kubernetes_objects import log_lines
from lambdas.logic.departures import PodEvidence
from lambdas.logic.gang_failures import failure
from lambdas.logic.preflight.probe import probe_findings, probed
from lambdas.logic.run_requests import Upload, execution_of_upload, parse_request
from tests.fakes.runs import run_of
from tests.hostile import EXAMPLES, damaged_bytes, damaged_documents, damaged_texts, require_total
from tests.unit.lambdas.test_slurm_api import NEW_PARTITION, OLD_JOB
from tests.unit.lambdas.test_slurm_forms import COMMENT, JOB, newer_job, recorded
from trainer.runtime.errors import DatasetInvalid
from trainer.staging import manifest
from trainflow.errors import ClusterAccessDenied, ClusterUnavailable, InvalidRunSpec, JobRefused, RunRequestInvalid
from trainflow.observed.job import JobStatus
from trainflow.observed.pod import Pod
from trainflow.observed.step import parse_metrics_line, parse_report_line
from trainflow.progress.reader import ProgressReader
from trainflow.protocol import announcement, slurm_job
from trainflow.protocol.checkpoint_line import CheckpointReport, parse_checkpoint_line, parse_resumed_line, resumed_line
from trainflow.protocol.compiler_log import CompilerLog, compiler_lines
from trainflow.protocol.result import read_result
from trainflow.protocol.s3_urls import parse_s3_url
from trainflow.protocol.staging_line import parse_staging_line
from trainflow.record.placement import Placement
from trainflow.record.steps import kept_steps_from_json, kept_steps_of
from trainflow.report.charts import charts
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.preflight import DatasetFacts
from trainflow.workflow.run import JobRef, Stage

pytestmark = pytest.mark.lengthy

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
METRICS = "[0]:LOG Wed Dec 21 00:51:01 2022 - (0, 14) step_loss : 10.7 learning_rate : 2.80e-06 throughput : 6449.36"
REPORT = '{"trainflow_metrics": {"step": 14, "epoch": 1, "loss": 2.5, "mfu_percent": 31.2, "logged_at": 1793534400.0}}'
CHECKPOINT = '[0]:{"trainflow_checkpoint": {"step": 40, "bytes": 1048576}}'
STAGING = "STAGE 1288490188/51539607552 bytes 42 files 429916160 B/s"
OTHERS = (
    "{'loss': '2.345', 'grad_norm': '1.2', 'learning_rate': '5e-05', 'epoch': '0.13'}",
    "Epoch 3: 100%|███| 94/94 [00:05<00:00, 17.0it/s, v_num=0, train_loss=0.345]",
    "[titan] 2025-10-30 14:32:58,990 - root - INFO - step:  2  loss:  6.1098  grad_norm:  4.6416  tps: 1,234",
    "Training epoch 0, iteration 8/99 | lr: 2.7e-06 | global_step: 8 | reduced_train_loss: 11.03 | ",
    "iteration 10/ 100 | consumed samples: 1280 | lm loss: 9.876543E+00 | grad norm: 1.234 |",
    '{"step": 3, "loss": 1.5}',
)
ERROR_FILE = '{"message": {"message": "RuntimeError: x", "errorCode": 1, "extraInfo": {"py_callstack": "Traceback"}}}'
RESULTS = ('{"result": {"steps": 5}}', '{"error": "DatasetInvalid", "message": "The shard is damaged."}', ERROR_FILE)
RECORD = slurm_job.JobRecord(
    job_id=7,
    spec_hash="feed",
    exit_code=1,
    started_at=NOW,
    ended_at=NOW,
    nodes=(slurm_job.NodeRecord(index=0, node="n1", exit_code=1, message="Killed", finished_at=NOW),),
)
KEPT = replace(
    kept_steps_of([step for line in (METRICS, METRICS.replace("14", "15")) if (step := parse_metrics_line(line))]),
    checkpoints=(CheckpointReport(step=14, num_bytes=1048576, saved_at=NOW),),
    placement=Placement(nodes=("n1",), started_at=NOW, ended_at=NOW),
)
PROBE = {
    "machine": "x86_64",
    "program": "There is no module x.",
    "free_bytes": 5 * 10**12,
    "staged_url": "s3://b/k.tar",
    "staged_etag": "e",
    "checkpoint_bytes": 10**10,
    "versions": {"python": "3.11.9", "torch": "2.9.0"},
}
COMPILED = (
    *compiler_lines({"graphs": 3, "succeeded": 2, "failed": 1, "cached": 0}, ["MODULE_1"]),
    '  "workdir/MODULE_2/graph.hlo": {',
    '    "status": false,',
)
MANIFEST = f"{'0' * 64}  train/a.hdf5\n{'1' * 64} *train/b.hdf5\n# more\n"
RUN = run_of()
SPEC = Path("runs/demo.yaml").read_text()
JSON_SPEC = {
    "version": 1,
    "name": "bert",
    "workload": {"module": "trainer.pretrain", "image": "i@sha256:0", "arguments": {"lr": 1e-4}, "env": {"A": "b"}},
    "compute": {"instance_type": "trn1.32xlarge", "num_nodes": 2, "processes_per_node": 32, "backend": "volcano"},
    "dataset": {"url": "s3://b/k.tar", "name": "wiki", "manifest_url": "s3://b/k.sha256"},
    "progress": {"pattern": r"step (?P<step>\d+)"},
    "limits": {"deadline": "2030-01-31T18:00:00+01:00", "max_usd": 3},
}
UPLOADED = {"detail": {"bucket": {"name": "b"}, "object": {"key": "runs/a.yaml", "version-id": "v"}}}
SCHEDULED = {"schedule": "nightly", "scheduled_at": "2026-11-01T12:00:00Z", "spec": JSON_SPEC, "overlap": "wait"}
UNAVAILABLE = (ClusterUnavailable, ClusterAccessDenied, JobRefused)


def read_lines(text: str) -> object:
    return [ProgressReader("auto").read(LogLine(NOW, line)) for line in text.split("\n")]


def judged(message: str) -> object:
    pod = Pod(name="p", node="n", exit_code=1, end_reason="Error", termination_message=message, finished_at=NOW)
    job = JobRef(backend="job", name="bert-0123456789ab-training-1", stage=Stage.TRAINING, attempt=1, num_nodes=1)
    return failure(job, JobStatus(phase=None, failure_message="failed"), [PodEvidence(pod)], last_step=3)


def preflighted(result: dict[str, Any]) -> object:
    seen = probed(result if isinstance(result, dict) else {})
    return list(probe_findings(RUN, seen, DatasetFacts(num_bytes=10**9, etag="e"))), seen


def compiled(text: str) -> object:
    log = CompilerLog()
    for line in text.split("\n"):
        log.read(line)
    return log.failure(), log.failed_graphs


def uploaded(content: bytes, key: str) -> object:
    return execution_of_upload(Upload(bucket="b", key=key, version_id=None), content)


def kept_again(content: bytes) -> object:
    """What the workflow does with stored steps: it adds to them, and makes the record and the report of them."""
    kept = kept_steps_from_json(content)
    again = kept.extended(KEPT.steps, kept.progress, checkpoints=KEPT.checkpoints)
    return again.to_json(), kept.sequences_per_second, kept.last_metrics, charts(kept.steps)


def as_bytes(text: str) -> bytes:
    return text.encode(errors="replace")


def as_json(documents: SearchStrategy[Any]) -> SearchStrategy[bytes]:
    return documents.map(lambda document: json.dumps(document).encode())


@dataclass(frozen=True)
class Parser:
    """A parser with the inputs to try, and the errors that it may raise."""

    parse: Callable[[Any], object]
    inputs: SearchStrategy[Any]
    errors: tuple[type[Exception], ...] = ()


PARSERS: Mapping[str, Parser] = {
    "metrics line": Parser(parse_metrics_line, damaged_texts(METRICS)),
    "step report": Parser(lambda line: parse_report_line(line, NOW), damaged_texts(REPORT, f"[0]:{REPORT}")),
    "values of a step report": Parser(
        lambda said: parse_report_line(json.dumps(said), NOW), damaged_documents(json.loads(REPORT))
    ),
    "checkpoint line": Parser(lambda line: parse_checkpoint_line(line, NOW), damaged_texts(CHECKPOINT)),
    "staging line": Parser(
        lambda line: (found := parse_staging_line(line)) and (found.percent, found.seconds_left), damaged_texts(STAGING)
    ),
    "lines of libraries": Parser(read_lines, damaged_texts(METRICS, REPORT, *OTHERS)),
    "resumed line": Parser(parse_resumed_line, damaged_texts(f"[0]:{resumed_line(40)}")),
    "compiler's log": Parser(compiled, damaged_texts(*COMPILED, "\n".join(COMPILED))),
    "log line": Parser(
        lambda line: list(log_lines([line])), damaged_bytes(f"2026-11-01T12:00:00.123456789Z {METRICS}")
    ),
    "termination message": Parser(read_result, damaged_bytes(*RESULTS) | damaged_texts(*RESULTS)),
    "failure by its message": Parser(judged, damaged_texts(*RESULTS, "Traceback\nValueError: x")),
    "rank 0's announcement": Parser(
        announcement.announced_pod, st.none() | damaged_bytes("bert-0-training-1-worker-0")
    ),
    "Slurm job's record": Parser(slurm_job.parse_record, damaged_bytes(slurm_job.record_to_bytes(RECORD).decode())),
    "Slurm job's comment": Parser(parse_comment, st.none() | damaged_texts(comment_form(COMMENT))),
    "values of a Slurm job's record": Parser(
        slurm_job.parse_record, as_json(damaged_documents(json.loads(slurm_job.record_to_bytes(RECORD))))
    ),
    "stored steps": Parser(kept_again, damaged_bytes(KEPT.to_json())),
    "values of stored steps": Parser(kept_again, as_json(damaged_documents(json.loads(KEPT.to_json())))),
    "result of the probe": Parser(preflighted, damaged_documents(PROBE)),
    "URL of S3": Parser(parse_s3_url, damaged_texts("s3://bucket/folder/key.tar")),
    "manifest of a data set": Parser(
        lambda text: manifest.parse(text, url="s3://b/k"), damaged_texts(MANIFEST), (DatasetInvalid,)
    ),
    "message of the queue": Parser(
        lambda body: parse_request(body.decode()),
        as_json(damaged_documents(UPLOADED, SCHEDULED)) | damaged_texts(json.dumps(UPLOADED)).map(as_bytes),
        (RunRequestInvalid,),
    ),
    "spec in YAML": Parser(lambda content: uploaded(content, "a.yaml"), damaged_bytes(SPEC), (InvalidRunSpec,)),
    "spec in JSON": Parser(
        lambda content: uploaded(content, "a.json"),
        as_json(damaged_documents(JSON_SPEC)) | damaged_bytes(json.dumps(JSON_SPEC)),
        (InvalidRunSpec,),
    ),
}


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_answers_any_input_or_names_its_fault(name: str, examples: int) -> None:
    parser = PARSERS[name]
    require_total(parser.parse, parser.inputs, examples=examples, errors=parser.errors)


OLD_PARTITION = recorded("partition-v0.0.38.json")
ANSWERS: Mapping[str, tuple[Callable[[slurmrestd.RestController], object], tuple[Any, ...]]] = {
    "jobs": (lambda slurm: slurm.jobs(), ({"errors": [], "jobs": [OLD_JOB, newer_job(job_state=["RUNNING"])]},)),
    "job": (lambda slurm: slurm.job(12), ({"jobs": [newer_job(job_state=["RUNNING"])]}, {"jobs": [OLD_JOB]})),
    "partitions": (lambda slurm: slurm.partitions(), (OLD_PARTITION, {"partitions": [NEW_PARTITION]})),
    "partition": (lambda slurm: slurm.partition("short"), ({"partitions": [NEW_PARTITION]}, OLD_PARTITION)),
    "submission": (
        lambda slurm: slurm.submit(JOB, after=[3]),
        ({"job_id": 5, "errors": []}, {"errors": [{"error_number": 2000, "error": "x", "description": "Invalid"}]}),
    ),
    "cancellation": (
        lambda slurm: slurm.cancel(12),
        ({"errors": []}, {"errors": [{"error_number": 2017, "error": "x", "description": "Invalid job id"}]}),
    ),
    "accounting": (lambda slurm: slurm.cancelled_by(12), ({"jobs": [{"kill_request_user": "ann"}]},)),
    "versions": (
        lambda slurm: slurm.jobs(),
        ({"paths": {"/slurm/v0.0.44/job/submit": {}, "/slurmdb/v0.0.44/job/{job_id}": {}}},),
    ),
}
"""What is asked of slurmrestd, and its answers."""


class Answering:
    """slurmrestd that answers everything in one way."""

    def __init__(self, kind: str, status: int, document: Any) -> None:
        self._kind, self._status, self._document = kind, status, document

    def request(self, method: str, url: str, **_: object) -> Any:
        del method
        asks_versions = "openapi" in url
        if asks_versions and self._kind != "versions":
            return SimpleNamespace(status=200, data=json.dumps(ANSWERS["versions"][1][0]).encode())
        return SimpleNamespace(status=self._status, data=json.dumps(self._document).encode())


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("kind", ANSWERS)
def test_slurmrestd_is_understood_or_unavailable(kind: str, examples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ask, valid = ANSWERS[kind]
    monkeypatch.setattr(slurmrestd, "_key", SimpleNamespace(cache_clear=lambda: None, __call__=None))
    monkeypatch.setattr(slurmrestd.RestController, "_current_token", lambda _self: "token")

    def asked(answer: tuple[int, Any]) -> object:
        slurm = slurmrestd.RestController("http://slurm:6820", key_secret="key", user="trainer")
        slurm._pool = Answering(kind, *answer)  # type: ignore[assignment]
        return ask(slurm)

    statuses = st.sampled_from([200, 200, 200, 400, 404, 500])
    require_total(asked, st.tuples(statuses, damaged_documents(*valid)), examples=examples, errors=UNAVAILABLE)


SQUEUE = (
    f"12|bert-0123456789ab-training-1|trainer|RUNNING|n[1-2]|2026-11-01T12:00:00|N/A|N/A|None|{comment_form(COMMENT)}"
)
SCONTROL = "PartitionName=short Default=YES State=UP TotalNodes=2 MaxNodes=UNLIMITED MaxTime=1-00:05:00"
COMMANDS: Mapping[str, tuple[Callable[[ssm.SsmController], object], str]] = {
    "squeue": (lambda slurm: slurm.jobs(), SQUEUE),
    "partition": (lambda slurm: slurm.partition("short"), SCONTROL),
    "partitions": (lambda slurm: slurm.partitions(), f"{SCONTROL}\n{SCONTROL}"),
    "sacct": (lambda slurm: slurm.cancelled_by(12), "CANCELLED by 1001"),
}


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("name", COMMANDS)
def test_slurms_commands_are_understood_or_unavailable(
    name: str, examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, valid = COMMANDS[name]

    def asked(output: str) -> object:
        monkeypatch.setattr(ssm.SsmController, "_run", lambda _self, _command: (False, output))
        monkeypatch.setattr(ssm.SsmController, "_run_whole", lambda _self, _command: (False, output))
        return ask(ssm.SsmController("i-0123456789abcdef0", user="trainer"))

    require_total(asked, damaged_texts(valid), examples=examples, errors=UNAVAILABLE)
