"""A run needs nothing that the templates do not grant; what they grant beyond that has a reason here.

The slow test lets runs of all kinds leave what no run of theirs needs, and compares it with the lists below exactly: a
grant that is added and not used is noticed, and so is an entry of something that is used or gone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest
import yaml

from benchmarks.fault_cells import WITHOUT_CAPACITY, kinds_of_runs, run_cell
from benchmarks.fault_events import EVENTS, event_cell
from benchmarks.fault_injection import Plan, twin_with
from benchmarks.fault_runs import TIME_SCALE
from local.aws.deployment import DATA_BUCKET
from local.twin import Twin
from tests.integration.granted import denied, unused
from tests.integration.test_runs import steps_spec
from tests.waiting import wait_until
from trainflow.deployment.functions import FUNCTIONS

FUNCTION_NAMES = frozenset(function.name for function in FUNCTIONS)
IN_CLUSTER = frozenset(function.name for function in FUNCTIONS if function.access is not None)
"""Functions that reach what runs the jobs."""
MACHINES = frozenset({"WatchJob", "Training"})
NO_TABLE = frozenset(
    {
        "CollectDiagnostics",
        "EnsureCapacity",
        "LocateRank0",
        "PollJob",
        "PublishArtifacts",
        "PublishMetrics",
        "StageData",
        "SubmitJob",
    }
)
"""Functions that use no table of DynamoDB."""
ROLES = (*FUNCTION_NAMES, *MACHINES, "SurveySchedule", "Pods")

KEY = "key/of-deployment"
DATA_KEY = "key/of-buckets"
"""The two keys, in place of their ids."""

USED_BY_SERVICES: Mapping[str, tuple[Collection[str], str]] = {
    r"logs:(CreateLogStream|PutLogEvents) on log-group:trainflow-\w+Logs:\*": (
        FUNCTION_NAMES,
        "Lambda writes a function's log with its role (Lambda guide, 'Execution role').",
    ),
    r"logs:(\w+LogDelivery|ListLogDeliveries|PutResourcePolicy|Describe(ResourcePolicies|LogGroups)) on \*": (
        MACHINES,
        "Step Functions delivers the logs of executions (guide, 'Logging in CloudWatch Logs').",
    ),
    r"xray:(PutTraceSegments|PutTelemetryRecords|GetSampling(Rules|Targets)) on \*": (
        FUNCTION_NAMES | MACHINES,
        "Tracing is off in the twin, which has no X-Ray.",
    ),
    r"ec2:((Assign|Unassign)PrivateIpAddresses|(Create|Delete|Describe)NetworkInterfaces?|DescribeSubnets) on \*": (
        IN_CLUSTER,
        "Lambda places functions in a network (AWSLambdaVPCAccessExecutionRole). Preflight reads subnets itself.",
    ),
    r"sqs:SendMessage on trainflow-(DeadLetters\w+|run-requests-dead-letters)": (
        {"StartRun", "ReportLostRequest", "CleanUp", "SurveyFleet", "SurveySchedule"},
        "Lambda and Scheduler send there what has failed for good.",
    ),
    rf"kms:Decrypt on {KEY}": (
        {*FUNCTION_NAMES, "WatchJob", "SurveySchedule"},
        "Lambda decrypts variables, Step Functions data and Scheduler's dead letters with the role.",
    ),
    rf"kms:(Encrypt|DescribeKey) on {KEY}": (
        FUNCTION_NAMES - NO_TABLE,
        "DynamoDB uses the key of a table for its callers (guide, 'Encryption at rest').",
    ),
    rf"kms:GenerateDataKey on {KEY}": (
        (FUNCTION_NAMES - NO_TABLE) | MACHINES | {"SurveySchedule"},
        "As above; Step Functions for the data of executions, Scheduler for dead letters.",
    ),
    r"sqs:GetQueueAttributes on trainflow-run-requests(-dead-letters)?": (
        {"StartRun", "ReportLostRequest"},
        "Lambda's poller, with the function's role (AWSLambdaSQSQueueExecutionRole).",
    ),
    r"events:(DescribeRule|PutRule|PutTargets) on rule/StepFunctionsGetEvents\w+": (
        {"Training"},
        "Step Functions checks for it when a machine that awaits executions is made (guide, 'IAM policies').",
    ),
    r"states:StopExecution on execution:trainflow-watch-job:\*": (
        {"Training"},
        "Step Functions stops the child of a stopped run with it; in the twin the interpreter does.",
    ),
}
"""Permissions that services use, which the twin does not ask for: patterns, the roles that have them, and why."""

OF_SLURM = {
    f"s3:GetObject on trainflow-artifacts/runs/*/{kind}/*": "tests/integration/test_slurm_ssm.py"
    for kind in ("jobs", "logs", "tails")
} | {"s3:ListBucket on trainflow-artifacts": "tests/integration/test_slurm_ssm.py"}
"""Files of runs on Slurm, read by every function that reaches what runs the jobs."""

READS_LOGS = frozenset({"CollectDiagnostics", "TearDown", "CleanUp"})
"""Functions that read the kept logs of pods, in runs on Kubernetes as well."""

DECRYPTS_OF_SLURM = {f"kms:Decrypt on {DATA_KEY}": "tests/integration/test_slurm_ssm.py"}
"""For functions that read no object in other runs; also for those that read announcements of elastic runs alone."""

LOST = "tests/integration/test_lost_requests.py"
ELASTIC = "tests/integration/test_seed_runs.py::test_an_elastic_gang_trains_where_rank_0_says_it_is"
LEASES = (
    "tests/integration/test_compile_cache.py::test_the_lease_of_a_run_that_is_stopped_while_it_compiles_is_taken_over"
)
GONE = "tests/integration/test_compile_cache.py::test_a_ready_cache_that_was_deleted_or_damaged_is_compiled_again"
SURPLUS = (
    "tests/unit/lambdas/test_surplus_nodes.py"
    "::test_nodes_that_no_run_needs_are_removed_although_others_of_their_type_train"
)
QUEUED = "tests/integration/test_run_limits.py::test_a_scheduled_run_waits_for_the_one_before_it_and_no_second_one_does"
PREFIXES = "tests/integration/test_staging_runs.py::test_a_prefix_of_a_public_bucket_is_staged_as_its_manifest_says"
STAGED = "tests/integration/test_staging_runs.py"
CONTINUED = (
    "tests/unit/trainer/test_publication.py::test_a_publication_that_was_killed_continues_and_sends_nothing_twice"
)

NOT_REACHED: Mapping[str, Mapping[str, str]] = {
    "AcquireCache": {
        "dynamodb:DeleteItem on table/trainflow-caches": GONE,
        "dynamodb:UpdateItem on table/trainflow-caches": LEASES,
        "states:DescribeExecution on execution:trainflow-training:*": LEASES,
    },
    "TearDown": {
        "dynamodb:DeleteItem on table/trainflow-caches": "tests/unit/lambdas/test_compile_cache.py",
        "s3:GetObject on trainflow-artifacts/runs/*/rank0/*": ELASTIC,
    },
    "CleanUp": {
        "dynamodb:DeleteItem on table/trainflow-caches": LEASES,
        "s3:GetObject on trainflow-artifacts/runs/*/rank0/*": ELASTIC,
    },
    "SurveyFleet": {
        "dynamodb:DeleteItem on table/trainflow-caches": "tests/unit/lambdas/test_compile_cache.py",
        "autoscaling:DescribeAutoScalingGroups on *": SURPLUS,
        "autoscaling:TerminateInstanceInAutoScalingGroup on "
        "autoScalingGroup:*:autoScalingGroupName/eks-trainflow-*": SURPLUS,
    },
    "LocateRank0": {"s3:GetObject on trainflow-artifacts/runs/*/rank0/*": ELASTIC},
    "PublishArtifacts": {"s3:GetObject on trainflow-artifacts/runs/*/rank0/*": ELASTIC},
    "ValidateRun": {
        "dynamodb:UpdateItem on table/trainflow-runs": "tests/unit/lambdas/test_clean_up.py::"
        "test_a_run_that_was_stopped_before_its_validation_ended_is_not_left_running"
    },
    "StageData": {
        "fsx:CreateDataRepositoryTask on file-system/arn:aws:twin:::storage.LustreFileSystem": (
            "tests/unit/lambdas/test_staging.py"
        ),
        "fsx:CreateDataRepositoryTask on task/*": "tests/unit/lambdas/test_staging.py",
        "fsx:DescribeDataRepositoryTasks on *": "tests/unit/lambdas/test_staging.py",
    },
    "Preflight": {
        "s3:GetObject on trainflow-data/data/*": STAGED,
        "s3:ListBucket on trainflow-data": PREFIXES,
        "s3:ListBucket on trainflow-demo": PREFIXES,
    },
    "StartRun": {
        "dynamodb:PutItem on table/trainflow-runs": QUEUED,
        "states:DescribeExecution on execution:trainflow-training:*": QUEUED,
        "sqs:GetQueueUrl on trainflow-run-requests": QUEUED,
        "sqs:SendMessage on trainflow-run-requests": QUEUED,
        **{
            f"s3:{action} on trainflow-data/runs/*.{ending}.refused.txt": "tests/unit/lambdas/test_start_run.py"
            for action in ("DeleteObject", "PutObject")
            for ending in ("json", "yml")
        },
    },
    "ReportLostRequest": {
        # The slow test loses the request of a schedule, which has no uploaded spec.
        "s3:GetObject on trainflow-data/runs/*": LOST,
        f"kms:Decrypt on {DATA_KEY}": LOST,
        f"kms:GenerateDataKey on {DATA_KEY}": LOST,
        **{f"s3:PutObject on trainflow-data/runs/*.{ending}.refused.txt": LOST for ending in ("json", "yaml", "yml")},
    },
    "Pods": {
        # boto3 ends an upload in parts so when it fails.
        "s3:AbortMultipartUpload on trainflow-artifacts/runs/*": STAGED,
        # A publication lists the folder, and looks only at objects that are there from an earlier try.
        "s3:GetObject on trainflow-artifacts/*": CONTINUED,
        "s3:GetObject on trainflow-data/*": STAGED,
        "s3:ListBucket on trainflow-data": PREFIXES,
        "s3:ListBucket on trainflow-demo": PREFIXES,
    },
}
"""What the runs of the slow test do not need, by role, with the tests that do, or of what does."""


BY_SERVICES = {
    r"logs:.*": "Lambda and Step Functions write logs themselves",
    r"xray:.*": "tracing is off in the twin",
    r"ec2:(Assign|Unassign|Create|Delete|Describe)(NetworkInterface|PrivateIp|Subnets).*": "Lambda places functions",
    r"sqs:SendMessage on .*(dead-letters|DeadLetters).*": "Lambda and Scheduler send what failed",
    r"kms:.*": "DynamoDB, S3, SNS, SQS, Lambda or Step Functions use the key for the caller, as their guides list it",
    r"events:(DescribeRule|PutRule|PutTargets) on rule/StepFunctions.*": "Step Functions asks when the machine is made",
    r"fsx:.*": "the twin has no linked file system",
    r"s3:PutObject on trainflow-artifacts/runs/\*/logs/\*": "pods that failed",
    r"s3:.* on trainflow-artifacts/runs/\*/(jobs|logs|tails)/\*": "runs on Slurm",
    r"s3:ListBucket on trainflow-artifacts": "runs on Slurm",
}
"""Permissions that a plain run does not ask for, of every role, as patterns. The slow test is exact."""

CACHE, STAGING, ELASTIC, FAILURE = "precompiled runs", "runs with a data set", "elastic runs", "runs that fail"
BUSY_NODES = "nodes that publish how busy they are"
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
    "WriteRecord": {r"cloudwatch:GetMetricData.*": BUSY_NODES},
    "Notify": {r"dynamodb:GetItem.*": "functions that are repeated after they have sent a message"},
    "StartRun": {r"(dynamodb|sns|sqs):.*|states:DescribeExecution.*|s3:.*": REQUESTS},
    "ReportLostRequest": {r"(dynamodb|sns|sqs|s3):.*": "requests that were not answered"},
    "CleanUp": {
        r"cloudwatch:GetMetricData.*": BUSY_NODES,
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


def expected(role: str) -> dict[str, str]:
    """What a role has and no run of the slow test needs, beside what services use, with a test of each."""
    of_slurm = OF_SLURM if role in IN_CLUSTER else {}
    if role in READS_LOGS:
        of_slurm = {each: why for each, why in of_slurm.items() if "/logs/" not in each}
    reads = role in {*READS_LOGS, "PublishMetrics"}
    decrypts = DECRYPTS_OF_SLURM if role in IN_CLUSTER and not reads else {}
    return {**of_slurm, **decrypts, **NOT_REACHED.get(role, {})}


def is_used_by_a_service(role: str, permission: str) -> bool:
    """Whether a service uses a permission with the role."""
    return any(
        role in roles and re.fullmatch(pattern, permission) for pattern, (roles, _why) in USED_BY_SERVICES.items()
    )


def left(twin: Twin) -> dict[str, set[str]]:
    """What no request of the twin has needed, by role, with names for the keys."""
    assert twin.deployment is not None, "the twin runs, with everything deployed"
    topic = twin.client("sns").get_topic_attributes(TopicArn=twin.deployment.topic_arn)["Attributes"]
    rules = twin.client("s3").get_bucket_encryption(Bucket=DATA_BUCKET)["ServerSideEncryptionConfiguration"]["Rules"]
    ids = {
        topic["KmsMasterKeyId"]: KEY,
        rules[0]["ApplyServerSideEncryptionByDefault"]["KMSMasterKeyID"]: DATA_KEY,
    }
    names = {f"key/{arn.rsplit('/', 1)[1]}": name for arn, name in ids.items()}

    def named(permission: str) -> str:
        action, _, resource = permission.partition(" on ")
        return f"{action} on {names.get(resource, resource)}"

    return {role: {named(each) for each in unused(twin.aws, f"trainflow-{role}")} for role in ROLES}


def test_an_uploaded_run_is_refused_nothing_and_leaves_unused_what_has_a_reason(tmp_path: Path) -> None:
    with Twin(home=tmp_path / "home", log_dir=tmp_path / "logs", time_scale=60, no_op_seconds=1.0) as twin:
        assert twin.deployment is not None
        stepfunctions, machine = twin.client("stepfunctions"), twin.deployment.address.state_machine_arn
        spec = yaml.safe_dump({**steps_spec(max_steps=3), "name": "plain"}).encode()

        def ends() -> list[str]:
            return [each["status"] for each in stepfunctions.list_executions(stateMachineArn=machine)["executions"]]

        twin.client("s3").put_object(Bucket=DATA_BUCKET, Key="runs/plain.yaml", Body=spec)
        wait_until(lambda: bool(ends()) and "RUNNING" not in ends())
        assert twin.aws.targets.drain(30), "CleanUp has seen the end"

        assert ends() == ["SUCCEEDED"]
        assert denied(twin.aws) == []
        found = left(twin)
    for role, permissions in found.items():
        missing = expected(role).keys() - permissions
        # The slow test has a home with the demo's bucket, which is not granted here.
        assert {each for each in missing if "trainflow-demo" not in each} == set(), role
    without_reason = {
        role: {each for each in permissions if each not in expected(role) and not has_reason(role, each)}
        for role, permissions in found.items()
    }
    assert {role: permissions for role, permissions in without_reason.items() if permissions} == {}


def has_reason(role: str, permission: str) -> bool:
    """Whether a reason is written down why a plain run does not need a permission."""
    return any(re.fullmatch(pattern, permission) for pattern in (*BY_SERVICES, *OF_OTHER_RUNS.get(role, ())))


@pytest.mark.slow
def test_runs_of_all_kinds_leave_unused_exactly_what_is_listed(tmp_path: Path) -> None:
    """Every Task state and every function of an event, each of whose calls fails once after it has acted."""
    plan, fault = Plan(), "crash-after"
    with twin_with(plan, tmp_path, time_scale=TIME_SCALE, without_capacity=[WITHOUT_CAPACITY]) as twin:
        for kind, of_kind in kinds_of_runs().items():
            run_cell(twin, plan, fault, kind, of_kind)
        for event in EVENTS:
            event_cell(twin, plan, fault, event)
        assert denied(twin.aws) == []
        found = left(twin)
    assert {
        role: {each for each in permissions if not is_used_by_a_service(role, each)}
        for role, permissions in found.items()
    } == {role: set(expected(role)) for role in ROLES}
    patterns = {pattern for pattern in USED_BY_SERVICES if not any_matches(pattern, found)}
    assert patterns == set(), "of permissions that are used, or that no role has"


def any_matches(pattern: str, found: Mapping[str, Collection[str]]) -> bool:
    """Whether a pattern stands for a permission that was found."""
    return any(re.fullmatch(pattern, each) for permissions in found.values() for each in permissions)


def test_every_test_that_is_named_as_a_reason_is_there() -> None:
    reasons = {reason for role in ROLES for reason in expected(role).values()}
    for reason in sorted(reasons):
        path, _, name = reason.partition("::")
        assert f"def {name}" in Path(path).read_text(encoding="utf-8"), reason
