"""Rules about stored data: the file system and access to it, and the retention of buckets and logs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from stacks.checks.templates import Finding, Resource, Templates, text, values

LUSTRE_PORTS = ((988, 988), (1018, 1023))
"""Ports between clients, file servers and among servers (FSx for Lustre user guide, security groups)."""

NOTHING_LEAVES = "255.255.255.255/32"
"""CDK's rule for a group without egress: an address that no host has, because a group without rules would allow all."""

WANT_A_STAR = (
    "AWS::IAM::ManagedPolicy",
    "AWS::IAM::Policy",
    "AWS::IAM::Role",
    "AWS::StepFunctions::StateMachine",
)
"""Types of resources that name a log group by an ARN with `:*`: in policies it means the streams, and Step Functions
documents this form (CloudFormation, CloudWatchLogsLogGroup)."""


def lustre_is_encrypted_and_placed(templates: Templates) -> Iterator[Finding]:
    """The file system uses a key of this deployment and the zone of the nodes: traffic between zones is slow and
    billed."""
    for system in templates.resources("AWS::FSx::FileSystem"):
        if not system.properties.get("KmsKeyId"):
            yield Finding.at(system, "lustre-key", "the file system is not encrypted with a key of this deployment.")
        subnets = system.properties.get("SubnetIds") or []
        if len(subnets) != 1:
            yield Finding.at(system, "lustre-zone", f"the file system stands in {len(subnets)} subnets instead of one.")


def lustre_opens_its_ports_alone(templates: Templates) -> Iterator[Finding]:
    """Lustre's ports are open to security groups, and to the group itself: the file system does not start otherwise."""
    for system in templates.resources("AWS::FSx::FileSystem"):
        groups = system.properties.get("SecurityGroupIds") or []
        if not groups:
            yield Finding.at(system, "lustre-ports", "the file system has no security group of its own.")
        for value in groups:
            group = templates.find(templates.origin(system.stack, value))
            if group is None:
                yield Finding.at(system, "lustre-ports", "the file system's security group is none of this app.")
            else:
                yield from _ports(templates, group)


def lustre_waits_for_its_rules(templates: Templates) -> Iterator[Finding]:
    """FSx refuses to create a file system while Lustre's ports are closed."""
    for system in templates.resources("AWS::FSx::FileSystem"):
        before = templates.made_before(system)
        for value in system.properties.get("SecurityGroupIds") or []:
            group = templates.origin(system.stack, value)
            for rule in templates.resources("AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress"):
                own = templates.origin(rule.stack, rule.properties.get("GroupId")) == group
                if own and rule.stack == system.stack and rule.logical_id not in before:
                    yield Finding.at(
                        system, "lustre-order", f"the file system does not wait for the rule {rule.logical_id}."
                    )


def lustre_links_are_made_one_by_one(templates: Templates) -> Iterator[Finding]:
    """Two links of a file system that are created at the same time can end in FAILED."""
    links: dict[tuple[str, str] | None, list[Resource]] = {}
    for link in templates.resources("AWS::FSx::DataRepositoryAssociation"):
        links.setdefault(templates.origin(link.stack, link.properties.get("FileSystemId")), []).append(link)
    for of_one_system in links.values():
        for first, second in itertools.combinations(of_one_system, 2):
            ordered = first.logical_id in templates.made_before(second) or second.logical_id in templates.made_before(
                first
            )
            if not ordered:
                yield Finding.at(
                    second, "lustre-order", f"neither this link nor {first.logical_id} waits for the other."
                )


def _ports(templates: Templates, group: Resource) -> Iterator[Finding]:
    from_itself: set[tuple[Any, Any]] = set()
    for direction, end in (("Ingress", "Source"), ("Egress", "Destination")):
        for stack, rule in _rules(templates, group, direction):
            if rule.get("CidrIp") == NOTHING_LEAVES:
                continue
            ports = rule.get("FromPort"), rule.get("ToPort")
            if rule.get("IpProtocol") != "tcp" or ports not in LUSTRE_PORTS:
                yield Finding.at(
                    group, "lustre-ports", f"{direction.lower()} of ports {_range(*ports)}; Lustre needs {_wanted()}."
                )
            other = rule.get(f"{end}SecurityGroupId")
            if other is None:
                yield Finding.at(group, "lustre-ports", f"{direction.lower()} by address instead of by security group.")
            elif direction == "Ingress" and templates.origin(stack, other) == group.origin:
                from_itself.add(ports)
    if not from_itself.issuperset(LUSTRE_PORTS):
        yield Finding.at(group, "lustre-ports", f"the group does not let itself in on {_wanted()}.")


def _rules(templates: Templates, group: Resource, direction: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rules of a group, in the group itself or as resources of their own, in any stack."""
    for rule in group.properties.get(f"SecurityGroup{direction}") or []:
        yield group.stack, rule
    for rule in templates.resources(f"AWS::EC2::SecurityGroup{direction}"):
        if templates.origin(rule.stack, rule.properties.get("GroupId")) == group.origin:
            yield rule.stack, dict(rule.properties)


def _range(first: Any, last: Any) -> str:
    if first is None:
        return "of any number"
    return str(first) if first == last else f"{first}-{last}"


def _wanted() -> str:
    return " and ".join(_range(*ports) for ports in LUSTRE_PORTS)


def buckets_have_an_end(templates: Templates) -> Iterator[Finding]:
    """Every bucket has a lifecycle rule, and a policy for the deletion of its stack."""
    for bucket in templates.resources("AWS::S3::Bucket"):
        rules = (bucket.properties.get("LifecycleConfiguration") or {}).get("Rules") or []
        if not any(rule.get("Status") == "Enabled" for rule in rules):
            yield Finding.at(bucket, "retention", "the bucket has no lifecycle rule.")
        yield from _undecided(bucket, "the bucket")


def logs_have_an_end(templates: Templates) -> Iterator[Finding]:
    """Logs expire; a function without its own log group would make one that never does."""
    for group in templates.resources("AWS::Logs::LogGroup"):
        if not group.properties.get("RetentionInDays"):
            yield Finding.at(group, "retention", "the log group keeps its events for ever.")
        yield from _undecided(group, "the log group")
        name = group.properties.get("LogGroupName")
        if name is not None and "AWS::StackId" not in json.dumps(name):
            yield Finding.at(
                group,
                "retention",
                f"the log group's name {text(name)} is fixed: a group that is there stops the deployment.",
            )
    for function in templates.resources("AWS::Lambda::Function"):
        if not (function.properties.get("LoggingConfig") or {}).get("LogGroup"):
            yield Finding.at(
                function, "retention", "the function has no log group of its own, and Lambda's keeps events for ever."
            )


def log_groups_are_named_without_a_star(templates: Templates) -> Iterator[Finding]:
    """`Fn::GetAtt` gives the ARN of a log group with `:*` behind it. Policies and Step Functions want that form; other
    services take the ARN of the group itself as a destination, and some refuse the longer one."""
    for resource in templates.resources():
        if resource.type in WANT_A_STAR:
            continue
        for value in values(resource.properties):
            if _ends_with_star(templates, resource.stack, value):
                yield Finding.at(
                    resource, "log-group-arn", "names a log group by an ARN that ends with ':*'; leave that out."
                )
                break


def _ends_with_star(templates: Templates, stack: str, value: Any) -> bool:
    found = templates.attribute(stack, value)
    group = templates.find(found[:2]) if found is not None and found[2] == "Arn" else None
    if group is not None and group.type == "AWS::Logs::LogGroup":
        return True
    written = text(value)
    return ":log-group:" in written and written.endswith(":*")


def _undecided(resource: Resource, what: str) -> Iterator[Finding]:
    if not resource.definition.get("DeletionPolicy"):
        yield Finding.at(resource, "retention", f"nothing says whether {what} is deleted with its stack.")
