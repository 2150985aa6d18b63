"""Rules about permissions, in AWS and in the cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from stacks.checks.manifests import MANIFEST, manifests
from stacks.checks.templates import Finding, Resource, Templates, listed

WITHOUT_RESOURCE = {
    r"cloudwatch:PutMetricData": "takes no resource; the namespace is the condition that narrows it",
    r"xray:(PutTraceSegments|PutTelemetryRecords|GetSampling\w+)": "takes no resource",
    r"logs:(Create|Get|Update|Delete)LogDelivery|logs:ListLogDeliveries": "takes no resource",
    r"logs:(PutResourcePolicy|DescribeResourcePolicies|DescribeLogGroups)": (
        "log delivery of Step Functions reads all of the account's policies and groups"
    ),
    r"ec2:Describe\w+": "takes no resource",
    r"ec2:(Create|Delete)NetworkInterface|ec2:(Una|A)ssignPrivateIpAddresses": (
        "Lambda and CodeBuild place interfaces in a VPC under ids that are unknown before"
    ),
    r"autoscaling:Describe\w+": "takes no resource",
    r"servicequotas:GetServiceQuota|cloudwatch:(GetMetric(Data|Statistics)|ListMetrics)": "takes no resource",
    r"ecr:GetAuthorizationToken": "takes no resource",
    r"ecr-public:GetAuthorizationToken": "takes no resource",
    r"sts:(GetCallerIdentity|GetServiceBearerToken)": "takes no resource",
    r"ssm:UpdateInstanceInformation|ssmmessages:(Create|Open)(Control|Data)Channel": (
        "an instance reports itself under an id that is unknown before; channels have no resource type"
    ),
    r"fsx:Describe(FileSystems|DataRepositoryTasks)": "takes no resource",
    r"ssm:GetCommandInvocation": "takes no resource; only the sender knows the command's id",
}
"""Actions that IAM cannot limit to resources (Service Authorization Reference), each with the reason for its use."""

NEEDS_CONDITION = {"cloudwatch:PutMetricData": "cloudwatch:namespace"}
"""Condition key that limits an action which takes no resource."""

IDENTITY_POLICIES = ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")
RESOURCE_POLICIES = ("AWS::S3::BucketPolicy", "AWS::SNS::TopicPolicy", "AWS::SQS::QueuePolicy")


def roles_name_what_they_touch(templates: Templates) -> Iterator[Finding]:
    """No statement may allow an action on all resources if IAM could limit it. A key's own policy always names `*`."""
    for resource, statement in _statements(templates):
        if statement.get("Effect") != "Allow" or "*" not in listed(statement.get("Resource")):
            continue
        for action in listed(statement.get("Action")):
            if not any(re.fullmatch(pattern, action) for pattern in WITHOUT_RESOURCE):
                yield Finding.at(resource, "iam-resources", f"the action {action} is allowed on every resource.")
            elif action in NEEDS_CONDITION and NEEDS_CONDITION[action] not in json.dumps(statement.get("Condition")):
                yield Finding.at(
                    resource, "iam-resources", f"the action {action} is allowed without {NEEDS_CONDITION[action]}."
                )


def _statements(templates: Templates) -> Iterator[tuple[Resource, Mapping[str, Any]]]:
    for resource in templates.resources(*IDENTITY_POLICIES, *RESOURCE_POLICIES, "AWS::IAM::Role"):
        documents = [resource.properties.get("PolicyDocument")]
        documents += [policy.get("PolicyDocument") for policy in resource.properties.get("Policies") or []]
        for document in documents:
            for statement in listed((document or {}).get("Statement")):
                yield resource, statement


def cluster_roles_name_verbs_and_kinds(templates: Templates) -> Iterator[Finding]:
    """No Role or ClusterRole of ours may grant `*` in the cluster."""
    for resource in templates.resources(MANIFEST):
        found = manifests(resource)
        if found is None:
            yield Finding.at(resource, "rbac", "the manifest is not JSON that could be checked.")
            continue
        for manifest in found:
            if manifest.get("kind") not in ("Role", "ClusterRole"):
                continue
            name = (manifest.get("metadata") or {}).get("name")
            for rule in manifest.get("rules") or []:
                for field in ("apiGroups", "resources", "verbs", "nonResourceURLs"):
                    if any("*" in str(value) for value in rule.get(field) or []):
                        yield Finding.at(resource, "rbac", f"the {manifest['kind']} {name} grants '*' in {field}.")
