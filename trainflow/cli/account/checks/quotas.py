"""Checks of the account's quotas against the needs of the deployment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from trainflow.cli.account.facts import Facts, Quota, Unknown
from trainflow.cli.account.findings import Finding, fails, fine, surprises, unchecked
from trainflow.cli.account.needs import (
    CODEBUILD_CONCURRENCY,
    FUNCTIONS_AT_ONCE,
    LAMBDA_CONCURRENCY,
    VcpuNeed,
    builds_at_once,
    counted_quotas,
    stack_names,
    vcpus_wanted,
)
from trainflow.configuration.deployment import Configuration
from trainflow.nodes.offerings import VCPU_QUOTAS


def vcpus(configuration: Configuration, facts: Facts) -> Iterator[Finding]:
    """May the nodes be started: those of the deployment, one of each type, and all of them?"""
    for field, need in vcpus_wanted(configuration).items():
        quota = VCPU_QUOTAS[field]
        found = facts.quotas.get(quota.code)
        name = f"{quota.name} ({quota.code})"
        if isinstance(found, Unknown):
            yield unchecked("vCPU quotas", f"the quota {name}", found, why="EC2 starts no nodes beyond it.")
        elif isinstance(found, Quota):
            written = getattr(configuration.capacity.vcpu_quotas, field)
            more = _request("ec2", quota.code, max(need.everything, written), configuration.region)
            yield _vcpus(name, found.limit, need, Written(f"capacity.vcpu_quotas.{field}", written), more=more)


class Written(NamedTuple):
    """A quota as the configuration has it."""

    field: str
    vcpus: int


def _vcpus(name: str, limit: float, need: VcpuNeed, written: Written, *, more: str) -> Finding:
    """A deployment starts only its permanent nodes; the groups of training nodes are made at zero nodes."""
    is_limit = f"{name} is {limit:g} vCPUs"
    if limit < need.permanent:
        return fails(
            "vCPU quotas",
            f"{is_limit}, and the permanent nodes take {need.permanent}",
            why="EC2 refuses them, and the cluster stack rolls back.",
            fix=more,
        )
    if limit < need.one_node:
        return surprises(
            "vCPU quotas",
            f"{is_limit}, and one node takes {need.one_node}",
            why="The deployment succeeds, and its first run is refused; AWS takes hours to days for a new account.",
            fix=more,
        )
    if limit < need.everything:
        return surprises(
            "vCPU quotas",
            f"{is_limit}, and all nodes at their largest take {need.everything}",
            why="A run that needs the rest waits for capacity that EC2 will not give.",
            fix=f"{more} (or lower max_nodes)",
        )
    if limit < written.vcpus:
        return surprises(
            "vCPU quotas",
            f"{is_limit}, and {written.field} says {written.vcpus}",
            why="Larger node groups would pass the configuration's check and be refused by EC2.",
            fix=f"Write {limit:g} there.",
        )
    return fine("vCPU quotas", f"{name}: {limit:g} vCPUs, at most {need.everything} are wanted")


def counted(configuration: Configuration, facts: Facts) -> Iterator[Finding]:
    """Is there room for one more VPC, address and cluster, and for the file system?"""
    there = facts.stacks if isinstance(facts.stacks, Mapping) else {}
    names = stack_names(configuration)
    for need in counted_quotas(configuration):
        found = facts.quotas.get(need.code)
        if names[need.stack] in there or found is None:
            continue
        name = f"{need.name} ({need.code})"
        why = f"The stack {names[need.stack]} takes {need.needed} and rolls back without."
        unknown = found if isinstance(found, Unknown) else found.in_use
        if isinstance(unknown, Unknown) or isinstance(found, Unknown):
            if isinstance(unknown, Unknown):
                yield unchecked("quotas", f"the quota {name}", unknown, why=why)
            continue
        left = found.limit - unknown
        if left < need.needed:
            yield fails(
                "quotas",
                f"{name}: {unknown:g} of {found.limit:g} {need.unit} are in use, and {need.needed} more are needed",
                why=why,
                fix=_request(need.service, need.code, int(unknown) + need.needed, configuration.region),
            )
        else:
            yield fine("quotas", f"{name}: {left:g} of {found.limit:g} {need.unit} are free")


def concurrency(configuration: Configuration, facts: Facts) -> Iterator[Finding]:
    """Do enough functions and builds run at once?"""
    service, code, name = LAMBDA_CONCURRENCY
    found = facts.quotas.get(code)
    why = "Calls beyond it are throttled: the workflow tries again and gets slower, and several runs at once fail."
    if isinstance(found, Unknown):
        yield unchecked("quotas", f"the Lambda quota {name} ({code})", found, why=why)
    elif found is not None and found.limit < FUNCTIONS_AT_ONCE:
        yield surprises(
            "quotas",
            f"Lambda runs {found.limit:g} functions at once ({code}); new accounts have 10",
            why=why,
            fix=_request(service, code, 1000, configuration.region),
        )
    elif found is not None:
        yield fine("quotas", f"Lambda runs {found.limit:g} functions at once ({code})")
    service, code, name = CODEBUILD_CONCURRENCY
    found, builds = facts.quotas.get(code), builds_at_once(configuration)
    why = f"`make images` starts {builds} builds; CodeBuild queues or refuses those beyond the quota."
    more = _request(service, code, builds, configuration.region)
    if isinstance(found, Unknown):
        yield unchecked("quotas", f"the CodeBuild quota {name} ({code})", found, why=why)
    elif found is not None and found.limit < 1:
        yield fails("quotas", f"CodeBuild runs no builds ({code})", why="No image can be built.", fix=more)
    elif found is not None and found.limit < builds:
        yield surprises("quotas", f"CodeBuild runs {found.limit:g} builds at once ({code})", why=why, fix=more)
    elif found is not None:
        yield fine("quotas", f"CodeBuild runs {found.limit:g} builds at once ({code})")


def _request(service: str, code: str, value: int, region: str) -> str:
    return (
        f"aws service-quotas request-service-quota-increase --service-code {service} --quota-code {code} "
        f"--desired-value {value} --region {region}"
    )
