"""Staging seen from outside: is the data there, how far has it come, does it come at all?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber
from hypothesis import given
from hypothesis import strategies as st

from lambdas.gateways import data_repository
from lambdas.handlers import stage_data, validate_run
from lambdas.logic.jobs import job_of
from lambdas.logic.program_output import last_line
from lambdas.logic.staging import Silence, advanced, is_waiting, linked_folder, newest_report, require_progress
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import STARTED_AT, TOOLS_IMAGE, TRAINER_IMAGE, job_ref, run_of, spec_with
from tests.unit.lambdas.conftest import CONTEXT, DATA_BUCKET, Aws
from trainflow.errors import InvalidRunSpec, StagingStalled, StorageFailed
from trainflow.protocol.staging_line import WAITING, StagingReport, parse_staging_line, staging_line
from trainflow.spec.run_spec import Dataset, Limits
from trainflow.workflow.metric_names import NAMESPACE, RUN_DIMENSION, RunMetric
from trainflow.workflow.owner import Owner
from trainflow.workflow.run import Run, Stage, StagingProgress

GIB = 1024**3
SHA256 = "0123456789abcdef" * 4
FILE_SYSTEM = "fs-0123456789abcdef0"
LINKED_URL = f"s3://{DATA_BUCKET}/data/"
STAGE = job_ref(run_of(), Stage.STAGE)

counts = st.integers(min_value=0, max_value=10**15)
reports = st.builds(
    StagingReport,
    done_bytes=counts,
    total_bytes=st.none() | counts,
    files=counts,
    bytes_per_second=counts.map(float),
)


# The program's line


@given(reports)
def test_a_line_reports_the_progress_of_staging(report: StagingReport) -> None:
    assert parse_staging_line(staging_line(report)) == report
    assert report.percent is None or 0 <= report.percent <= 100
    assert report.seconds_left is None or report.seconds_left >= 0
    assert last_line(["OSError: no space", staging_line(report)]) == ""


@given(st.text() | st.text().map(lambda text: f"STAGE {text}"))
def test_any_other_line_is_no_report(text: str) -> None:
    assert parse_staging_line(text) is None or re.match(r"STAGE \d+/(\d+|\?) bytes \d+ files ", text)


def test_the_newest_line_counts() -> None:
    log = [staging_line(StagingReport(done_bytes=done, total_bytes=9, files=0, bytes_per_second=1)) for done in (1, 2)]
    newest = newest_report(["Unpacking.", *log, "RuntimeWarning: slow"])
    assert newest is not None
    assert newest.done_bytes == 2
    assert newest_report(["Waiting for another run."]) is None


# Does it come at all?


@given(st.lists(st.tuples(st.integers(1, 30), st.none() | st.integers(0, 3))), st.integers(1, 60))
def test_staging_has_stalled_when_no_poll_of_so_many_minutes_has_found_progress(
    polls: list[tuple[int, int | None]], stall_minutes: int
) -> None:
    now, so_far, seen = STARTED_AT, StagingProgress(), list[tuple[datetime, int]]()
    for minutes, done in polls:
        now += timedelta(minutes=minutes)
        reported = StagingReport(done_bytes=done or 0, total_bytes=9, files=0, bytes_per_second=1)
        so_far = advanced(so_far, Silence.NOT_RUNNING if done is None else reported, now=now)
        if done is not None:
            seen.append((now, done))
    changes = [at for (_, before), (at, after) in pairwise(seen) if before != after]
    last_change = [at for at, _ in seen[:1]] + changes
    stalled = bool(last_change) and now - last_change[-1] > timedelta(minutes=stall_minutes)
    limits = Limits(stall_minutes=stall_minutes)
    if stalled:
        with pytest.raises(StagingStalled, match=rf"{STAGE.name}.* {stall_minutes} minutes"):
            require_progress(STAGE, so_far, limits=limits, now=now)
    else:
        require_progress(STAGE, so_far, limits=limits, now=now)


# Command of the pod


def command(**dataset: Any) -> str:
    run = run_of(spec_with(dataset={"url": "s3://corpus/wiki.tar", **dataset}))
    return " ".join(job_of(run, Stage.STAGE, 1, artifacts_url="s3://a/").command)


def test_the_pods_command_has_only_the_flags_that_the_spec_sets() -> None:
    assert command() == "python -m trainer.stage --url s3://corpus/wiki.tar"
    assert command(public=True, region="eu-west-1", sha256=SHA256, manifest_url="s3://corpus/wiki.sha256") == (
        "python -m trainer.stage --url s3://corpus/wiki.tar --no_sign_request true --region eu-west-1 "
        f"--sha256 {SHA256} --manifest_url s3://corpus/wiki.sha256"
    )


@pytest.mark.parametrize(
    ("workload", "min_shards", "flags"),
    [
        ({"module": "trainer.pretrain"}, 4, " --min_shards 4"),
        ({"module": "trainer.pretrain"}, 0, " --min_shards 0"),
        ({"module": "trainer.mlp"}, None, " --min_shards 0"),
        ({"script": "mine/train.py"}, None, " --min_shards 0"),
        ({"script": "mine/train.py"}, 1, " --min_shards 1"),
    ],
)
def test_shards_are_required_where_the_program_reads_them_or_the_spec_requires_them(
    workload: dict[str, str], min_shards: int | None, flags: str
) -> None:
    dataset = {"url": "s3://corpus/wiki.tar", "min_shards": min_shards}
    run = run_of(spec_with(workload={**workload, "image": "i"}, dataset=dataset))
    command = " ".join(job_of(run, Stage.STAGE, 1, artifacts_url="s3://a/").command)
    assert command == f"python -m trainer.stage --url s3://corpus/wiki.tar{flags}"


@pytest.mark.parametrize("stage", Stage)
def test_every_pod_finds_a_linked_data_set_where_it_lies(stage: Stage) -> None:
    run = run_of(spec_with(dataset={"url": f"{LINKED_URL}text/Wiki/"}))
    linked = run.model_copy(update={"linked_folder": "/data/text/Wiki"})
    job = job_of(linked, stage, 1, artifacts_url="s3://a/")
    assert job.environment["TRAINFLOW_DATA_DIR"] == "/data/text/Wiki"
    assert ("--linked_folder" in job.command) == (stage is Stage.STAGE)
    assert job_of(run, stage, 1, artifacts_url="s3://a/").environment["TRAINFLOW_DATA_DIR"] == "/data/wiki"


@pytest.mark.parametrize(
    ("url", "linked_url", "folder"),
    [
        (f"{LINKED_URL}wiki/", LINKED_URL, "/data/wiki"),
        (f"{LINKED_URL}text/Wiki.v2/", LINKED_URL, "/data/text/Wiki.v2"),
        (f"{LINKED_URL}wiki/", "", None),
        (f"{LINKED_URL}wiki.tar", LINKED_URL, None),
        (LINKED_URL, LINKED_URL, None),
        ("s3://elsewhere/data/wiki/", LINKED_URL, None),
    ],
)
def test_a_prefix_below_the_linked_one_needs_no_copy(url: str, linked_url: str, folder: str | None) -> None:
    assert linked_folder(Dataset(url=url), linked_url) == folder


# Which data set, and where?


SLURM = {
    "workload": {"module": "trainer.pretrain"},
    "compute": {"instance_type": "trn1.32xlarge", "num_nodes": 2, "backend": "slurm"},
}


def validated(on: dict[str, Any] | None = None, *, started_by: Any = None, **dataset: Any) -> Run:
    event = {
        "spec": {**spec_with(dataset=dataset, **(on or {})), **({"started_by": started_by} if started_by else {})},
        "execution_name": "bert-0123456789ab",
        "execution_arn": "arn",
        "started_at": STARTED_AT.isoformat(),
    }
    return Run.model_validate(validate_run.lambda_handler(event, CONTEXT)["run"])


def test_an_archive_behind_https_is_the_pods_to_find(aws: Aws) -> None:
    assert validated(url="https://nowhere.invalid/wiki.tar", sha256=SHA256).linked_folder is None


def test_a_run_knows_where_its_linked_data_set_lies(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINKED_URL", LINKED_URL)
    aws.client("s3").put_object(Bucket=DATA_BUCKET, Key="data/text/wiki/0.hdf5", Body=b"0")
    assert validated(url=f"{LINKED_URL}text/wiki/").linked_folder == "/data/text/wiki"
    assert validated(url=f"{LINKED_URL}text/wiki/", on=SLURM).linked_folder is None


def test_a_run_keeps_the_tools_image_that_it_began_with(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    run = validated(url="s3://data/wiki.tar")
    monkeypatch.setenv("TOOLS_IMAGE", "registry.example/tools@sha256:89ab")
    assert (run.tools_image, validated(url="s3://data/wiki.tar").tools_image) == (
        TOOLS_IMAGE,
        "registry.example/tools@sha256:89ab",
    )
    assert validated(url="s3://data/wiki.tar", on=SLURM).tools_image is None


def test_a_run_has_its_owner_and_its_team_or_that_of_the_deployment(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEFAULT_TEAM", "research")
    url, schedule = "s3://data/wiki.tar", {"kind": "schedule", "name": "nightly"}
    run = validated(url=url, started_by=schedule)
    assert (run.owner, run.spec.team, run.spec.project) == (Owner(**schedule), "research", None)
    row = aws.table.find(run.run_id)
    assert row is not None
    assert (row.owner, row.team, row.project) == (Owner(**schedule), "research", None)
    assert validated(url=url, on={"team": "vision", "project": "bert"}).spec.team == "vision"
    assert validated(url=url).owner == Owner()


def test_a_malformed_owner_is_refused(aws: Aws) -> None:
    with pytest.raises(InvalidRunSpec, match="started_by"):
        validated(url="s3://data/wiki.tar", started_by={"kind": "caller", "name": "ana"})


@pytest.mark.parametrize("allowed", ["[]", '["registry.example"]', '["elsewhere", "registry.example/trainer"]'])
def test_an_image_that_the_deployment_allows_is_taken(allowed: str, aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLOWED_IMAGES", allowed)
    assert validated(url="s3://data/wiki.tar").spec.workload.image == TRAINER_IMAGE


def test_an_image_that_the_deployment_does_not_allow_is_refused(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLOWED_IMAGES", '["registry.example/train", "public.ecr.aws/neuron"]')
    with pytest.raises(InvalidRunSpec) as refused:
        validated(url="s3://data/wiki.tar")
    assert str(refused.value) == (
        f"workload.image: '{TRAINER_IMAGE}' is not among the images that this deployment allows: "
        "registry.example/train, public.ecr.aws/neuron. Use one of them, or add it to images.allowed and deploy again."
    )
    assert validated(url="s3://data/wiki.tar", on=SLURM).spec.workload.image is None


# StageData


def poll(run: Run, progress: Any = None) -> dict[str, Any]:
    return stage_data.lambda_handler({"run": run.model_dump(mode="json"), "progress": progress}, CONTEXT)


def let_run(cluster: FakeKubernetesApi, log: str) -> None:
    """Set the pod's state as controllers and kubelet would."""
    job = cluster.objects["jobs", STAGE.name]
    job["status"] = {"ready": 1, "startTime": STARTED_AT.isoformat()}
    labels = {**job["spec"]["template"]["metadata"]["labels"], "batch.kubernetes.io/job-completion-index": "0"}
    name = f"{STAGE.name}-0-abcde"
    pod = {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": {"phase": "Running"}}
    cluster.add("pods", pod)
    stamp = STARTED_AT.isoformat().replace("+00:00", ".000000000Z")
    cluster.logs[name] = "".join(f"{stamp} {text}\n" for text in log.splitlines())


def published(aws: Aws, run: Run) -> dict[str, float]:
    found: dict[str, float] = {}
    for metric in (RunMetric.STAGED_BYTES, RunMetric.STAGING_BYTES_PER_SECOND, RunMetric.STAGING_PROGRESS):
        points = aws.client("cloudwatch").get_metric_statistics(
            Namespace=NAMESPACE,
            MetricName=metric,
            Dimensions=[{"Name": "Deployment", "Value": "twin"}, {"Name": RUN_DIMENSION, "Value": run.run_id}],
            StartTime=datetime.now(UTC) - timedelta(hours=1),
            EndTime=datetime.now(UTC) + timedelta(hours=1),
            Period=60,
            Statistics=["Maximum"],
        )["Datapoints"]
        if points:
            found[metric.value] = points[0]["Maximum"]
    return found


def test_a_run_submits_its_staging_once_and_reports_its_progress(aws: Aws, cluster: FakeKubernetesApi) -> None:
    run = run_of()
    first, pause = poll(run), run.spec.limits.poll_seconds
    nothing = StagingProgress().model_dump(mode="json")
    assert first == {
        "finished": False,
        "dataset": None,
        "attempt": 1,
        "progress": nothing,
        "wait_seconds": pause,
    }
    assert published(aws, run) == {}

    report = StagingReport(done_bytes=12 * GIB, total_bytes=48 * GIB, files=7, bytes_per_second=1e9)
    let_run(cluster, f"Staging.\n{staging_line(report)}\nStill there.")
    second = poll(run, first["progress"])
    assert cluster.names("jobs") == [STAGE.name]
    assert (second["finished"], second["progress"]["done_bytes"], second["progress"]["files"]) == (False, 12 * GIB, 7)
    assert published(aws, run) == {"StagedBytes": 12 * GIB, "StagingBytesPerSecond": 1e9, "StagingProgress": 25}


def test_an_unknown_size_is_no_progress_in_percent(aws: Aws, cluster: FakeKubernetesApi) -> None:
    run = run_of()
    progress = poll(run)["progress"]
    let_run(cluster, "STAGE 5/? bytes 0 files 3 B/s")
    poll(run, progress)
    assert set(published(aws, run)) == {"StagedBytes", "StagingBytesPerSecond"}


def test_staging_that_stands_still_ends_the_run(aws: Aws, cluster: FakeKubernetesApi) -> None:
    run = run_of()
    poll(run)
    let_run(cluster, "STAGE 5/9 bytes 1 files 0 B/s")
    long_ago = (datetime.now(UTC) - timedelta(minutes=61)).isoformat()
    with pytest.raises(StagingStalled, match=r"staged.* 60 minutes.* 5 bytes.* 1 files"):
        poll(run, {"done_bytes": 5, "files": 1, "moved_at": long_ago})
    assert poll(run, {"done_bytes": 4, "files": 1, "moved_at": long_ago})["finished"] is False


def test_staging_that_never_reports_anything_ends_the_run(aws: Aws, cluster: FakeKubernetesApi) -> None:
    """Whatever hangs before the first report: a mount, a name server, the source."""
    run = run_of()
    pending = poll(run)["progress"]
    assert pending["moved_at"] is None, "the pod may wait for a node"
    let_run(cluster, "Staging.")
    cluster.objects["jobs", STAGE.name]["status"] = {"active": 1, "ready": 1, "startTime": STARTED_AT.isoformat()}
    begun = poll(run, pending)["progress"]
    assert begun["moved_at"] is not None
    assert poll(run, begun)["progress"] == begun
    long_ago = (datetime.now(UTC) - timedelta(minutes=61)).isoformat()
    with pytest.raises(StagingStalled, match=r"staged.* 60 minutes.* 0 bytes.* 0 files"):
        poll(run, {**begun, "moved_at": long_ago})


def test_a_run_that_waits_for_another_one_s_data_set_has_not_stalled(aws: Aws, cluster: FakeKubernetesApi) -> None:
    run = run_of()
    poll(run)
    let_run(cluster, "Staging.\nAnother run is staging to /data/wiki; waiting until it is done.")
    cluster.objects["jobs", STAGE.name]["status"] = {"active": 1, "ready": 1, "startTime": STARTED_AT.isoformat()}
    long_ago = (datetime.now(UTC) - timedelta(minutes=61)).isoformat()
    assert poll(run, {"done_bytes": 0, "files": 0, "moved_at": long_ago})["progress"]["moved_at"] is None


def test_a_report_after_the_wait_ends_the_wait() -> None:
    waits, report = f"{WAITING}/data/wiki; waiting until it is done.", "STAGE 0/9 bytes 0 files 0 B/s"
    assert is_waiting(["Staging.", waits, "RuntimeWarning: slow"])
    assert is_waiting([report, waits])
    assert not is_waiting([waits, report])
    assert not is_waiting(["Staging."])


def test_finished_staging_is_reported_with_its_result(aws: Aws, cluster: FakeKubernetesApi) -> None:
    run = run_of()
    progress = poll(run)["progress"]
    let_run(cluster, "STAGE 9/9 bytes 1 files 3 B/s")
    cluster.objects["jobs", STAGE.name]["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    message = '{"result": {"files": 1, "skipped": false}}'
    pod = cluster.objects["pods", f"{STAGE.name}-0-abcde"]
    pod["status"] = {"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": {"message": message}}}]}
    ended = poll(run, progress)
    assert (ended["finished"], ended["dataset"]) == (True, {"files": 1, "skipped": False})
    assert published(aws, run)["StagingProgress"] == 100


# The link of the file system


@pytest.fixture
def fsx(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubber]:
    """Amazon FSx, stubbed: the test sets every answer and every call has to happen."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    stub = Stubber(boto3.client("fsx", aws_access_key_id="x", aws_secret_access_key="x"))
    monkeypatch.setattr(data_repository, "client", {"fsx": stub.client}.__getitem__)
    with stub:
        yield stub
        stub.assert_no_pending_responses()


URL = f"{LINKED_URL}wiki/"


def import_task(
    lifecycle: str, *, url: str = URL, minutes: int = 1, kind: str = data_repository.IMPORT, **more: Any
) -> dict[str, Any]:
    created = STARTED_AT + timedelta(minutes=minutes)
    task = {"TaskId": "task-0123456789abcdef0", "Lifecycle": lifecycle, "Type": kind, "CreationTime": created}
    return {**task, "Paths": [url], **more}


def will_list(fsx: Stubber, *tasks: dict[str, Any], token: str | None = None, then: str | None = None) -> None:
    asked = {
        "Filters": [{"Name": "file-system-id", "Values": [FILE_SYSTEM]}],
        **({"NextToken": token} if token else {}),
    }
    answer: dict[str, Any] = {"DataRepositoryTasks": list(tasks), **({"NextToken": then} if then else {})}
    fsx.add_response("describe_data_repository_tasks", answer, asked)


def is_imported() -> bool:
    return data_repository.start_or_poll_import(FILE_SYSTEM, URL, since=STARTED_AT).done


def test_an_import_is_requested_once_and_polled_until_it_ends(fsx: Stubber) -> None:
    will_list(fsx)
    asked = {
        "Type": "IMPORT_METADATA_FROM_REPOSITORY",
        "FileSystemId": FILE_SYSTEM,
        "Paths": [URL],
        "Report": {"Enabled": False},
    }
    fsx.add_response(
        "create_data_repository_task",
        {"DataRepositoryTask": import_task("PENDING")},
        {**asked, "ClientRequestToken": ANY},
    )
    will_list(fsx, import_task("EXECUTING"))
    will_list(fsx, import_task("SUCCEEDED"))
    assert [is_imported() for _ in range(3)] == [False, False, True]


def test_the_same_request_carries_the_same_token_so_that_a_retry_makes_no_second_task(fsx: Stubber) -> None:
    tokens: list[str] = []
    fsx.client.meta.events.register(
        "provide-client-params.fsx.CreateDataRepositoryTask",
        lambda params, **_: tokens.append(params["ClientRequestToken"]),
    )
    for since in (STARTED_AT, STARTED_AT, STARTED_AT + timedelta(seconds=1)):
        will_list(fsx)
        fsx.add_response("create_data_repository_task", {"DataRepositoryTask": import_task("PENDING")})
        data_repository.start_or_poll_import(FILE_SYSTEM, URL, since=since)
    assert tokens[0] == tokens[1] != tokens[2]


def test_only_an_import_of_the_same_data_since_the_runs_start_counts(fsx: Stubber) -> None:
    others = [
        import_task("SUCCEEDED", minutes=-1),
        import_task("SUCCEEDED", url=LINKED_URL),
        import_task("SUCCEEDED", kind="EXPORT_TO_REPOSITORY"),
    ]
    will_list(fsx, *others, then="more")
    will_list(fsx, import_task("SUCCEEDED"), token="more")
    assert is_imported()


def test_a_file_system_that_has_another_task_to_do_is_asked_again_later(fsx: Stubber) -> None:
    will_list(fsx)
    fsx.add_client_error("create_data_repository_task", "DataRepositoryTaskExecuting", http_status_code=400)
    assert not is_imported()


def test_a_failed_import_is_reported_with_the_message_of_fsx(fsx: Stubber) -> None:
    will_list(fsx, import_task("FAILED", FailureDetails={"Message": "The bucket denies access."}))
    with pytest.raises(StorageFailed, match=rf"{URL} .*{FILE_SYSTEM} .*bucket denies"):
        is_imported()


def test_no_pod_is_submitted_before_the_names_are_imported(
    aws: Aws, cluster: FakeKubernetesApi, fsx: Stubber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINKED_FILE_SYSTEM", FILE_SYSTEM)
    run = run_of(spec_with(dataset={"url": URL})).model_copy(update={"linked_folder": "/data/wiki"})
    will_list(fsx, import_task("EXECUTING"))
    first = poll(run)
    assert (first["finished"], first["progress"]["importing"]) == (False, True)
    assert cluster.names("jobs") == []
    will_list(fsx, import_task("SUCCEEDED"))
    progress = poll(run, first["progress"])["progress"]
    assert progress == StagingProgress().model_dump(mode="json"), "the pod's clock is its own"
    assert cluster.names("jobs") == [STAGE.name]
    poll(run, progress)  # asks FSx no more


@pytest.mark.parametrize(
    ("tasks", "sentence"),
    [
        (
            [import_task("EXECUTING", Status={"SucceededCount": 6, "FailedCount": 1})],
            "'task-0123456789abcdef0' has .* 7",
        ),
        ([], "busy with another data repository task for 60 minutes"),
    ],
    ids=["stands still", "has not begun"],
)
def test_an_import_that_gets_no_further_ends_the_run(
    aws: Aws,
    cluster: FakeKubernetesApi,
    fsx: Stubber,
    monkeypatch: pytest.MonkeyPatch,
    tasks: list[dict[str, Any]],
    sentence: str,
) -> None:
    monkeypatch.setenv("LINKED_FILE_SYSTEM", FILE_SYSTEM)
    run = run_of(spec_with(dataset={"url": URL})).model_copy(update={"linked_folder": "/data/wiki"})

    def fsx_answers() -> None:
        will_list(fsx, *tasks)
        if not tasks:
            fsx.add_client_error("create_data_repository_task", "DataRepositoryTaskExecuting", http_status_code=400)

    fsx_answers()
    progress = poll(run)["progress"]
    long_ago = (datetime.now(UTC) - timedelta(minutes=61)).isoformat()
    fsx_answers()
    with pytest.raises(StagingStalled, match=sentence):
        poll(run, {**progress, "moved_at": long_ago})
    fsx_answers()
    assert poll(run, {**progress, "moved_at": long_ago, "files": 99})["progress"]["moved_at"] > long_ago
