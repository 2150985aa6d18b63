"""The stacks themselves, deployed by the documented commands to an empty account of the twin.

Network, Cluster and Capacity are not part of it: the twin brings the cluster. What the functions may do in it is
decided by the access entries in the deployed templates.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection

from local.aws import deployment, folder_buckets
from local.aws.schedules import next_time
from local.twin import REPOSITORY, Twin
from stacks.orchestration.bundling import LEFT_OUT, PACKAGES, SOURCES
from tests.integration.make_command import CONFIGURATION, Make
from tests.integration.test_runs import demo_spec, steps_spec
from tests.waiting import wait_until
from trainflow.deployment.functions import FUNCTIONS

TIME_SCALE = 60


@dataclass(frozen=True, kw_only=True)
class Account:
    """An account with the stacks in it."""

    twin: Twin
    outputs: dict[str, str]
    subjects: list[str] = field(default_factory=list)
    """Subjects of the messages that the topic's subscriber has received."""

    def client(self, service: str) -> Any:
        return self.twin.client(service)

    def upload(self, name: str, spec: dict[str, Any]) -> None:
        self.client("s3").put_object(
            Bucket=self.outputs["DataBucket"], Key=f"runs/{name}.yaml", Body=yaml.safe_dump(spec).encode()
        )

    def runs(self, name: str) -> list[dict[str, Any]]:
        """Executions whose spec is called so."""
        listed = self.client("stepfunctions").list_executions(stateMachineArn=self.outputs["TrainingStateMachine"])
        return [found for found in listed["executions"] if found["name"].startswith(f"{name}-")]

    def ended(self, name: str, *, besides: Collection[str] = ()) -> dict[str, Any]:
        """The one run of a spec besides those of these names, once it has ended."""

        def arns() -> list[str]:
            return [found["executionArn"] for found in self.runs(name) if found["name"] not in besides]

        wait_until(lambda: bool(arns()))
        stepfunctions = self.client("stepfunctions")
        (arn,) = arns()
        wait_until(lambda: stepfunctions.describe_execution(executionArn=arn)["status"] != "RUNNING")
        description: dict[str, Any] = stepfunctions.describe_execution(executionArn=arn)
        return description

    def row(self, run_id: str) -> dict[str, Any]:
        """What the run table says of a run."""
        table = self.outputs["RunTable"]
        item = self.client("dynamodb").get_item(TableName=table, Key={"run_id": {"S": run_id}})["Item"]
        return {name: next(iter(value.values())) for name, value in item.items()}

    def is_told(self, words: str) -> bool:
        """Whether a message with these words in its subject has come to the topic's subscriber."""
        sqs = self.client("sqs")
        url = sqs.get_queue_url(QueueName="told")["QueueUrl"]
        while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", ()):
            self.subjects.extend(json.loads(message["Body"])["Subject"] for message in messages)
        return any(words in subject for subject in self.subjects)

    def requests_left(self) -> int:
        """Requests for runs that are waiting, being handled, or given up."""
        sqs = self.client("sqs")
        requests = self.outputs["RunRequestQueue"]
        policy = sqs.get_queue_attributes(QueueUrl=requests, AttributeNames=["RedrivePolicy"])["Attributes"]
        given_up = json.loads(policy["RedrivePolicy"])["deadLetterTargetArn"].rpartition(":")[2]
        counts = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        queues = (requests, sqs.get_queue_url(QueueName=given_up)["QueueUrl"])
        found = [sqs.get_queue_attributes(QueueUrl=url, AttributeNames=counts)["Attributes"] for url in queues]
        return sum(int(queue[count]) for queue in found for count in counts)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    home, logs = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("logs")
    with Twin(home=home, log_dir=logs, time_scale=TIME_SCALE, deployed=False) as twin:
        yield twin


@pytest.fixture(scope="module")
def make(empty: Twin, tmp_path_factory: pytest.TempPathFactory) -> Make:
    make = Make(empty, tmp_path_factory.mktemp("assembly"))
    make.succeeds("bootstrap")
    return make


def push_tools_image(twin: Twin, outputs: Mapping[str, str]) -> None:
    """What `make images` comes to: ECR has the tag that the functions were deployed with.

    Args:
        twin: The account.
        outputs: Of its stacks.
    """
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json", "layers": []}
    twin.client("ecr").put_image(
        repositoryName=outputs["ImageRepository"].partition("/")[2],
        imageManifest=json.dumps(manifest),
        imageTag=outputs["TagTools"],
    )


@pytest.fixture(scope="module")
def account(empty: Twin, make: Make) -> Account:
    make.deploy()
    stacks = empty.client("cloudformation").describe_stacks()["Stacks"]
    outputs = {o["OutputKey"]: o["OutputValue"] for stack in stacks for o in stack.get("Outputs", ())}
    account = Account(twin=empty, outputs=outputs)
    push_tools_image(empty, outputs)
    queue = empty.client("sqs").create_queue(QueueName="told")["QueueUrl"]
    arn = empty.client("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]
    empty.client("sns").subscribe(TopicArn=outputs["NotificationTopic"], Protocol="sqs", Endpoint=arn["QueueArn"])
    return account


def test_an_uploaded_spec_becomes_a_run_and_the_same_text_no_other(account: Account) -> None:
    spec = {**steps_spec(max_steps=3), "name": "steps"}
    account.upload("steps", spec)

    run = account.ended("steps")
    assert (run["status"], run.get("cause")) == ("SUCCEEDED", None)
    assert json.loads(run["input"])["workload"]["arguments"] == {"max_steps": 3}
    assert account.row(run["name"])["status"] == "SUCCEEDED"
    wait_until(lambda: account.is_told(f"{run['name']} SUCCEEDED"))
    assert deployment.gang_nodes() == 0

    account.upload("the-same", spec)
    wait_until(lambda: account.is_told(f"{run['name']} has run before"))
    assert len(account.runs("steps")) == 1


@pytest.mark.slow
def test_the_command_starts_a_run_with_the_code_beside_its_spec(account: Account, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('step=1 loss=0.5', flush=True)\n")
    spec = {**steps_spec(), "name": "packed"}
    spec["workload"] = {"script": "train.py", "code": ".", "image": "python:3.12", "launcher": "none"}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))

    done = trainflow(account, tmp_path, "run", "spec.yaml", "--place", "trainflow")

    run = account.ended("packed")
    assert (run["status"], run.get("cause")) == ("SUCCEEDED", None)
    assert json.loads(run["input"])["workload"]["code"].startswith(f"s3://{account.outputs['ArtifactBucket']}/code/")
    assert (done.returncode, done.stderr) == (0, "")
    first, *_, last = done.stdout.splitlines()
    assert first == f"Started {run['name']} in trainflow; Ctrl-C asks whether to stop it."
    ends = [line for line in done.stdout.splitlines() if line.startswith("Run succeeded")]
    assert [line.rpartition(": ")[2] for line in ends] == [run["name"]]
    assert last == f"report         out/{run['name']}/report.html"
    record = json.loads((tmp_path / "out" / run["name"] / "run.json").read_text())
    assert (record["run_id"], record["status"]) == (run["name"], "SUCCEEDED")


@pytest.mark.slow
def test_the_command_operates_the_runs_of_what_was_deployed(account: Account, tmp_path: Path) -> None:
    spec = {**steps_spec(max_steps=100_000, seconds_per_step=0.1), "name": "operated"}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    # The only deployment of the Region needs no name.
    run_id = trainflow(account, tmp_path, "run", "spec.yaml", "--detach").stdout.splitlines()[-1]

    def told() -> Any:
        return json.loads(trainflow(account, tmp_path, "status", run_id, "--json").stdout)

    wait_until(lambda: bool(told()["step"]))
    assert (told()["state"], told()["trouble"]) == ("WatchTraining", None)
    assert "step_loss" in trainflow(account, tmp_path, "logs", run_id).stdout
    assert trainflow(account, tmp_path, "stop", run_id).stdout == f"Stopped {run_id}.\n"
    assert account.ended("operated")["status"] == "ABORTED"


def trainflow(account: Account, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command in a folder, with the credentials of the account."""
    environment = {**os.environ, **account.twin.aws.client_environment}
    command = [sys.executable, "-m", "trainflow", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_demo_goes_through_what_was_deployed(account: Account, tmp_path: Path) -> None:
    folder_buckets.ensure_demo_data(tmp_path)
    data = account.outputs["DataBucket"]
    archive = tmp_path / folder_buckets.DEMO_BUCKET / folder_buckets.CORPUS_KEY
    account.client("s3").upload_file(str(archive), data, f"data/{archive.name}")

    account.upload("demo", {**demo_spec(), "dataset": {"url": f"s3://{data}/data/{archive.name}"}})

    run = account.ended("demo")
    assert (run["status"], run.get("cause")) == ("SUCCEEDED", None)
    artifacts = account.client("s3").list_objects_v2(
        Bucket=account.outputs["ArtifactBucket"], Prefix=f"runs/{run['name']}/"
    )
    assert any(found["Key"].endswith(".pt") for found in artifacts["Contents"])


@pytest.mark.slow
def test_a_schedule_starts_its_run_in_its_time_zone(account: Account) -> None:
    schedules = account.twin.aws.schedules
    (configured,) = yaml.safe_load((REPOSITORY / CONFIGURATION).read_text())["schedules"]
    # The twin's clock runs ahead: on a Friday evening it may have been two o'clock of Saturday already.
    due = next_time(configured["expression"], configured["time_zone"], after=schedules.clock.now())
    assert due is not None
    earlier = [run["name"] for run in account.runs("weekly")]

    schedules.clock.jump(due)

    run = account.ended("weekly", besides=earlier)
    assert (run["status"], run.get("cause")) == ("SUCCEEDED", None)
    assert json.loads(run["input"])["workload"]["arguments"] == {"max_steps": 3}
    assert due.strftime("%a %H") in ("Sat 00", "Sat 01"), "two o'clock in Berlin"


def test_a_spec_that_cannot_be_run_is_told_and_not_tried_again(account: Account) -> None:
    account.upload("broken", {"version": 1, "name": "broken"})
    wait_until(lambda: account.is_told("broken.yaml"))

    # The request leaves the queue when its function has returned: after the notice.
    wait_until(lambda: account.requests_left() == 0)
    assert account.is_told("broken.yaml")
    assert len([subject for subject in account.subjects if "broken.yaml" in subject]) == 1
    assert account.runs("broken") == []


def test_a_run_that_is_stopped_is_cleaned_up_after(account: Account) -> None:
    account.upload("long", {**steps_spec(max_steps=600), "name": "long"})
    api = ApiClient(load_connection(account.twin.kubeconfig))
    pods = f"/api/v1/namespaces/{deployment.NAMESPACE}/pods?labelSelector=trainflow/stage%3Dtraining"
    wait_until(lambda: any(pod["status"].get("phase") == "Running" for pod in api.get(pods)["items"]))

    (run,) = account.runs("long")
    account.client("stepfunctions").stop_execution(executionArn=run["executionArn"])

    wait_until(lambda: account.row(run["name"])["status"] == "ABORTED")
    assert api.get(f"/apis/batch/v1/namespaces/{deployment.NAMESPACE}/jobs")["items"] == []
    assert deployment.gang_nodes() == 0
    watching = [found for found in executions(account, "WatchJob") if found["name"].startswith(run["name"])]
    assert {found["status"] for found in watching} == {"ABORTED"}, "children go with their parent"


def test_functions_log_in_to_the_cluster_as_the_roles_of_the_templates(account: Account) -> None:
    eks, functions = account.client("eks"), account.client("lambda")
    names = {function.name: f"trainflow-{function.name}" for function in FUNCTIONS}
    entries = eks.list_access_entries(clusterName="trainflow")["accessEntries"]
    groups = {
        entry: eks.describe_access_entry(clusterName="trainflow", principalArn=entry)["accessEntry"]["kubernetesGroups"]
        for entry in entries
    }
    roles = {name: functions.get_function_configuration(FunctionName=full)["Role"] for name, full in names.items()}
    owner = account.client("sts").get_caller_identity()["Arn"]
    allowed = {roles[f.name]: [f.access.value] for f in FUNCTIONS if f.access is not None}
    assert groups == {owner: ["system:masters"], **allowed}
    assert len(set(roles.values())) == len(FUNCTIONS), "a role each"


def test_the_deployed_archive_holds_the_repositorys_handlers(account: Account) -> None:
    stack = account.client("cloudformation").get_template(StackName="trainflow-orchestration")["TemplateBody"]
    codes = [
        resource["Properties"]["Code"]
        for resource in stack["Resources"].values()
        if resource["Type"] == "AWS::Lambda::Function"
    ]
    (key,) = {code["S3Key"] for code in codes}
    bucket = "cdk-hnb659fds-assets-123456789012-us-west-2"
    archive = zipfile.ZipFile(io.BytesIO(account.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()))
    found = [path for package in PACKAGES for path in (REPOSITORY / package).rglob("*") if path.suffix in SOURCES]
    for source in found:
        name = source.relative_to(REPOSITORY).as_posix()
        if name.startswith(LEFT_OUT):
            assert name not in archive.namelist()
        else:
            assert archive.read(name) == source.read_bytes(), name


def test_destroy_leaves_nothing_but_the_bootstrap_stack(account: Account, make: Make) -> None:
    make.succeeds("destroy", "YES=1")
    stacks = account.client("cloudformation").describe_stacks()["Stacks"]
    assert [stack["StackName"] for stack in stacks] == ["CDKToolkit"]
    assert left(account) == {
        "buckets": ["cdk-hnb659fds-assets-123456789012-us-west-2"],
        "functions": [],
        "state machines": [],
        "tables": [],
        "queues": ["told"],
        "topics": [],
        "rules": [],
        "schedules": [],
        "parameters": ["/cdk-bootstrap/hnb659fds/version"],
        "access entries": [account.client("sts").get_caller_identity()["Arn"]],
        "alarms": [],
        "log groups": [],
    }


def executions(account: Account, machine: str) -> list[dict[str, Any]]:
    stepfunctions = account.client("stepfunctions")
    machines = stepfunctions.list_state_machines()["stateMachines"]
    (arn,) = [found["stateMachineArn"] for found in machines if machine.lower() in found["name"].replace("-", "")]
    listed: list[dict[str, Any]] = stepfunctions.list_executions(stateMachineArn=arn)["executions"]
    return listed


def left(account: Account) -> dict[str, list[str]]:
    """Names of what there is in the account, by sort."""
    client = account.client
    queues = client("sqs").list_queues().get("QueueUrls", [])
    return {
        "buckets": [bucket["Name"] for bucket in client("s3").list_buckets()["Buckets"]],
        "functions": [found["FunctionName"] for found in client("lambda").list_functions()["Functions"]],
        "state machines": [found["name"] for found in client("stepfunctions").list_state_machines()["stateMachines"]],
        "tables": client("dynamodb").list_tables()["TableNames"],
        "queues": [url.rsplit("/", 1)[1] for url in queues],
        "topics": [found["TopicArn"] for found in client("sns").list_topics()["Topics"]],
        "rules": [rule["Name"] for rule in client("events").list_rules()["Rules"]],
        "schedules": [found["Name"] for found in client("scheduler").list_schedules()["Schedules"]],
        "parameters": [found["Name"] for found in client("ssm").describe_parameters()["Parameters"]],
        "access entries": client("eks").list_access_entries(clusterName="trainflow")["accessEntries"],
        "alarms": [found["AlarmName"] for found in client("cloudwatch").describe_alarms()["MetricAlarms"]],
        "log groups": [found["logGroupName"] for found in client("logs").describe_log_groups()["logGroups"]],
    }
