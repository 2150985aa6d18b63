"""Who deploys, where, and whether they may."""

from __future__ import annotations

from collections.abc import Iterator

from trainflow.cli.account.facts import Facts, Identity, NoCredentials, Unknown
from trainflow.cli.account.findings import Finding, fails, fine, surprises, unchecked
from trainflow.cli.account.needs import OLDEST_BOOTSTRAP, bootstrap_roles
from trainflow.configuration.deployment import Configuration


def credentials(configuration: Configuration, facts: Facts) -> Finding:
    """Are there credentials, and do they lead to the configured account?"""
    who = facts.identity
    if isinstance(who, NoCredentials):
        return fails("credentials", who.reason, why="Nothing can be asked or deployed without them.", fix=who.fix)
    if configuration.account is not None and who.account != configuration.account:
        return fails(
            "credentials",
            f"the credentials are of account {who.account}, and the configuration is for {configuration.account}",
            why="CDK refuses to deploy to another account than the configured one.",
            fix="Use credentials of that account (AWS_PROFILE), or correct `account`.",
        )
    if who.arn.endswith(":root"):
        return surprises(
            "credentials",
            f"the caller is the root user of {who.account}",
            why="The root user cannot assume the roles that CDK deploys with, and should not be used for daily work.",
            fix="Deploy as an IAM role or user: aws sso login.",
        )
    return fine("credentials", f"{who.arn}, account {who.account}")


def region(configuration: Configuration, facts: Facts) -> Iterator[Finding]:
    """Is the Region enabled for the account?"""
    status = facts.region_status
    why = "Nothing can be made in a Region that is switched off."
    if isinstance(status, Unknown):
        yield unchecked("region", f"whether {configuration.region} is enabled", status, why=why)
    elif status == "not-opted-in":
        yield fails(
            "region",
            f"{configuration.region} is not enabled for this account",
            why=why,
            fix=f"aws account enable-region --region-name {configuration.region}",
        )
    elif status is not None:
        yield fine("region", f"{configuration.region} is enabled")


def bootstrap(configuration: Configuration, facts: Facts, *, config: str) -> Iterator[Finding]:
    """Was `cdk bootstrap` run for the account and Region?"""
    why = "CDK uploads templates to the bootstrap bucket and deploys with the bootstrap roles."
    fix = f"make bootstrap CONFIG={config}"
    version = facts.bootstrap_version
    if isinstance(version, Unknown):
        yield unchecked("bootstrap", "whether the account is bootstrapped for CDK", version, why=why)
        return
    if version is None:
        yield fails("bootstrap", "the account and Region are not bootstrapped for CDK", why=why, fix=fix)
        return
    if version < OLDEST_BOOTSTRAP:
        yield fails(
            "bootstrap",
            f"the CDK bootstrap is of version {version}, and the templates need {OLDEST_BOOTSTRAP} or newer",
            why=why,
            fix=fix,
        )
        return
    account = facts.identity.account if isinstance(facts.identity, Identity) else ""
    roles = {role: facts.roles.get(role) for role in bootstrap_roles(account, configuration.region).values()}
    missing = [role for role, there in roles.items() if there is False]
    unknown = [there for there in roles.values() if isinstance(there, Unknown)]
    if missing:
        yield fails("bootstrap", f"bootstrap roles are missing: {', '.join(missing)}", why=why, fix=fix)
    elif unknown:
        yield unchecked("bootstrap", "whether the bootstrap roles exist", unknown[0], why=why)
    else:
        yield fine("bootstrap", f"version {version}, with its roles")


def permissions(configuration: Configuration, facts: Facts) -> Iterator[Finding]:
    """May the caller deploy, and may CloudFormation make what the stacks hold?"""
    if not isinstance(facts.bootstrap_version, int):
        return
    if isinstance(facts.may_deploy, Unknown):
        yield unchecked(
            "permissions",
            "whether the caller may deploy",
            facts.may_deploy,
            why="A deployment assumes the bootstrap roles.",
        )
    elif facts.may_deploy is not None:
        if facts.may_deploy.denied:
            yield fails(
                "permissions",
                f"{facts.may_deploy.principal} may not assume the bootstrap roles",
                why="CDK uploads and deploys with them.",
                fix="Allow sts:AssumeRole on arn:aws:iam::*:role/cdk-hnb659fds-* to the caller.",
            )
        else:
            yield fine("permissions", "the caller may assume the bootstrap roles")
    if isinstance(facts.may_create, Unknown):
        yield unchecked(
            "permissions",
            "whether CloudFormation may make the resources",
            facts.may_create,
            why="A permission that is missing rolls a stack back.",
        )
    elif facts.may_create is not None:
        denied = facts.may_create.denied
        if denied:
            yield fails(
                "permissions",
                f"{facts.may_create.principal} may not: {', '.join(denied)}",
                why="CloudFormation makes the resources with this role; the stack that needs them rolls back.",
                fix="Run cdk bootstrap with --cloudformation-execution-policies that allow them, or ask who owns the "
                "organization's policies.",
            )
        else:
            yield fine("permissions", "CloudFormation's role may make what the stacks hold")
