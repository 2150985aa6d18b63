"""External things that the configuration and the stacks name: images, charts, resources by id."""

from __future__ import annotations

from collections.abc import Iterator

from trainflow.cli.account import needs
from trainflow.cli.account.facts import Facts, Unknown
from trainflow.cli.account.findings import Finding, fails, fine, unchecked
from trainflow.configuration.deployment import Configuration


def images_and_charts(facts: Facts) -> Iterator[Finding]:
    """Does a registry have each?"""
    for name, found in facts.artifacts.items():
        why = "Charts are installed while the cluster is made; images are pulled by builds and pods."
        if isinstance(found, Unknown):
            yield unchecked("images and charts", f"whether the registry has {name}", found, why=why)
        elif found:
            yield fine("images and charts", name)
        else:
            yield fails(
                "images and charts",
                f"the registry has no such thing: {name}",
                why=why,
                fix="Name a version that exists: in the configuration, or in stacks/cluster/ for what Trainflow "
                "itself brings.",
            )


def named_resources(configuration: Configuration, facts: Facts) -> Iterator[Finding]:
    """Is there each resource that the configuration names by id?"""
    why = "The configuration counts on it."
    for field, name in needs.named_resources(configuration).items():
        found = facts.objects.get(name)
        if isinstance(found, Unknown):
            yield unchecked("named resources", f"whether {name} ({field}) exists", found, why=why)
        elif found:
            yield fine("named resources", f"{field}: {name}")
        elif found is False:
            what = f"{field}: there is no {name} in {configuration.region}"
            yield fails("named resources", what, why=why, fix="Correct the id.")
