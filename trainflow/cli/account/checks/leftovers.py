"""Checks for leftovers of an earlier deployment, and for existing parts of this one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainflow.cli.account.facts import Facts, Unknown
from trainflow.cli.account.findings import Finding, fails, fine, surprises, unchecked
from trainflow.cli.account.needs import stack_names
from trainflow.configuration.deployment import Configuration

STUCK = ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED")
"""States of a stack that can be deleted and nothing else (CloudFormation user guide, stack status codes)."""

COSTLY = (":fsx:", ":natgateway/", ":cluster/")


def stacks(configuration: Configuration, facts: Facts, *, config: str) -> Iterator[Finding]:
    """Can every stack be deployed?"""
    why = "CloudFormation updates no stack in this state."
    if isinstance(facts.stacks, Unknown):
        yield unchecked("stacks", "the state of the stacks", facts.stacks, why=why)
        return
    for name, status in facts.stacks.items():
        delete = f"aws cloudformation delete-stack --stack-name {name} --region {configuration.region}"
        if status in STUCK:
            # `cdk deploy` deletes a stack whose creation was rolled back and makes it anew.
            can_go = status == "ROLLBACK_COMPLETE"
            report = surprises if can_go else fails
            yield report(
                "stacks",
                f"{name} is {status}",
                why="CDK deletes it and makes it anew." if can_go else why,
                fix=delete,
            )
        elif status == "UPDATE_ROLLBACK_FAILED":
            yield fails(
                "stacks",
                f"{name} is {status}",
                why=why,
                fix=f"aws cloudformation continue-update-rollback --stack-name {name} --region {configuration.region}",
            )
        elif status.endswith("_IN_PROGRESS"):
            yield fails(
                "stacks",
                f"{name} is {status}",
                why="Another deployment or removal of it is in progress.",
                fix=f"Wait until it is done, then: make deploy CONFIG={config}",
            )
        else:
            yield fine("stacks", f"{name} is {status}")
    if not facts.stacks:
        yield fine("stacks", "none is there yet")


def resources(configuration: Configuration, facts: Facts) -> Iterator[Finding]:
    """Is anything in the way, or left and paid for?"""
    there: Mapping[str, str] = facts.stacks if isinstance(facts.stacks, Mapping) else {}
    yield from _log_groups(configuration, facts, there)
    if isinstance(facts.tagged, Unknown):
        why = "A file system that was kept costs money."
        yield unchecked("leftovers", "what is left of an earlier deployment", facts.tagged, why=why)
    elif there or isinstance(facts.stacks, Unknown):
        return
    elif facts.tagged:
        costly = [arn for arn in facts.tagged if any(part in arn for part in COSTLY)]
        shown = [*costly, *(arn for arn in facts.tagged if arn not in costly)][:5]
        more = f" and {len(facts.tagged) - len(shown)} more" if len(facts.tagged) > len(shown) else ""
        yield surprises(
            "leftovers",
            f"no stack of {configuration.name} is there, but resources with its tag are: {', '.join(shown)}{more}",
            why="They stay beside the new deployment; a file system goes on costing money."
            if costly
            else "They stay beside the new deployment, which makes its own.",
            fix=f"aws resourcegroupstaggingapi get-resources --tag-filters Key=trainflow:deployment,"
            f"Values={configuration.name} --region {configuration.region}; delete what is not needed.",
        )
    else:
        yield fine("leftovers", "nothing is left of an earlier deployment")


def _log_groups(configuration: Configuration, facts: Facts, there: Mapping[str, str]) -> Iterator[Finding]:
    """Log groups with a fixed name that no cluster stack owns yet: the deployment takes them over."""
    why = "Their events stay and cost; the deployment sets how long, and no fault comes of it."
    if isinstance(facts.log_groups, Unknown):
        yield unchecked("log groups", "whether log groups of an earlier deployment are left", facts.log_groups, why=why)
        return
    owned = there.get(stack_names(configuration).get("cluster", ""), "")
    if owned and owned not in STUCK:
        return
    for name in sorted(facts.log_groups):
        yield surprises(
            "log groups",
            f"the log group {name} is there already",
            why=why,
            fix=f"aws logs delete-log-group --log-group-name {name} --region {configuration.region}, if "
            "its content is not needed.",
        )
