"""The machine image of the Trainium nodes: its driver has to match the runtime in the training image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainflow.cli.account.facts import Facts, NodeImage, Unknown
from trainflow.cli.account.findings import Finding, fails, fine, surprises, unchecked
from trainflow.cli.account.needs import trainium_groups
from trainflow.configuration.deployment import Configuration


def node_image(configuration: Configuration, facts: Facts) -> Iterator[Finding]:
    """Is the pinned release there; is one pinned in production; does the deployment change the nodes' image?"""
    if not trainium_groups(configuration):
        return
    pinned, newest = configuration.capacity.neuron_ami_release, facts.newest_release
    version = configuration.cluster.kubernetes_version
    if pinned is not None:
        yield _pinned(pinned, facts)
        yield from _rolled(configuration, facts, pinned)
    elif isinstance(newest, Unknown):
        why = "EKS takes it for the Trainium nodes."
        yield unchecked("node image", f"the newest Neuron release of Kubernetes {version}", newest, why=why)
    elif newest is None:
        yield fails(
            "node image",
            f"EKS publishes no Neuron image for Kubernetes {version}",
            why="The Trainium node groups cannot be made.",
            fix="Choose another cluster.kubernetes_version.",
        )
    elif configuration.production:
        yield fails(
            "node image",
            "capacity.neuron_ami_release is not set",
            why="EKS would take the newest whenever it replaces nodes, and driver and runtime have to match.",
            fix=f"Write capacity.neuron_ami_release: {newest} (the newest).",
        )
    else:
        yield fine("node image", f"the newest release, {newest}; pin it with capacity.neuron_ami_release")


def _pinned(release: str, facts: Facts) -> Finding:
    images, newest = facts.node_images, facts.newest_release
    why = "EKS refuses to make a node group of a release that does not exist."
    offer = f"Write capacity.neuron_ami_release: {newest} (the newest)." if isinstance(newest, str) else ""
    if release == newest:
        return fine("node image", f"{release}, the newest")
    if isinstance(images, Unknown):
        return unchecked("node image", f"whether the release {release} exists", images, why=why)
    patches = [patch for image in images or () if (patch := _patch(image)) is not None]
    wanted = release.partition("-")[0]
    if wanted in patches:
        newer = f"; the newest is {newest}" if isinstance(newest, str) else ""
        return fine("node image", f"{release} exists{newer}")
    if images and not patches:
        unreadable = Unknown("the image's description names no Kubernetes version")
        return unchecked("node image", f"whether the release {release} exists", unreadable, why=why)
    date = release.partition("-")[2]
    other = f": that of {date} is {patches[0]}-{date}" if patches else ""
    return fails(
        "node image",
        f"capacity.neuron_ami_release: EKS has no Neuron release {release}{other}",
        why=why,
        fix=offer or "Remove it for the newest.",
    )


def _rolled(configuration: Configuration, facts: Facts, release: str) -> Iterator[Finding]:
    """Node groups that are there with another release."""
    if not isinstance(facts.nodegroups, Mapping):
        why = "A changed release replaces the nodes of running jobs."
        yield unchecked("node image", "whether nodes would be replaced", facts.nodegroups, why=why)
        return
    for name, group in facts.nodegroups.items():
        if group.release == release:
            continue
        if _order(group.release) > _order(release):
            yield fails(
                "node image",
                f"{name} is at {group.release}, newer than {release}",
                why="EKS does not take a node group back to an earlier release.",
                fix=f"Write capacity.neuron_ami_release: {group.release}, or delete the node group first.",
            )
        elif group.desired:
            yield surprises(
                "node image",
                f"{name} goes from {group.release} to {release} with {group.desired} nodes up",
                why="EKS replaces them, and what trains on them dies and starts from its last checkpoint.",
                fix="Wait until no run claims them: trainflow rest.",
            )


def _patch(image: NodeImage) -> str | None:
    """`1.36.2` of a description such as "… (k8s: 1.36.2, containerd: 2.*)"."""
    _, found, rest = image.description.partition("k8s: ")
    patch = rest.partition(",")[0].strip().rstrip(")")
    return patch if found and patch else None


def _order(release: str) -> tuple[int, ...]:
    """Sort key of a release; other texts come first."""
    parts = release.replace("-", ".").split(".")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else ()
