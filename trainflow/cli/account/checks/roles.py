"""Roles that AWS's services make for themselves."""

from __future__ import annotations

from collections.abc import Iterator

from trainflow.cli.account.facts import Facts, Simulation, Unknown
from trainflow.cli.account.findings import Finding, fails, fine, surprises, unchecked
from trainflow.cli.account.needs import service_linked_roles
from trainflow.configuration.deployment import Configuration

MAKE = "iam:CreateServiceLinkedRole"


def service_linked(configuration: Configuration, facts: Facts) -> Iterator[Finding]:
    """Is each service-linked role there, or may it be made on first use?"""
    may_not = isinstance(facts.may_create, Simulation) and MAKE in facts.may_create.denied
    there = []
    for role, service in service_linked_roles(configuration).items():
        found = facts.roles.get(role)
        why = f"{service} acts in the account with it."
        fix = f"aws iam create-service-linked-role --aws-service-name {service}"
        if isinstance(found, Unknown):
            yield unchecked("service-linked roles", f"whether {role} exists", found, why=why)
        elif found:
            there.append(role)
        elif found is False and may_not:
            what = f"{role} does not exist, and CloudFormation may not make it ({MAKE})"
            yield fails("service-linked roles", what, why=why, fix=fix)
        elif found is False and service == "spot.amazonaws.com":
            # EC2 user guide, "Service-linked role for Spot Instance requests": made by the console, or by hand.
            yield surprises(
                "service-linked roles",
                f"{role} does not exist",
                why="Without it a first Spot request may fail.",
                fix=fix,
            )
        elif found is False:
            yield fine("service-linked roles", f"{role} will be made on first use")
    if there:
        yield fine("service-linked roles", f"{', '.join(there)} exist" if len(there) > 1 else f"{there[0]} exists")
