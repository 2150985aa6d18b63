"""Buckets and secrets of others: what the configuration grants reaches pods and Preflight, and nothing more does."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from stacks.checks.templates import Templates, listed
from stacks.composition import compose
from tests.infrastructure import alone
from tests.infrastructure.assembly import synthesize
from tests.infrastructure.auditors import audit, in_use, unacknowledged
from tests.infrastructure.serverless import configuration, text
from tests.infrastructure.slurm import ENOUGH, PCS, with_slurm

Resource = dict[str, Any]

KEY = "arn:aws:kms:us-west-2:111122223333:key/0a1b2c3d-0000-4000-8000-000000000000"
GRANTS = [
    {"bucket": "their-data", "prefix": "corpora/"},
    {"bucket": "my-models", "read": False, "write": True, "kms_key_arn": KEY},
]
SECRET = "arn:aws:secretsmanager:us-west-2:111122223333:secret:team/hub-AbCdEf"
SECRETS_KEY = "arn:aws:kms:us-west-2:111122223333:key/0a1b2c3d-0000-4000-8000-00000000000f"
SECRETS = [{"secret_arn": SECRET, "kms_key_arn": SECRETS_KEY}]


REPLACING = {
    "nodegroups": [{"instance_type": "trn1.2xlarge", "max_nodes": 4}],
    "vcpu_quotas": ENOUGH,
    "replace_bad_nodes": True,
}


def granted(stack: str, role: str) -> set[tuple[str, str, str]]:
    """Action, resource and condition of what a role may do with the buckets that the configuration grants."""
    found = set()
    for policy in Templates(with_grants()).resources("AWS::IAM::Policy", "AWS::IAM::Role"):
        if policy.stack != stack or role not in policy.logical_id:
            continue
        documents = [policy.properties.get("PolicyDocument"), *_inline(policy.properties)]
        for statement in (each for document in documents if document for each in document["Statement"]):
            for action in listed(statement["Action"]):
                for resource in map(text, listed(statement["Resource"])):
                    if "their-data" in resource or "my-models" in resource or KEY in resource:
                        condition = json.dumps(statement.get("Condition", {}))
                        found.add((action, resource.replace("<AWS::Partition>", "aws"), condition))
    return found


def _inline(properties: Resource) -> list[Resource]:
    return [policy["PolicyDocument"] for policy in properties.get("Policies") or []]


@cache
def with_grants() -> dict[str, Resource]:
    return synthesize(with_slurm({"pcs": PCS}, storage={"grants": GRANTS}, run_secrets=SECRETS, capacity=REPLACING))


READS = {
    ("s3:GetObject", "arn:aws:s3:::their-data/corpora/*", "{}"),
    ("s3:ListBucket", "arn:aws:s3:::their-data", '{"StringLike": {"s3:prefix": "corpora/*"}}'),
}


def test_runs_may_do_with_granted_buckets_what_the_configuration_says_and_no_more() -> None:
    through_s3 = '{"StringLike": {"kms:ViaService": "s3.*.amazonaws.com"}}'
    assert granted("trainflow-slurm", "ProfileRole") == granted("trainflow-cluster", "PodRole")
    assert granted("trainflow-cluster", "PodRole") == READS | {
        ("s3:PutObject", "arn:aws:s3:::my-models/*", "{}"),
        ("s3:AbortMultipartUpload", "arn:aws:s3:::my-models/*", "{}"),
        ("kms:Decrypt", KEY, through_s3),
        ("kms:GenerateDataKey", KEY, through_s3),
    }


def test_pods_alone_may_read_the_secrets_that_the_configuration_names() -> None:
    kinds = ("AWS::IAM::Policy", "AWS::IAM::Role", "AWS::IAM::ManagedPolicy")
    readers = [
        (policy.stack, policy.logical_id.startswith("WorkloadPodRole"), statement["Action"], statement.get("Condition"))
        for policy in Templates(with_grants()).resources(*kinds)
        for document in [policy.properties.get("PolicyDocument"), *_inline(policy.properties)]
        for statement in (document or {"Statement": []})["Statement"]
        if {SECRET, SECRETS_KEY} & set(map(text, listed(statement["Resource"])))
    ]
    through = {"StringEquals": {"kms:ViaService": "secretsmanager.us-west-2.amazonaws.com"}}
    assert readers == [
        ("trainflow-cluster", True, "secretsmanager:GetSecretValue", None),
        ("trainflow-cluster", True, "kms:Decrypt", through),
    ]


def test_preflight_may_check_data_sets_in_granted_buckets_and_write_nothing() -> None:
    assert granted("trainflow-orchestration", "Preflight") == READS


def test_auditors_find_nothing_in_the_grants_that_is_not_explained() -> None:
    app = alone.make_app()
    app.node.set_context("aws:cdk:bundling-stacks", [])
    compose(app, with_slurm({"pcs": PCS}, storage={"grants": GRANTS}, run_secrets=SECRETS))
    report = audit(app)
    assert unacknowledged(report) == []
    patterns = " ".join(each.rule for each in in_use(report))
    assert ":s3:::their-data/corpora/*]" in patterns and ":s3:::my-models/*]" in patterns


def test_instances_of_the_clusters_own_groups_are_terminated_by_the_survey_and_to_replace_bad_ones() -> None:
    found = []
    for policy in Templates(with_grants()).resources("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy", "AWS::IAM::Role"):
        documents = [policy.properties.get("PolicyDocument"), *_inline(policy.properties)]
        for statement in (each for document in documents if document for each in document["Statement"]):
            if "autoscaling:TerminateInstanceInAutoScalingGroup" in listed(statement["Action"]):
                found.append((policy.logical_id, statement))
    assert sorted(role.partition("Role")[0] for role, _ in found) == ["EnsureCapacity", "SurveyFleet"]
    for _, statement in found:
        (resource,) = map(text, listed(statement["Resource"]))
        assert resource.endswith(":autoScalingGroup:*:autoScalingGroupName/eks-trainflow-*")
        assert list(statement["Condition"]["StringEquals"]) == ["aws:ResourceTag/eks:cluster-name"]
    variables = [
        function.properties["Environment"]["Variables"].get("REPLACE_BAD_NODES")
        for function in Templates(with_grants()).resources("AWS::Lambda::Function")
        if "EnsureCapacity" in function.logical_id
    ]
    assert variables == ["true"]


def test_functions_have_no_rights_on_nodes_that_the_cluster_makes_by_itself() -> None:
    theirs = synthesize(configuration(capacity={"cluster": True}))
    actions = set()
    for policy in Templates(theirs).resources("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy", "AWS::IAM::Role"):
        documents = [policy.properties.get("PolicyDocument"), *_inline(policy.properties)]
        for statement in (each for document in documents if document for each in document["Statement"]):
            actions |= set(listed(statement["Action"]))
    assert "eks:DescribeCluster" in actions
    assert not {action for action in actions if "odegroup" in action}
    assert "autoscaling:TerminateInstanceInAutoScalingGroup" not in actions
    variables = [
        function.properties["Environment"]["Variables"].get("CLUSTER_MAKES_NODES")
        for function in Templates(theirs).resources("AWS::Lambda::Function")
        if "EnsureCapacity" in function.logical_id
    ]
    assert variables == ["true"]
