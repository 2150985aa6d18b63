"""Checks of the people who can reach the cluster, and of those who get messages."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address, ip_network

from trainflow.cli.account.facts import Facts, Unknown
from trainflow.cli.account.findings import Finding, fails, fine, surprises, unchecked
from trainflow.cli.documents import page_path
from trainflow.configuration.deployment import Configuration


def administrators(configuration: Configuration, facts: Facts) -> Iterator[Finding]:
    """Does the cluster have administrators, and does IAM know them?"""
    if configuration.existing_cluster is not None:
        return
    named = configuration.cluster.administrators
    if not named:
        yield fails(
            "administrators",
            "cluster.administrators is empty",
            why="No principal can use kubectl, which half of the runbooks need: not even the one that deploys.",
            fix="Name an IAM role or user of yours there: aws sts get-caller-identity says who you are.",
        )
    for arn in named:
        found = facts.roles.get(arn)
        why = "EKS refuses an access entry for a principal that does not exist."
        if isinstance(found, Unknown):
            yield unchecked("administrators", f"whether {arn} exists", found, why=why)
        elif found is False:
            yield fails(
                "administrators",
                f"cluster.administrators: {arn} does not exist",
                why=why,
                fix="aws iam list-roles, and write the whole ARN with its path.",
            )
        elif found:
            yield fine("administrators", arn)


def way_in(configuration: Configuration, facts: Facts) -> Iterator[Finding]:
    """Can the API server be reached from where people are, and from here?"""
    if configuration.existing_cluster is not None:
        return
    cidrs = configuration.cluster.public_endpoint_cidrs
    if cidrs:
        networks = ", ".join(cidrs)
        if facts.address is None or isinstance(facts.address, Unknown):
            unknown = facts.address or Unknown("it was not asked for")
            what = f"whether this machine's address is in cluster.public_endpoint_cidrs ({networks})"
            yield unchecked("way in", what, unknown, why="kubectl works from these networks only.")
        elif any(ip_address(facts.address) in ip_network(cidr) for cidr in cidrs):
            yield fine("way in", f"the API server can be reached from {networks}, and so from here ({facts.address})")
        else:
            yield surprises(
                "way in",
                f"this machine's address {facts.address} is not in cluster.public_endpoint_cidrs ({networks})",
                why="kubectl on this machine cannot reach the API server.",
                fix=f"Add {facts.address}/{ip_address(facts.address).max_prefixlen} there, or work from one of the "
                "networks.",
            )
    else:
        yield surprises(
            "way in",
            "the API server is private: cluster.public_endpoint_cidrs is empty",
            why="kubectl works from inside the VPC only.",
            fix="Name the networks that you work from in cluster.public_endpoint_cidrs, or see "
            f"{page_path('deploy.md')} for a way in.",
        )


def told(configuration: Configuration) -> Iterator[Finding]:
    """Do notifications about failed runs and alarms have a recipient?"""
    emails = configuration.alarms.emails
    if emails:
        yield fine("alarms", f"{', '.join(emails)}; AWS asks each to confirm")
    else:
        yield surprises(
            "alarms",
            "alarms.emails is empty",
            why="No person is notified when a run fails, stalls or exceeds its budget.",
            fix="Write an address in alarms.emails.",
        )
