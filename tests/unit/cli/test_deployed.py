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

    def test_idle_nodes_are_scaled_to_zero_and_the_user_is_told(self, account: None) -> None:
        make_nodegroup(desired=2)
        said: list[str] = []
        deployed.bring_to_rest(DEPLOYMENT, [], say=said.append, poll_seconds=0)
        assert said == [
            "trainflow-trn1-2xlarge: scaling 2 nodes, which no run holds, to zero",
            "waiting for nodes: 2 in trainflow-trn1-2xlarge",
        ]
        size = client("eks").describe_nodegroup(clusterName="mine", nodegroupName="trainflow-trn1-2xlarge")
        assert size["nodegroup"]["scalingConfig"] == {"minSize": 0, "desiredSize": 0, "maxSize": 4}

    def test_a_stopped_run_s_nodes_are_left_to_the_clean_up_first(self, account: None) -> None:
        make_nodegroup(desired=2)
        said: list[str] = []

        def say(line: str) -> None:
            said.append(line)
            if line.startswith("waiting"):  # CleanUp has done its work
                client("eks").update_nodegroup_config(
                    clusterName="mine", nodegroupName="trainflow-trn1-2xlarge", scalingConfig={"desiredSize": 0}
                )

        deployed.bring_to_rest(DEPLOYMENT, [start_execution()], say=say, poll_seconds=0)
        assert said == ["stopped bert-1", "waiting for nodes: 2 in trainflow-trn1-2xlarge"]

    def test_nodes_that_the_clean_up_forgets_are_scaled_to_zero_as_well(self, account: None) -> None:
        make_nodegroup(desired=2)
        said: list[str] = []
        deployed.bring_to_rest(DEPLOYMENT, [start_execution()], say=said.append, poll_seconds=0, clean_up_seconds=0)
        assert said[1] == "trainflow-trn1-2xlarge: scaling 2 nodes, which no run holds, to zero"

    def test_a_group_in_the_middle_of_a_change_is_asked_again_and_scaled_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fake = BusyEks(desired=3)
        monkeypatch.setattr(Deployment, "client", lambda _self, _name: fake)
        deployed.bring_to_rest(DEPLOYMENT, [], say=lambda _: None, poll_seconds=0)
        assert fake.asked == ["refused", {"minSize": 0, "desiredSize": 0, "maxSize": 4}]
        assert fake.status == "ACTIVE", "CloudFormation cannot delete a group that is being changed"

    def test_nodes_that_stay_are_named(self, account: None) -> None:
        make_nodegroup(desired=1)
        with pytest.raises(DeploymentError, match="Nodes are still there: 1 in trainflow-trn1-2xlarge"):
            deployed.bring_to_rest(DEPLOYMENT, [], say=lambda _: None, poll_seconds=0, give_up_seconds=-1)

    def test_the_command_asks_before_it_stops_a_run(self, account: None, tmp_path: Path) -> None:
        make_nodegroup(desired=0)
        arn = start_execution()
        path = configuration(tmp_path)
        answer = CliRunner().invoke(app, ["rest", "--config", str(path)], input="n\n")
        assert answer.exit_code == 130
        assert "1 running: bert-1. Stop them?" in answer.output
        assert client("stepfunctions").describe_execution(executionArn=arn)["status"] == "RUNNING"
        assert CliRunner().invoke(app, ["rest", "--config", str(path), "--yes"]).exit_code == 0
        assert client("stepfunctions").describe_execution(executionArn=arn)["status"] == "ABORTED"

    def test_a_deployment_that_is_gone_is_at_rest(
        self, account: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real, fake = Deployment.client, BusyEks(desired=0, exists=False)  # moto answers with a fault of its own
        monkeypatch.setattr(Deployment, "client", lambda self, name: fake if name == "eks" else real(self, name))
        answer = CliRunner().invoke(app, ["rest", "--config", str(configuration(tmp_path))])
        assert answer.exit_code == 0
        assert "mine is at rest" in answer.output

    def test_nodes_of_a_deployment_whose_workflow_is_gone_are_scaled_to_zero(
        self, account: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("time.sleep", lambda _seconds: None)
        make_nodegroup(desired=1)
        answer = CliRunner().invoke(app, ["rest", "--config", str(configuration(tmp_path))])
        assert (answer.exit_code, "scaling 1 nodes" in answer.output) == (0, True)


class BusyEks:
    """EKS with one node group, which is being changed at first and takes a while for each change."""

    def __init__(self, *, desired: int, exists: bool = True) -> None:
        self.exists = exists
        self.desired, self.status, self.polls = desired, "UPDATING", 0
        self.asked: list[Any] = []
        self.exceptions = type(
            "Exceptions",
            (),
            {"ResourceNotFoundException": LookupError, "ResourceInUseException": BlockingIOError},
        )

    def get_paginator(self, _operation: str) -> Any:
        return self

    def paginate(self, *, clusterName: str) -> Any:
        if not self.exists:
            raise LookupError
        return [{"nodegroups": ["trainflow-trn1-2xlarge", "system"]}]

    def describe_nodegroup(self, *, clusterName: str, nodegroupName: str) -> Any:
        self.polls += 1
        if self.polls % 3 == 0:
            self.status = "ACTIVE"
        size = {"minSize": 0, "desiredSize": self.desired, "maxSize": 4}
        return {"nodegroup": {"scalingConfig": size, "status": self.status}}

    def update_nodegroup_config(self, *, clusterName: str, nodegroupName: str, scalingConfig: Any) -> None:
        if self.status == "UPDATING":
            self.asked = [*self.asked, "refused"] if "refused" not in self.asked else self.asked
            raise BlockingIOError
        self.asked.append(scalingConfig)
        self.desired, self.status = scalingConfig["desiredSize"], "UPDATING"


def configuration(folder: Path) -> Path:
    path = folder / "mine.yaml"
    path.write_text("name: mine\nregion: us-west-2\n")
    return path


class TestDeployDuringARun:
    def check(self, folder: Path, *options: str) -> Any:
        return CliRunner().invoke(app, ["check-idle", "--config", str(configuration(folder)), *options])

    def test_it_is_refused_with_the_run_s_name_and_what_to_do(self, account: None, tmp_path: Path) -> None:
        start_execution()
        refused = self.check(tmp_path)
        assert refused.exit_code == 2
        assert "Running now: bert-1." in refused.output
        assert "FORCE=1" in refused.output

    def test_it_may_be_forced_and_says_what_goes_on(self, account: None, tmp_path: Path) -> None:
        start_execution()
        forced = self.check(tmp_path, "--force")
        assert forced.exit_code == 0
        assert "These runs go on with the code that they began with: bert-1." in forced.output

    def test_the_first_deployment_passes(self, account: None, tmp_path: Path) -> None:
        assert self.check(tmp_path).exit_code == 0

    def test_half_a_deployment_has_no_runs(self, account: None) -> None:
        make_stack("mine-orchestration")
        assert deployed.running_executions(DEPLOYMENT) == []

    def test_a_workflow_that_was_deleted_by_hand_has_no_runs(self, account: None) -> None:
        gone = "arn:aws:states:us-west-2:123456789012:stateMachine:mine-training"
        make_stack("mine-orchestration", TrainingStateMachine=gone)
        assert deployed.running_executions(DEPLOYMENT) == []

    def test_an_account_that_cannot_be_asked_is_no_pass(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            monkeypatch.setenv(name, str(tmp_path / "none"))
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        refused = self.check(tmp_path)
        assert refused.exit_code == 2
        assert "Unable to locate credentials" in refused.output


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
