"""What a person does with a deployment: build its images, bring it to rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws
from typer.testing import CliRunner

from cli import deployed
from cli.deployed import Deployment, DeploymentError, NotDeployed
from cli.main import app

DEPLOYMENT = Deployment(name="mine", region="us-west-2", cluster="mine")
ROLE = "arn:aws:iam::123456789012:role/any"


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_DEFAULT_REGION": "us-west-2",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        yield


def client(service: str) -> Any:
    return boto3.client(service, region_name="us-west-2")  # type: ignore[call-overload]


def make_stack(name: str, **outputs: str) -> None:
    template = {
        "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
        "Outputs": {key: {"Value": value} for key, value in outputs.items()},
    }
    client("cloudformation").create_stack(StackName=name, TemplateBody=json.dumps(template))


def make_nodegroup(desired: int) -> None:
    eks = client("eks")
    eks.create_cluster(name="mine", roleArn=ROLE, resourcesVpcConfig={"subnetIds": ["subnet-1"]})
    eks.create_nodegroup(
        clusterName="mine",
        nodegroupName="trainflow-trn1-2xlarge",
        subnets=["subnet-1"],
        nodeRole=ROLE,
        scalingConfig={"minSize": 0, "desiredSize": desired, "maxSize": 4},
    )


def start_execution() -> str:
    machines = client("stepfunctions")
    definition = json.dumps({"StartAt": "Wait", "States": {"Wait": {"Type": "Wait", "Seconds": 600, "End": True}}})
    machine = machines.create_state_machine(name="training", definition=definition, roleArn=ROLE)["stateMachineArn"]
    make_stack("mine-orchestration", TrainingStateMachine=machine)
    return str(machines.start_execution(stateMachineArn=machine, name="bert-1", input="{}")["executionArn"])


class TestReading:
    def test_a_configuration_names_the_deployment(self) -> None:
        assert deployed.read_deployment(Path("config/example.yaml")) == Deployment(
            name="trainflow", region="us-west-2", cluster="trainflow"
        )

    def test_somebody_elses_cluster_keeps_its_name(self, tmp_path: Path) -> None:
        path = tmp_path / "c.yaml"
        path.write_text("name: mine\nregion: us-east-2\nexisting_cluster: {name: theirs}\n")
        assert deployed.read_deployment(path).cluster == "theirs"

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("name: mine", "is no configuration: it has no region."),
            ("- 1", "is no configuration: it has no name and no region."),
            ("a: [", "is not YAML: "),
        ],
    )
    def test_a_file_that_is_none_is_refused(self, tmp_path: Path, text: str, sentence: str) -> None:
        path = tmp_path / "c.yaml"
        path.write_text(text)
        with pytest.raises(DeploymentError) as refused:
            deployed.read_deployment(path)
        assert sentence in str(refused.value)

    def test_a_stack_that_is_not_there_is_named(self, account: None) -> None:
        with pytest.raises(NotDeployed, match="There is no stack mine-images in us-west-2; `make deploy` makes it"):
            DEPLOYMENT.outputs("images")


class TestRest:
    def test_a_run_is_stopped_and_says_why(self, account: None) -> None:
        make_nodegroup(desired=0)
        arn = start_execution()
        assert deployed.running_executions(DEPLOYMENT) == [arn]
        said: list[str] = []
        deployed.bring_to_rest(DEPLOYMENT, [arn], say=said.append)
        assert client("stepfunctions").describe_execution(executionArn=arn)["status"] == "ABORTED"
        assert said == ["stopped bert-1"]

    def test_it_waits_until_the_nodes_are_gone(self, account: None) -> None:
        make_nodegroup(desired=2)
        said: list[str] = []

        def say(line: str) -> None:
            said.append(line)
            client("eks").update_nodegroup_config(
                clusterName="mine", nodegroupName="trainflow-trn1-2xlarge", scalingConfig={"desiredSize": 0}
            )

        deployed.bring_to_rest(DEPLOYMENT, [], say=say, poll_seconds=0)
        assert said == ["waiting for nodes: 2 in trainflow-trn1-2xlarge"]

    def test_nodes_that_stay_are_named(self, account: None) -> None:
        make_nodegroup(desired=1)
        with pytest.raises(DeploymentError, match="Nodes are still there: 1 in trainflow-trn1-2xlarge"):
            deployed.bring_to_rest(DEPLOYMENT, [], say=lambda _: None, poll_seconds=0, give_up_seconds=-1)

    def test_the_command_asks_before_it_stops_a_run(self, account: None, tmp_path: Path) -> None:
        make_nodegroup(desired=0)
        arn = start_execution()
        path = tmp_path / "mine.yaml"
        path.write_text("name: mine\nregion: us-west-2\n")
        answer = CliRunner().invoke(app, ["rest", "--config", str(path)], input="n\n")
        assert answer.exit_code == 130
        assert "1 running: bert-1. Stop them?" in answer.output
        assert client("stepfunctions").describe_execution(executionArn=arn)["status"] == "RUNNING"
        assert CliRunner().invoke(app, ["rest", "--config", str(path), "--yes"]).exit_code == 0
        assert client("stepfunctions").describe_execution(executionArn=arn)["status"] == "ABORTED"

    def test_a_deployment_that_is_gone_is_at_rest(self, account: None, tmp_path: Path) -> None:
        path = tmp_path / "mine.yaml"
        path.write_text("name: mine\nregion: us-west-2\n")
        answer = CliRunner().invoke(app, ["rest", "--config", str(path)])
        assert answer.exit_code == 0
        assert "Nothing to stop: There is no stack mine-orchestration" in answer.output


class FakeCodeBuild:
    """CodeBuild, whose builds need two looks to end."""

    def __init__(self, status: str, exported: list[dict[str, str]]) -> None:
        self.status, self.exported, self.looks = status, exported, 0

    def start_build(self, *, projectName: str) -> Any:
        return {"build": {"id": f"{projectName}:1"}}

    def batch_get_builds(self, *, ids: list[str]) -> Any:
        self.looks += 1
        status = "IN_PROGRESS" if self.looks == 1 else self.status
        build = {
            "id": ids[0],
            "buildStatus": status,
            "exportedEnvironmentVariables": self.exported,
            "logs": {"deepLink": "https://logs.example/1"},
        }
        return {"builds": [build]}


class TestImages:
    def build(self, monkeypatch: pytest.MonkeyPatch, fake: FakeCodeBuild, **outputs: str) -> dict[str, str]:
        make_stack("mine-images", **outputs)
        real = Deployment.client
        monkeypatch.setattr(Deployment, "client", lambda self, name: fake if name == "codebuild" else real(self, name))
        return deployed.build_images(DEPLOYMENT, say=lambda _: None, poll_seconds=0)

    def test_the_images_are_named_by_digest(self, account: None, monkeypatch: pytest.MonkeyPatch) -> None:
        fake = FakeCodeBuild("SUCCEEDED", [{"name": "IMAGE", "value": "repo@sha256:1"}])
        assert self.build(monkeypatch, fake, BuildCpu="cpu") == {"cpu": "repo@sha256:1"}

    def test_a_build_that_failed_says_where_its_log_is(self, account: None, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(DeploymentError, match=r"was not built \(FAILED\); its log is in https://logs.example/1"):
            self.build(monkeypatch, FakeCodeBuild("FAILED", []), BuildCpu="cpu")

    def test_a_build_without_a_digest_is_a_failure(self, account: None, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(DeploymentError, match="without saying the image's digest"):
            self.build(monkeypatch, FakeCodeBuild("SUCCEEDED", []), BuildCpu="cpu")

    def test_a_stack_without_builds_is_named(self, account: None, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(DeploymentError, match="names no build projects"):
            self.build(monkeypatch, FakeCodeBuild("SUCCEEDED", []), Repository="r")

    def test_an_account_that_runs_no_more_builds_says_so(self, account: None, monkeypatch: pytest.MonkeyPatch) -> None:
        """New accounts run one build at once."""

        class Full(FakeCodeBuild):
            def start_build(self, *, projectName: str) -> Any:
                message = "Cannot have more than 1 builds in queue for the account"
                raise ClientError(
                    {"Error": {"Code": "AccountLimitExceededException", "Message": message}}, "StartBuild"
                )

        with pytest.raises(DeploymentError, match=r"did not start cpu: Cannot have more than 1 builds in queue"):
            self.build(monkeypatch, Full("SUCCEEDED", []), BuildCpu="cpu")
