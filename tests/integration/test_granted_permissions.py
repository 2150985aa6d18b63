"""A run needs nothing that the templates do not grant; what they grant beyond that has a reason here."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from local.aws.deployment import DATA_BUCKET
from local.twin import Twin
from tests.integration.granted import denied, unused
from tests.integration.test_runs import steps_spec
from tests.waiting import wait_until
from trainflow.models.functions import FUNCTIONS

BY_SERVICES = {
    r"logs:.*": "Lambda and Step Functions write logs themselves",
    r"xray:.*": "tracing is off in the twin",
    r"ec2:(Assign|Unassign|Create|Delete|Describe)(NetworkInterface|PrivateIp|Subnets).*": "Lambda places functions",
    r"sqs:SendMessage on .*(dead-letters|DeadLetters).*": "Lambda and Scheduler send what failed",
    r"kms:.*": "DynamoDB, S3, SNS, SQS, Lambda or Step Functions use the key for the caller, as their guides list it",
    r"events:(DescribeRule|PutRule|PutTargets) on rule/StepFunctions.*": "Step Functions asks when the machine is made",
    r"fsx:.*": "the twin has no linked file system",
    r"s3:.* on trainflow-artifacts/runs/\*/(jobs|logs|tails)/\*": "runs on Slurm",
    r"s3:ListBucket on trainflow-artifacts": "runs on Slurm",
}
"""Permissions of every role that the twin's services do not ask for, as patterns, with the reason."""

CACHE, STAGING, ELASTIC, FAILURE = "precompiled runs", "runs with a data set", "elastic runs", "runs that fail"
REQUESTS = "requests that are refused, scheduled, repeated or read as another version"

OF_OTHER_RUNS = {
    "ValidateRun": {r"dynamodb:UpdateItem.*": "runs that are stopped in their first second"},
    "Preflight": {r"dynamodb:.*": CACHE, r"s3:.* on trainflow-data.*": STAGING},
    "AcquireCache": {r"dynamodb:.*|states:DescribeExecution.*": CACHE},
    "EnsureCapacity": {r"autoscaling:.*": "instances that cannot be had"},
    "StageData": {r"cloudwatch:.*|eks:DescribeCluster.*": STAGING},
    "LocateRank0": {r"s3:.*/rank0/\*": ELASTIC},
    "CheckCompilation": {r"dynamodb:.*|eks:DescribeCluster.*": CACHE},
    "PublishArtifacts": {r"s3:.*/rank0/\*": ELASTIC},
    "CollectDiagnostics": {r"eks:DescribeCluster.*|s3:PutObject.*": FAILURE},
    "TearDown": {
        r"dynamodb:DeleteItem.*": CACHE,
        r"s3:.*/rank0/\*": ELASTIC,
        r"cloudwatch:PutMetricData.*|s3:.*/steps\.json": FAILURE,
    },
    "Notify": {r"dynamodb:GetItem.*": "functions that are repeated after they have sent a message"},
    "StartRun": {r"(dynamodb|sns|sqs):.*|states:DescribeExecution.*|s3:.*": REQUESTS},
    "CleanUp": {
        r"dynamodb:.*|eks:UpdateNodegroupConfig.*|sns:.*": "runs that were stopped",
        r"s3:.*/rank0/\*": ELASTIC,
    },
    "SurveyFleet": {
        r"dynamodb:(Delete|Update)Item.*|eks:UpdateNodegroupConfig.*|sns:.*": "what runs have left",
        r"autoscaling:.*": "nodes that no run needs while others of their type train",
    },
    "WatchJob": {r"lambda:InvokeFunction on function:trainflow-Notify.*": "a cluster that cannot be reached"},
    "Training": {
        r"lambda:InvokeFunction on function:trainflow-(AcquireCache|CheckCompilation).*": CACHE,
        r"lambda:InvokeFunction on function:trainflow-StageData.*": STAGING,
        r"lambda:InvokeFunction on function:trainflow-CollectDiagnostics.*": FAILURE,
        r"states:StopExecution.*": "runs that are stopped",
    },
    "Pods": {r"s3:.*": "programs that read data sets, and a tools image that runs"},
}
"""Permissions that one plain run does not need, by role, as patterns, with the runs that do."""


def test_an_uploaded_run_is_refused_nothing_and_leaves_unused_what_has_a_reason(tmp_path: Path) -> None:
    with Twin(home=tmp_path / "home", log_dir=tmp_path / "logs", time_scale=60, no_op_seconds=1.0) as twin:
        assert twin.deployment is not None
        stepfunctions, machine = twin.client("stepfunctions"), twin.deployment.address.state_machine_arn
        spec = yaml.safe_dump({**steps_spec(max_steps=3), "name": "plain"}).encode()

        def ends() -> list[str]:
            return [each["status"] for each in stepfunctions.list_executions(stateMachineArn=machine)["executions"]]

        twin.client("s3").put_object(Bucket=DATA_BUCKET, Key="runs/plain.yaml", Body=spec)
        wait_until(lambda: bool(ends()) and "RUNNING" not in ends(), seconds=120)
        assert twin.aws.targets.drain(30), "CleanUp has seen the end"

        assert ends() == ["SUCCEEDED"]
        assert denied(twin.aws) == []
        roles = [*(function.name for function in FUNCTIONS), "WatchJob", "Training", "SurveySchedule", "Pods"]
        found = {role: unused(twin.aws, f"trainflow-{role}") for role in roles}
    without_reason = {role: sorted(each for each in left if not has_reason(role, each)) for role, left in found.items()}
    assert {role: left for role, left in without_reason.items() if left} == {}


def has_reason(role: str, permission: str) -> bool:
    """Whether a reason is written down why a plain run does not need a permission."""
    return any(re.fullmatch(pattern, permission) for pattern in (*BY_SERVICES, *OF_OTHER_RUNS.get(role, ())))
