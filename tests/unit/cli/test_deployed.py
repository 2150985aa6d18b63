"""What a person does with a deployment: build its images, bring it to rest."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws
from typer.testing import CliRunner

from tests.wording import wording
from trainflow.cli import deployed
from trainflow.cli.deployed import Deployment, DeploymentError, NotDeployed
from trainflow.cli.deployed.images import AT_LIMIT
from trainflow.cli.main import app

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

    def test_an_existing_cluster_keeps_its_name(self, tmp_path: Path) -> None:
        path = tmp_path / "c.yaml"
        path.write_text("name: mine\nregion: us-east-2\nexisting_cluster: {name: theirs}\n")
        assert deployed.read_deployment(path).cluster == "theirs"

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("name: mine", "is not a configuration: it has no region."),
            ("- 1", "is not a configuration: it has no name and no region."),
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
        with pytest.raises(NotDeployed, match=r"mine-images.*us-west-2.*`make deploy`"):
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

    def test_idle_nodes_are_scaled_to_zero_and_the_user_is_informed(self, account: None) -> None:
        make_nodegroup(desired=2)
        said: list[str] = []
        deployed.bring_to_rest(DEPLOYMENT, [], say=said.append, poll_seconds=0)
        assert said == [
            wording("deployed.idle_nodes_are_scaled_to_zero_and_the_user_is_informed", "2"),
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
        assert said[1] == wording("deployed.nodes_that_the_clean_up_forgets_are_scaled_to_zero_as_well", "2")

    def test_a_group_that_is_being_updated_is_polled_and_scaled_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fake = BusyEks(desired=3)
        monkeypatch.setattr(Deployment, "client", lambda _self, _name: fake)
        deployed.bring_to_rest(DEPLOYMENT, [], say=lambda _: None, poll_seconds=0)
        assert fake.asked == ["refused", {"minSize": 0, "desiredSize": 0, "maxSize": 4}]
        assert fake.status == "ACTIVE", "CloudFormation cannot delete a group that is being changed"

    def test_nodes_that_stay_are_named(self, account: None) -> None:
        make_nodegroup(desired=1)
        with pytest.raises(DeploymentError, match=r"Nodes.*: 1 in trainflow-trn1-2xlarge"):
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

    def test_on_a_narrow_terminal_with_colours_sentences_stay_in_one_piece(
        self, account: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("time.sleep", lambda _seconds: None)
        make_nodegroup(desired=1)
        terminal = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "30"}
        answer = CliRunner().invoke(app, ["rest", "--config", str(configuration(tmp_path))], env=terminal)
        assert answer.output.splitlines() == [
            wording("deployed.on_a_narrow_terminal_with_colours_sentences_stay_in_one_piece", "1"),
            "waiting for nodes: 1 in trainflow-trn1-2xlarge",
            "mine is at rest: nothing runs, no training node is up.",
        ]


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

    def test_it_may_be_forced_and_prints_which_runs_continue(self, account: None, tmp_path: Path) -> None:
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

    def test_an_account_that_does_not_answer_refuses_the_deployment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of an earlier client")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of an earlier client")
        boto3.client("cloudformation", region_name="us-west-2")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            monkeypatch.setenv(name, str(tmp_path / "none"))
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        refused = self.check(tmp_path)
        assert refused.exit_code == 2
        assert "Unable to locate credentials" in refused.output


class FakeCodeBuild:
    """CodeBuild whose builds end at the second poll, as many at once as `limit`."""

    def __init__(self, *, failing: Sequence[str] = (), limit: int = 9, digest: bool = True) -> None:
        self.failing, self.limit, self.digest = failing, limit, digest
        self.started: list[str] = []
        self.running: dict[str, int] = {}
        self.most_at_once = 0

    def start_build(self, *, projectName: str) -> Any:
        if len(self.running) >= self.limit:
            message = f"Cannot have more than {self.limit} builds in queue for the account"
            raise ClientError({"Error": {"Code": AT_LIMIT, "Message": message}}, "StartBuild")
        self.started.append(projectName)
        self.running[projectName] = 0
        self.most_at_once = max(self.most_at_once, len(self.running))
        return {"build": {"id": f"{projectName}:1"}}

    def batch_get_builds(self, *, ids: list[str]) -> Any:
        project = ids[0].partition(":")[0]
        self.running[project] += 1
        status = "IN_PROGRESS"
        if self.running[project] > 1:
            del self.running[project]
            status = "FAILED" if project in self.failing else "SUCCEEDED"
        exported = [{"name": "IMAGE", "value": f"repo@sha256:{project}"}] if self.digest else []
        build = {
            "id": ids[0],
            "buildStatus": status,
            "exportedEnvironmentVariables": exported,
            "logs": {"deepLink": f"https://logs.example/{project}"},
        }
        return {"builds": [build]}


class TestImages:
    @pytest.fixture
    def stack(self, account: None) -> None:
        repository = client("ecr").create_repository(repositoryName="images")["repository"]["repositoryUri"]
        projects = {"BuildCpu": "cpu", "BuildTools": "tools", "BuildNeuron": "neuron"}
        tags = {"TagCpu": "cpu-1", "TagTools": "tools-1", "TagNeuron": "neuron-1"}
        make_stack("mine-images", ImageRepository=repository, **projects, **tags)

    def build(
        self, monkeypatch: pytest.MonkeyPatch, fake: FakeCodeBuild, *, only: str | None = None
    ) -> tuple[dict[str, str], list[str]]:
        said: list[str] = []
        real = Deployment.client
        monkeypatch.setattr(Deployment, "client", lambda self, name: fake if name == "codebuild" else real(self, name))
        return dict(deployed.build_images(DEPLOYMENT, say=said.append, only=only, poll_seconds=0)), said

    def test_the_images_are_named_by_digest(self, stack: None, monkeypatch: pytest.MonkeyPatch) -> None:
        images, _ = self.build(monkeypatch, FakeCodeBuild())
        assert images == {kind: f"repo@sha256:{kind}" for kind in ("cpu", "tools", "neuron")}

    def test_one_kind_can_be_built_alone(self, stack: None, monkeypatch: pytest.MonkeyPatch) -> None:
        fake = FakeCodeBuild()
        assert self.build(monkeypatch, fake, only="tools")[0] == {"tools": "repo@sha256:tools"}
        assert fake.started == ["tools"]

    def test_a_kind_that_is_not_there_is_answered_with_those_that_are(
        self, stack: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(DeploymentError, match=r"'gpu' in mine\b.* cpu, neuron, tools"):
            self.build(monkeypatch, FakeCodeBuild(), only="gpu")

    def test_an_account_that_may_run_one_build_runs_one_after_the_other(
        self, stack: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fake = FakeCodeBuild(limit=1)
        images, said = self.build(monkeypatch, fake)
        assert (set(images), fake.most_at_once) == ({"cpu", "tools", "neuron"}, 1)
        assert [sentence for sentence in said if "waiting" in sentence] == [
            wording("deployed.an_account_that_may_run_one_build_runs_one_after_the_other", "CodeBuild")
        ]

    def test_an_account_without_builds_gets_the_quota_to_request(
        self, stack: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(DeploymentError, match=r"no CodeBuild builds.*\(Service Quotas"):
            self.build(monkeypatch, FakeCodeBuild(limit=0))

    def test_an_image_of_the_same_content_is_not_built_again(
        self, stack: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        manifest = {"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json"}
        pushed = client("ecr").put_image(
            repositoryName="images", imageManifest=json.dumps({**manifest, "layers": []}), imageTag="cpu-1"
        )["image"]["imageId"]["imageDigest"]
        fake = FakeCodeBuild()
        images, _ = self.build(monkeypatch, fake)
        assert images["cpu"].endswith(f".amazonaws.com/images@{pushed}")
        assert fake.started == ["tools", "neuron"]

    def test_a_failed_build_names_its_log_and_the_others_are_built(
        self, stack: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fake = FakeCodeBuild(failing=["tools"], limit=1)
        with pytest.raises(DeploymentError, match=r"tools image .*\(FAILED\).*https://logs"):
            self.build(monkeypatch, fake)
        assert fake.started == ["cpu", "tools", "neuron"]

    def test_a_build_without_a_digest_is_a_failure(self, stack: None, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(DeploymentError, match="without saying the image's digest"):
            self.build(monkeypatch, FakeCodeBuild(digest=False))

    def test_what_aws_refuses_is_a_sentence(self, stack: None, monkeypatch: pytest.MonkeyPatch) -> None:
        class Refusing(FakeCodeBuild):
            def start_build(self, *, projectName: str) -> Any:
                denied = {"Code": "AccessDeniedException", "Message": "not authorized."}
                raise ClientError({"Error": denied}, "StartBuild")

        with pytest.raises(DeploymentError) as refused:
            self.build(monkeypatch, Refusing())
        assert str(refused.value) == (
            wording("deployed.what_aws_refuses_is_a_sentence", "StartBuild", "AccessDeniedException", "CodeBuild")
        )

    def test_a_repository_that_cannot_be_read_is_a_sentence_too(
        self, stack: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client("ecr").delete_repository(repositoryName="images", force=True)
        with pytest.raises(DeploymentError, match=r"DescribeImages .*RepositoryNotFound"):
            self.build(monkeypatch, FakeCodeBuild())

    def test_a_stack_without_builds_is_named(self, account: None, monkeypatch: pytest.MonkeyPatch) -> None:
        make_stack("mine-images", Repository="r")
        with pytest.raises(DeploymentError, match="names no build projects"):
            self.build(monkeypatch, FakeCodeBuild())
