"""Judges what an account answered. Pure: the configuration and facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainflow.cli.account.checks import (
    artifacts,
    caller,
    cluster,
    leftovers,
    node_image,
    people,
    places,
    quotas,
    roles,
)
from trainflow.cli.account.facts import Facts, NoCredentials
from trainflow.cli.account.findings import Finding
from trainflow.configuration.deployment import Configuration


def findings(configuration: Configuration, facts: Facts, *, path: Path) -> Iterator[Finding]:
    """Findings of every check that applies, in the order of a deployment's steps.

    Args:
        configuration: The configuration to deploy.
        facts: The answers of the account and the registries.
        path: Path of the configuration, for the commands in fixes.
    """
    config = path.stem
    yield caller.credentials(configuration, facts)
    if not isinstance(facts.identity, NoCredentials):
        yield from caller.region(configuration, facts)
        yield from caller.bootstrap(configuration, facts, config=config)
        yield from caller.permissions(configuration, facts)
        yield from leftovers.stacks(configuration, facts, config=config)
        yield from leftovers.resources(configuration, facts)
        yield from places.zones(configuration, facts)
        yield from places.offerings(configuration, facts)
        yield from places.reservations(configuration, facts)
        yield from quotas.vcpus(configuration, facts)
        yield from quotas.counted(configuration, facts)
        yield from quotas.concurrency(configuration, facts)
        yield from cluster.kubernetes_version(configuration, facts)
        yield from cluster.add_ons(configuration, facts)
        yield from cluster.the_cluster(configuration, facts)
        yield from node_image.node_image(configuration, facts)
        yield from roles.service_linked(configuration, facts)
        yield from artifacts.named_resources(configuration, facts)
    yield from people.administrators(configuration, facts)
    yield from people.way_in(configuration, facts)
    yield from people.told(configuration)
    yield from artifacts.images_and_charts(facts)
