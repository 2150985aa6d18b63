"""Asks everything that the checks need to know, all at once: the answers take seconds, and none waits for another."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from trainflow.cli.account.address import own_address
from trainflow.cli.account.aws import Account
from trainflow.cli.account.facts import Facts, Identity, NoCredentials, Unknown
from trainflow.cli.account.needs import (
    BOOTSTRAP_PARAMETER,
    CODEBUILD_CONCURRENCY,
    LAMBDA_CONCURRENCY,
    PRIVATE_ECR,
    SYSTEM_INSTANCE_TYPES,
    Artifact,
    artifacts,
    bootstrap_roles,
    counted_quotas,
    creating_actions,
    log_groups,
    named_resources,
    node_types,
    service_linked_roles,
    stack_names,
    trainium_groups,
    vcpus_wanted,
)
from trainflow.cli.account.registries import Registries
from trainflow.configuration.deployment import Configuration
from trainflow.nodes.instances import nodegroup_name
from trainflow.nodes.offerings import VCPU_QUOTAS

AT_ONCE = 16
"""Questions under way. AWS's clients hold ten connections each, and the questions go to a dozen services."""

Answer = TypeVar("Answer")


def gather(configuration: Configuration, account: Account, registries: Registries, *, repository: Path) -> Facts:
    """Every fact that the checks of a configuration need.

    Args:
        configuration: What is to be deployed.
        account: Where to.
        registries: Where images and charts come from.
        repository: What the paths of the schedules' specs are relative to.

    Raises:
        ConfigurationError: If the spec of a schedule cannot be run.
    """
    wanted = list(artifacts(configuration, repository=repository))
    with ThreadPoolExecutor(AT_ONCE) as threads:
        asking = _Questions(threads)
        public = {one.name: asking.ask(registries.has, one) for one in wanted if not _is_private(one)}
        address = asking.one(own_address) if _has_way_in(configuration) else lambda: None
        identity = account.identity()
        if isinstance(identity, NoCredentials):
            found = {name: future.result() for name, future in public.items()}
            return Facts(now=datetime.now(UTC), identity=identity, address=address(), artifacts=found)
        answers = _ask_account(configuration, account, identity, asking)
        private = {one.name: asking.ask(account.has_image, one.reference) for one in wanted if _is_private(one)}
        both = public | private
        return Facts(
            now=datetime.now(UTC),
            identity=identity,
            address=address(),
            artifacts={one.name: both[one.name].result() for one in wanted},
            **{name: answer() for name, answer in answers.items()},
        )


class _Questions:
    """Starts questions."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads

    def ask(self, question: Callable[..., Answer], *arguments: Any) -> Future[Answer]:
        """One answer."""
        return self._threads.submit(question, *arguments)

    def one(self, question: Callable[..., Answer], *arguments: Any) -> Callable[[], Answer]:
        """One answer, to be waited for by a call."""
        return self.ask(question, *arguments).result

    def each(
        self, question: Callable[..., Answer], names: dict[str, tuple[Any, ...]]
    ) -> Callable[[], dict[str, Answer]]:
        """An answer for each name, from its arguments."""
        asked = {name: self.ask(question, *arguments) for name, arguments in names.items()}
        return lambda: {name: future.result() for name, future in asked.items()}


def _ask_account(
    configuration: Configuration, account: Account, who: Identity, asking: _Questions
) -> dict[str, Callable[[], Any]]:
    """The questions to AWS, by the field of `Facts` that each fills."""
    own = configuration.existing_cluster is None
    region, version = configuration.region, configuration.cluster.kubernetes_version
    bootstrap = bootstrap_roles(who.account, region)
    arns = {purpose: f"arn:aws:iam::{who.account}:role/{name}" for purpose, name in bootstrap.items()}
    groups = {nodegroup_name(group.instance_type) for group in trainium_groups(configuration)}
    release = configuration.capacity.neuron_ami_release
    reserved = {
        group.reservation_id: (group.reservation_id,)
        for group in (*configuration.capacity.nodegroups, *configuration.queues)
        if group.reservation_id is not None
    }
    questions: dict[str, Callable[[], Any]] = {
        "region_status": asking.one(account.region_status),
        "quotas": _quotas(configuration, account, asking),
        "cluster": asking.one(account.cluster, configuration.cluster_name),
        "bootstrap_version": asking.one(account.bootstrap_version, BOOTSTRAP_PARAMETER),
        "roles": _roles(configuration, account, who, asking, list(bootstrap.values())),
        "may_deploy": asking.one(
            account.simulate, who.arn, ["sts:AssumeRole"], [arns["deploy"], arns["file-publishing"]]
        ),
        "may_create": asking.one(account.simulate, arns["cfn-exec"], creating_actions(configuration)),
        "stacks": asking.one(account.stacks, stack_names(configuration).values()),
        "log_groups": asking.one(account.log_groups, log_groups(configuration)),
        "tagged": asking.one(account.tagged, configuration.name),
        "reservations": asking.each(account.reservation, reserved),
        "objects": asking.each(
            account.has_resource, {name: (name,) for name in named_resources(configuration).values()}
        ),
    }
    if own:
        questions |= {
            "zones": asking.one(account.zones),
            "offered": asking.one(account.offered, {*node_types(configuration), *SYSTEM_INSTANCE_TYPES}),
            "cluster_versions": asking.one(account.cluster_versions),
            "add_ons": asking.one(account.add_ons, version),
        }
    if groups:
        questions["newest_release"] = asking.one(account.newest_release, version)
        questions["nodegroups"] = asking.one(account.nodegroups, configuration.cluster_name, sorted(groups))
    if groups and release is not None:
        questions["node_images"] = asking.one(account.node_images, release)
    return questions


def _quotas(configuration: Configuration, account: Account, asking: _Questions) -> Callable[[], Any]:
    counts = {
        "vpc": account.num_vpcs,
        "ec2": account.num_addresses,
        "eks": account.num_clusters,
        "fsx": account.lustre_gib,
    }
    asked: dict[str, tuple[Any, ...]] = {
        need.code: (need.service, need.code, counts[need.service]) for need in counted_quotas(configuration)
    }
    vcpus = [VCPU_QUOTAS[field].code for field in vcpus_wanted(configuration)]
    asked |= {code: ("ec2", code) for code in vcpus}
    asked |= {code: (service, code) for service, code, _ in (LAMBDA_CONCURRENCY, CODEBUILD_CONCURRENCY)}
    return asking.each(account.quota, asked)


def _roles(
    configuration: Configuration, account: Account, who: Identity, asking: _Questions, bootstrap: list[str]
) -> Callable[[], Any]:
    def ask(name: str) -> bool | Unknown:
        if name.startswith("arn:") and name.split(":")[4] != who.account:
            return Unknown("it is of another account")
        return account.has_role(name)

    administrators = configuration.cluster.administrators if configuration.existing_cluster is None else ()
    names = (*bootstrap, *service_linked_roles(configuration), *administrators)
    return asking.each(ask, {name: (name,) for name in names})


def _has_way_in(configuration: Configuration) -> bool:
    return configuration.existing_cluster is None and bool(configuration.cluster.public_endpoint_cidrs)


def _is_private(artifact: Artifact) -> bool:
    return PRIVATE_ECR.fullmatch(artifact.reference) is not None
