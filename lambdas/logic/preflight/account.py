"""Check whether the AWS account can provide the gang's nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lambdas.logic.preflight.findings import Finding, Note, Problem
from trainflow.errors import GangTooLarge
from trainflow.nodes.image_disk import bytes_for
from trainflow.nodes.offerings import OFFERINGS
from trainflow.nodes.training_nodes import Nodegroup
from trainflow.spec.gang_fit import require_fit
from trainflow.spec.run_spec import Compute, RunSpec
from trainflow.spec.workload import Workload
from trainflow.workflow.preflight import AccountFacts, Quota, Unknown, Zone

GIB = 2**30


def account_findings(
    spec: RunSpec, nodegroup: Nodegroup, facts: AccountFacts, *, named: str = "compute.instance_type is"
) -> Iterator[Finding]:
    """Findings about the gang's nodes: size of the node group, zones, quota.

    Args:
        spec: Spec of the run.
        nodegroup: Node group of its instance type.
        facts: Facts about the account.
        named: Field that names the instance type, with a verb.
    """
    try:
        require_fit(spec, nodegroup=nodegroup.name, maximum=nodegroup.maximum)
    except GangTooLarge as error:
        yield Problem(str(error))
    yield from _offering(spec.compute, facts, named)
    yield from _quota(spec.compute, nodegroup, facts.quota)


def tools_image_findings(image: str, size: int | Unknown | None) -> Iterator[Finding]:
    """Findings about the image of staging and publishing.

    Args:
        image: Name of the image.
        size: Its size in ECR; None if ECR lacks it.
    """
    if isinstance(size, Unknown):
        yield Note(f"Whether the image of staging and publishing, '{image}', is in ECR: {size.reason}.")
    elif size is None:
        yield Problem(
            f"The image of staging and publishing, '{image}', is not in ECR; build it with `make images CONFIG=…`, or "
            "push it there if it is the configuration's images.tools."
        )


def image_room_findings(
    workload: Workload, size: int | Unknown | None, disks: Sequence[int] | Unknown
) -> Iterator[Finding]:
    """A problem if no node for small programs, where the probe runs, can hold the program's image.

    Args:
        workload: Workload of the spec.
        size: Compressed size of its image.
        disks: Bytes that these nodes offer to images and pods.
    """
    if isinstance(size, Unknown) or isinstance(disks, Unknown) or not size or not disks:
        return
    needed = bytes_for([size])
    if max(disks) < needed:
        yield Problem(
            f"workload.image is '{workload.image}', which takes about {needed / GIB:.0f} GiB with the system while a "
            f"node unpacks it, and the nodes for small programs have {max(disks) / GIB:.0f} GiB; give these nodes "
            "larger disks, or make the image smaller."
        )


def offered_by_snapshot(instance_type: str, zones: tuple[Zone, ...]) -> frozenset[str]:
    """The zones that offer a type according to the catalogue, for use when EC2 does not answer."""
    return frozenset(zone.id for zone in zones if OFFERINGS[instance_type].is_in(zone.id))


def _offering(compute: Compute, facts: AccountFacts, named: str) -> Iterator[Finding]:
    question = f"{named.split()[0]}: whether the node group's zones offer {compute.instance_type}"
    if isinstance(facts.zones, Unknown):
        yield Note(f"{question}: {facts.zones.reason}.")
        return
    offered = facts.offered_in
    if isinstance(offered, Unknown):
        yield Note(f"{question}: {offered.reason}; a snapshot of November 2026 was used instead.")
        offered = offered_by_snapshot(compute.instance_type, facts.zones)
    if not offered:
        names = ", ".join(f"{zone.name} ({zone.id})" for zone in facts.zones)
        yield Problem(
            f"{named} {compute.instance_type}, which is not offered in {names}, where its node group "
            "is; choose another type, or deploy the node group in a zone that offers it."
        )


# Decision 104: placeholders hold nodes until the gang starts, and nothing holds any beside it.
def spares_findings(compute: Compute) -> Iterator[Finding]:
    """A problem if a run asks for spare nodes on a cluster that makes its nodes by itself."""
    if compute.spares:
        yield Problem(
            f"compute.spares is {compute.spares}, but this cluster makes nodes for pods, and ends those without any; "
            "remove it."
        )


def _quota(compute: Compute, nodegroup: Nodegroup, quota: Quota | Unknown | None) -> Iterator[Finding]:
    """A problem if the quota is below the gang's size; a note if others use it, who may release nodes in time."""
    if quota is None:
        return
    if isinstance(quota, Unknown):
        yield Note(f"compute.num_nodes: whether the vCPU quota is enough: {quota.reason}.")
        return
    vcpus, nodes = compute.instance.vcpus, compute.held_nodes
    fields = "compute.num_nodes and compute.spares" if compute.spares else "compute.num_nodes"
    gang = f"{fields}: {nodes} x {compute.instance_type} take {nodes * vcpus} vCPUs"
    allowed = f"the quota '{quota.name}' ({quota.code}) allows {quota.limit:g}"
    if nodes * vcpus > quota.limit:
        yield Problem(f"{gang}, but {allowed}; ask for fewer nodes, or ask AWS for more (Service Quotas, EC2).")
    elif isinstance(quota.in_use, Unknown):
        yield Note(f"{gang} and {allowed}; how many of them are in use: {quota.in_use.reason}.")
    elif quota.in_use + max(0, nodes - nodegroup.desired) * vcpus > quota.limit:
        yield Note(
            f"{gang} and {allowed}, of which {quota.in_use:g} were in use some minutes ago; the run waits up to "
            "limits.capacity_timeout_minutes for them."
        )
