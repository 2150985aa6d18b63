"""Roles in the twin: a service uses a role only if the role's trust policy names the service, as in an account."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.aws import deployment
from local.aws.access.guard import AccessDenied
from local.aws.deployment import Deployment
from local.aws.lambda_runtime import LambdaRuntime
from local.aws.server import AwsServer
from local.aws.services import LAMBDA, PODS
from local.aws.targets import Target
from local.aws.template import empty_archive


@pytest.fixture(scope="module")
def deployed(aws: AwsServer) -> Deployment:
    deployment.make_cluster(aws)
    return deployment.deploy(aws)


def role(name: str) -> str:
    return f"arn:aws:iam::123456789012:role/trainflow-{name}"


def code(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"]["Code"])


def trust(aws: AwsServer, name: str, statement: dict[str, Any]) -> None:
    document = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **statement}]})
    aws.client("iam").update_assume_role_policy(RoleName=f"trainflow-{name}", PolicyDocument=document)


@contextmanager
def trusting(aws: AwsServer, name: str, statement: dict[str, Any]) -> Iterator[None]:
    """The role with another trust policy inside the block."""
    before = aws.client("iam").get_role(RoleName=f"trainflow-{name}")["Role"]["AssumeRolePolicyDocument"]
    trust(aws, name, statement)
    yield
    aws.client("iam").update_assume_role_policy(RoleName=f"trainflow-{name}", PolicyDocument=json.dumps(before))


def by(service: str, action: Any = "sts:AssumeRole", **more: Any) -> dict[str, Any]:
    return {"Action": action, "Principal": {"Service": f"{service}.amazonaws.com"}, **more}


def test_a_function_is_not_made_with_a_role_that_does_not_trust_lambda(aws: AwsServer, deployed: Deployment) -> None:
    make: dict[str, Any] = {
        "FunctionName": "trusted",
        "Runtime": "python3.12",
        "Handler": "x.y",
        "Role": role("Notify"),
        "Code": {"ZipFile": empty_archive()},
    }
    with trusting(aws, "Notify", by("states")), pytest.raises(ClientError) as refused:
        aws.client("lambda").create_function(**make)
    assert code(refused) == "InvalidParameterValueException"
    assert "cannot be assumed by Lambda" in str(refused.value)
    with pytest.raises(ClientError, match="cannot be assumed by Lambda"):
        aws.client("lambda").create_function(**{**make, "Role": role("Missing")})
    aws.client("lambda").create_function(**make)


def test_a_state_machine_is_not_made_with_a_role_that_does_not_trust_step_functions(
    aws: AwsServer, deployed: Deployment
) -> None:
    text = json.dumps({"StartAt": "A", "States": {"A": {"Type": "Succeed"}}})
    make = {"name": "trusted", "definition": text, "roleArn": role("Training")}
    another = by("states", Condition={"StringEquals": {"aws:SourceAccount": "210987654321"}})
    stepfunctions = aws.client("stepfunctions")
    for statement in (by("lambda"), another, {**by("states"), "Effect": "Deny"}):
        with (
            trusting(aws, "Training", statement),
            pytest.raises(ClientError, match="is authorized to assume") as refused,
        ):
            stepfunctions.create_state_machine(**make)
        assert code(refused) == "AccessDeniedException"
    with pytest.raises(ClientError, match="is authorized to assume"):
        stepfunctions.create_state_machine(**{**make, "roleArn": role("Missing")})
    made = stepfunctions.create_state_machine(**make)["stateMachineArn"]
    with trusting(aws, "Training", by("lambda")), pytest.raises(ClientError, match="is authorized to assume"):
        stepfunctions.update_state_machine(stateMachineArn=made, roleArn=role("Training"))


def test_a_schedule_is_not_made_with_a_role_that_does_not_trust_the_scheduler(
    aws: AwsServer, deployed: Deployment
) -> None:
    make: dict[str, Any] = {
        "Name": "trusted",
        "ScheduleExpression": "rate(7 days)",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {"Arn": deployed.functions["SurveyFleet"], "RoleArn": role("SurveySchedule")},
    }
    with trusting(aws, "SurveySchedule", by("events")), pytest.raises(ClientError, match="must allow") as refused:
        aws.client("scheduler").create_schedule(**make)
    assert code(refused) == "ValidationException"
    with pytest.raises(ClientError, match="must allow"):
        aws.client("scheduler").create_schedule(**{**make, "Target": {**make["Target"], "RoleArn": role("Missing")}})
    aws.client("scheduler").create_schedule(**make)


def test_a_service_uses_no_role_whose_trust_was_taken_away(aws: AwsServer, deployed: Deployment) -> None:
    """A rule or a schedule then delivers nothing, and a queue is not read."""
    machine = deployed.address.state_machine_arn
    for service in ("events", "scheduler"):
        sender = f"arn:aws:{service}:us-west-2:123456789012:x/y"
        target = Target(arn=machine, sender=sender, role_arn=role("SurveySchedule"))
        with trusting(aws, "SurveySchedule", by("lambda")), pytest.raises(AccessDenied, match="sts:AssumeRole"):
            aws.targets._authorize(target, machine)
    with trusting(aws, "StartRun", by("states")), pytest.raises(AccessDenied, match=r"lambda\.amazonaws\.com"):
        aws.client_of("sqs", role("StartRun"), principal=LAMBDA)
    assert aws.client_of("sqs", role("StartRun"), principal=LAMBDA)


def test_a_function_whose_role_does_not_trust_lambda_any_more_is_not_invoked(
    aws: AwsServer, deployed: Deployment, tmp_path: Path
) -> None:
    environment = {**aws.client_environment, "PATH": "/usr/bin"}
    credentials = functools.partial(aws.credentials_of, service=LAMBDA)
    runtime = LambdaRuntime(environment, log_dir=tmp_path, credentials=credentials)
    runtime.start()
    try:
        with trusting(aws, "Notify", by("states")), pytest.raises(ClientError, match="cannot be assumed") as refused:
            aws.client("lambda").invoke(FunctionName=deployed.functions["Notify"], Payload=b"{}")
    finally:
        runtime.stop()
    assert code(refused) == "AccessDeniedException"


def test_pods_have_their_role_under_the_session_tags_that_its_trust_asks_for(
    aws: AwsServer, deployed: Deployment
) -> None:
    tags = {
        "eks-cluster-name": "trainflow",
        "kubernetes-namespace": "training",
        "kubernetes-service-account": "training",
    }
    assert aws.credentials_of(role("Pods"), "pods", service=PODS, tags=tags)
    for other in (*({**tags, tag: "other"} for tag in tags), {}):
        with pytest.raises(AccessDenied, match=r"pods\.eks\.amazonaws\.com is not authorized .*: sts:AssumeRole"):
            aws.credentials_of(role("Pods"), "pods", service=PODS, tags=other)
    with (
        trusting(aws, "Pods", by("pods.eks")),
        pytest.raises(AccessDenied, match="is not authorized to perform: sts:TagSession"),
    ):
        aws.credentials_of(role("Pods"), "pods", service=PODS, tags=tags)
    with pytest.raises(AccessDenied, match="role/nobody"):
        aws.credentials_of("arn:aws:iam::123456789012:role/nobody", "pods", service=PODS, tags=tags)
