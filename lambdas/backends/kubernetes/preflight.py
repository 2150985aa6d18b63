"""Check whether the Kubernetes cluster has everything that the run's pods need."""

from __future__ import annotations

from collections.abc import Iterator

from lambdas.backends.kubernetes.kind import JobKind
from lambdas.logic.preflight.admission import PAGE
from lambdas.logic.preflight.findings import Finding, Note, Problem
from trainflow.nodes.daemon_pods import DaemonPods
from trainflow.nodes.instances import DEVICE_PLUGINS, EFA_INTERFACE, HUGE_PAGES
from trainflow.nodes.node_room import allocatable, training_pod
from trainflow.protocol.pods import CLAIM, SERVICE_ACCOUNT
from trainflow.spec.run_spec import Compute, RunSpec
from trainflow.workflow.preflight import ClusterFacts, PluginNodes, Unknown, VolumeClaim, Zone

BOTTLEROCKET = "Bottlerocket"
"""Name in the operating system's own words: "Bottlerocket OS 1.53.0 (aws-k8s-1.36)"."""


def cluster_findings(
    kind: JobKind,
    spec: RunSpec,
    facts: ClusterFacts,
    *,
    zones: tuple[Zone, ...] | Unknown,
    may_have_plugins: bool = False,
) -> Iterator[Finding]:
    """Findings about the cluster that concern this run.

    Args:
        kind: Kind of the gang's job.
        spec: Spec of the run.
        facts: Facts about the cluster.
        zones: Zones of the gang's nodes.
        may_have_plugins: Whether nodes may have device plugins that no daemon set shows, as those of EKS Auto Mode.
    """
    compute = spec.compute
    yield from _kind(kind, facts)
    yield from kind.queue_findings(compute, facts.queue)
    yield from _priority_class(compute, facts)
    yield from _service_account(facts)
    yield from _claim(facts.claim, zones)
    yield from _plugins(compute, facts.plugins, may_have_them=may_have_plugins)
    yield from _bottlerocket(compute, facts.plugins)
    yield from _policies(compute, facts.policies_enforced)
    yield from _addresses(facts.ipv4)
    yield from _crowded(compute, facts.daemon_pods)
    if isinstance(facts.disks, Unknown):
        yield Note(f"workload.image: whether a node for small programs has room for it: {facts.disks.reason}.")


def can_run_pods(facts: ClusterFacts) -> bool:
    """Whether a pod of the run can start, as far as is known: it needs the service account and the file system."""
    bound = not isinstance(facts.claim, VolumeClaim) or facts.claim.phase == "Bound"
    return facts.service_account is not False and facts.claim is not None and bound


def _kind(kind: JobKind, facts: ClusterFacts) -> Iterator[Finding]:
    if isinstance(facts.kind_installed, Unknown):
        yield Note(f"compute.backend: whether the cluster knows '{kind.name}': {facts.kind_installed.reason}.")
    elif not facts.kind_installed:
        yield Problem(kind.description.not_installed)


def _priority_class(compute: Compute, facts: ClusterFacts) -> Iterator[Finding]:
    if isinstance(facts.priority_class, Unknown):
        yield Note(f"compute.priority_class: whether there is one: {facts.priority_class.reason}.")
    elif not facts.priority_class:
        yield Problem(
            f"compute.priority_class is '{compute.priority_class}', but the cluster has no such PriorityClass; "
            "name one that it has, or leave it out."
        )


def _service_account(facts: ClusterFacts) -> Iterator[Finding]:
    if isinstance(facts.service_account, Unknown):
        yield Note(f"Whether there is a service account '{SERVICE_ACCOUNT}': {facts.service_account.reason}.")
    elif not facts.service_account:
        yield Problem(
            f"The cluster has no service account '{SERVICE_ACCOUNT}' in the runs' namespace, which every pod of a run "
            "has; deploy the cluster stack."
        )


def _claim(claim: VolumeClaim | Unknown | None, zones: tuple[Zone, ...] | Unknown) -> Iterator[Finding]:
    if isinstance(claim, Unknown):
        yield Note(f"Whether the claim '{CLAIM}' is bound: {claim.reason}.")
    elif claim is None:
        yield Problem(f"The cluster has no claim '{CLAIM}', which is the runs' file system; deploy the cluster stack.")
    elif claim.phase != "Bound":
        yield Problem(
            f"The claim '{CLAIM}' is {claim.phase} and not bound to a volume; `kubectl describe pvc {CLAIM}` says why."
        )
    elif claim.zones and isinstance(zones, Unknown):
        yield Note(f"Whether the volume of '{CLAIM}' can be mounted in the nodes' zone: {zones.reason}.")
    elif claim.zones and not isinstance(zones, Unknown) and not any({z.id, z.name} & claim.zones for z in zones):
        yield Problem(
            f"The volume of the claim '{CLAIM}' can be mounted in {_listed(claim.zones)} only, but the gang's nodes "
            f"are in {_listed(f'{zone.name} ({zone.id})' for zone in zones)}; give both the same zone."
        )


def _policies(compute: Compute, enforced: bool | Unknown) -> Iterator[Finding]:
    """Findings about the policy that keeps pods of other jobs from a gang, whose traffic is not authenticated."""
    if compute.num_nodes == 1 or enforced is True:
        return
    consequence = "Where they are not enforced, pods of other runs reach this run's pods (docs/security.md)."
    if enforced is False:
        yield Note(f"The cluster does not enforce network policies: its VPC CNI has them turned off. {consequence}")
    else:
        yield Note(f"Whether the cluster enforces network policies: {enforced.reason}. {consequence}")


def _addresses(ipv4: bool | Unknown) -> Iterator[Finding]:
    """Findings about the addresses of pods: the policies of the runs' namespace let them reach IPv4 addresses."""
    if isinstance(ipv4, Unknown):
        yield Note(f"Whether the cluster's pods have IPv4 addresses: {ipv4.reason}.")
    elif not ipv4:
        yield Problem(
            "The cluster gives its pods IPv6 addresses only, but those of runs may reach DNS, the credentials of their "
            f"role and S3 only by IPv4 ({PAGE}); use a cluster whose IP family is IPv4."
        )


def _crowded(compute: Compute, daemon_pods: tuple[DaemonPods, ...] | Unknown) -> Iterator[Finding]:
    """A problem if the daemon sets of a node leave less of it than the training's pod requests."""
    if isinstance(daemon_pods, Unknown):
        yield Note(f"Whether daemon sets leave room for the training's pods: {daemon_pods.reason}.")
        return
    instance = compute.instance
    there = [each for each in daemon_pods if each.certainly_on(instance)]
    node, pod = allocatable(instance), training_pod(instance)
    for resource, requested, left in (
        ("CPU", sum(each.cpu for each in there) * 1000, node.millicpu - pod.millicpu),
        ("memory", sum(each.memory for each in there) / 2**20, node.memory_mib - pod.memory_mib),
    ):
        if requested > left:
            largest = sorted(there, key=lambda each: each.cpu if resource == "CPU" else each.memory, reverse=True)
            unit = "m" if resource == "CPU" else " MiB"
            yield Problem(
                f"The daemon sets on each node of {instance.name} request {requested:.0f}{unit} of {resource}, and the "
                f"training's pod leaves {left}{unit} of it; lower the requests of "
                f"{', '.join(each.name for each in largest[:3])}, or keep them off these nodes ({PAGE})."
            )


def _bottlerocket(compute: Compute, plugins: PluginNodes | Unknown) -> Iterator[Finding]:
    """Findings about nodes whose containers may lock little memory, which EFA needs."""
    uses_efa = EFA_INTERFACE in compute.instance.plugin_devices(compute.num_nodes)
    if uses_efa and isinstance(plugins, PluginNodes) and any(BOTTLEROCKET in each for each in plugins.os_images):
        yield Note(
            f"The nodes of {compute.instance_type} run Bottlerocket, where a container may lock little memory and EFA "
            "needs much; raise settings.oci-defaults.resource-limits.max-locked-memory in their user data, or the run "
            f"ends as soon as it starts ({PAGE})."
        )


def _plugins(compute: Compute, plugins: PluginNodes | Unknown, *, may_have_them: bool) -> Iterator[Finding]:
    """Findings about devices: from settled nodes if there are any, otherwise from the installed daemon sets."""
    instance, wanted = compute.instance, compute.instance.plugin_devices(compute.num_nodes)
    if isinstance(plugins, Unknown):
        if wanted:
            yield Note(f"Whether nodes will advertise {_listed(wanted)}: {plugins.reason}.")
        return
    if plugins.settled:
        for device in wanted:
            if not any(device in advertised for advertised in plugins.settled):
                yield Problem(
                    f"compute.instance_type is {instance.name}, but no ready node of it advertises "
                    f"{wanted[device]} {device}; check the daemon set {DEVICE_PLUGINS[device]} on these nodes."
                )
        requested = instance.huge_pages_of_pod_mib(compute.num_nodes)
        if plugins.huge_pages_mib < requested:
            yield Problem(
                f"compute.instance_type is {instance.name}, but its ready nodes set aside {plugins.huge_pages_mib} MiB "
                f"of {HUGE_PAGES}, and a pod that uses EFA requests {requested} MiB; give the "
                "node group the EKS accelerated AMI, which sets them aside, or set vm.nr_hugepages on its nodes."
            )
        return
    for plugin in dict.fromkeys(DEVICE_PLUGINS[device] for device in wanted):
        devices = _listed(device for device in wanted if DEVICE_PLUGINS[device] == plugin)
        if isinstance(plugins.daemon_sets, Unknown):
            yield Note(f"Whether nodes will advertise {devices}: there is none yet, and {plugins.daemon_sets.reason}.")
        elif not any(plugin in name for name in plugins.daemon_sets) and may_have_them:
            yield Note(
                f"Whether nodes will advertise {devices}: there is none yet, and the cluster has no daemon set "
                f"{plugin}. Nodes of EKS Auto Mode need none."
            )
        elif not any(plugin in name for name in plugins.daemon_sets):
            yield Problem(
                f"compute.instance_type is {instance.name}, but the cluster has no daemon set {plugin}, without which "
                f"its nodes do not advertise {devices}; install it."
            )


def _listed(names: object) -> str:
    return ", ".join(sorted(names))  # type: ignore[call-overload]
