"""`make bootstrap`, `deploy`, `diff`, `images` and `destroy` as docs/deploy.md has them, on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection

from local.aws.deployment import CLUSTER_NAME, desired_sizes
from local.twin import REPOSITORY, Twin
from tests.integration.make_command import CONFIGURATION, Make
from tests.integration.test_cdk_deploy import push_tools_image
from tests.integration.test_runs import steps_spec
from tests.waiting import wait_until
from trainflow.client.observe.executions import HistoryReader
from trainflow.record.failure import run_error
from trainflow.record.history import visits

pytestmark = pytest.mark.slow

QUESTION = "[y/N]"


@dataclass(frozen=True, kw_only=True)
class Account:
    """An account of the twin, the cluster in it, and a terminal."""

    twin: Twin
    folder: Path

    def make(self, configuration: str = CONFIGURATION) -> Make:
        return Make(self.twin, self.folder, configuration=configuration)

    def stacks(self) -> dict[str, str]:
        """Statuses of the stacks by name."""
        found = self.twin.client("cloudformation").describe_stacks()["Stacks"]
        return {stack["StackName"]: stack["StackStatus"] for stack in found}

    def outputs(self) -> dict[str, str]:
        found = self.twin.client("cloudformation").describe_stacks()["Stacks"]
        return {o["OutputKey"]: o["OutputValue"] for stack in found for o in stack.get("Outputs", ())}

    def start(self, name: str, *, max_steps: int) -> str:
        """Start a run and wait until it trains; its execution's ARN."""
        spec = {**steps_spec(max_steps=max_steps), "name": name}
        arn = self.twin.client("stepfunctions").start_execution(
            stateMachineArn=self.outputs()["TrainingStateMachine"], name=f"{name}-1", input=json.dumps(spec)
        )["executionArn"]
        api = ApiClient(load_connection(self.twin.kubeconfig))
        pods = "/api/v1/namespaces/training/pods?labelSelector=trainflow/stage%3Dtraining"

        def trains() -> bool:
            assert self.described(arn)["status"] == "RUNNING", self.ending(arn)
            return any(pod["status"].get("phase") == "Running" for pod in api.get(pods)["items"])

        wait_until(trains)
        return str(arn)

    def described(self, arn: str) -> dict[str, Any]:
        described: dict[str, Any] = self.twin.client("stepfunctions").describe_execution(executionArn=arn)
        return described

    def ending(self, arn: str) -> str:
        """An execution's status; of one that ended in an error also its states, the error and what to do, in words."""
        reader = HistoryReader(self.twin.client("stepfunctions"), arn, with_data=True)
        reader.read()
        status, error = reader.history.status.value, run_error(reader.history)
        if error is None:
            return status
        states = ", ".join(visit.name for visit in visits(reader.history))
        return f"{status} after {states}: {error.name}: {error.message} {error.what_to_do}"

    def versions(self, function: str) -> set[str]:
        listed = self.twin.client("lambda").list_versions_by_function(FunctionName=f"trainflow-{function}")["Versions"]
        return {found["Version"] for found in listed} - {"$LATEST"}


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    home, logs = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("logs")
    with Twin(home=home, log_dir=logs, time_scale=60, deployed=False) as twin:
        yield Account(twin=twin, folder=tmp_path_factory.mktemp("assembly"))


def test_the_first_deployment_asks_once_and_a_no_changes_nothing(account: Account) -> None:
    make = account.make()
    assert "bootstrapped" in make.succeeds("bootstrap")

    refused = make("deploy", answers={QUESTION: "n"})
    assert refused.status != 0
    assert "Nothing was changed" in refused.output
    assert "IAM Statement Changes" in refused.output, "what the question is about"
    assert set(account.stacks()) == {"CDKToolkit"}

    output = make.succeeds("deploy", "STACKS=Storage", answers={QUESTION: "y"})
    assert output.count(QUESTION) == 1
    assert account.stacks() == {"CDKToolkit": "CREATE_COMPLETE", "trainflow-storage": "CREATE_COMPLETE"}

    output = make.succeeds("deploy", answers={QUESTION: "y"})
    assert output.count(QUESTION) == 1
    assert "Newer version" not in output and "NOTICES" not in output
    assert set(account.stacks()) == {
        "CDKToolkit",
        *(f"trainflow-{stack}" for stack in ("storage", "images", "orchestration", "triggers", "observability")),
    }


def test_diff_after_a_deployment_finds_nothing(account: Account) -> None:
    assert "Number of stacks with differences: 0" in account.make().succeeds("diff")


def test_without_a_terminal_s_answer_nothing_is_deployed(account: Account) -> None:
    refused = account.make()("deploy", answers={QUESTION: ""})
    assert refused.status != 0
    assert "YES=1" in refused.output


def test_the_image_of_staging_and_publishing_is_found_once_it_was_built(account: Account) -> None:
    push_tools_image(account.twin, account.outputs())  # CodeBuild builds nothing in the twin
    output = account.make().succeeds("images", "ONLY=tools")
    assert f"tools: this content was built before ({account.outputs()['TagTools']})" in output
    assert f"tools: {account.outputs()['ImageRepository']}@sha256:" in output


def test_a_deployment_during_a_run_is_refused_and_forced_it_leaves_the_run_its_code(
    account: Account, tmp_path: Path
) -> None:
    arn = account.start("long", max_steps=600)  # two syntheses long
    refused = account.make()("deploy", "YES=1")
    assert refused.status != 0
    assert "Running now: long-1." in refused.output and "FORCE=1" in refused.output

    # New code would search for the run's job in a namespace that is not there.
    document = yaml.safe_load((REPOSITORY / CONFIGURATION).read_text())
    changed = tmp_path / "changed.yaml"
    changed.write_text(yaml.safe_dump({**document, "namespace": "elsewhere"}))
    output = account.make(str(changed)).succeeds("deploy", "YES=1", "FORCE=1")
    assert "go on with the code that they began with: long-1" in output
    assert account.ending(arn) == "RUNNING"
    assert account.versions("PollJob") == {"1", "2"}, "the run's and the new one"

    wait_until(lambda: account.described(arn)["status"] != "RUNNING")
    assert account.ending(arn) == "SUCCEEDED"

    account.make().succeeds("deploy", "YES=1")
    assert account.versions("PollJob") == {"3"}, "what no run uses is deleted"
    workflow = account.outputs()["TrainingStateMachine"].replace("training", "watch-job")
    listed = account.twin.client("stepfunctions").list_state_machine_versions(stateMachineArn=workflow)
    assert len(listed["stateMachineVersions"]) == 1


def test_destroy_asks_then_stops_runs_then_scales_nodes_to_zero_and_deletes_the_rest(account: Account) -> None:
    make = account.make()
    refused = make("destroy", answers={QUESTION: "n"})
    assert refused.status != 0
    assert "trainflow-orchestration" in account.stacks()

    # A node of no run, and a stack that is not there any more.
    idle = "trainflow-trn1-2xlarge"
    account.twin.client("eks").update_nodegroup_config(
        clusterName=CLUSTER_NAME, nodegroupName=idle, scalingConfig={"desiredSize": 1}
    )
    account.twin.client("cloudformation").delete_stack(StackName="trainflow-observability")

    output = make.succeeds("destroy", answers={QUESTION: "y"})
    assert f"{idle}: scaling 1 nodes, which no run holds, to zero" in output
    assert desired_sizes()[idle][1] == 0
    assert set(account.stacks()) == {"CDKToolkit"}

    assert "trainflow is at rest" in make.succeeds("destroy", "YES=1"), "again, with nothing left"
