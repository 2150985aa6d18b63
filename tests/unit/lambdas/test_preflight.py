"""Preflight: what is a problem, what is a note, and who is asked."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.config import Config
from hypothesis import given
from hypothesis import strategies as st

from lambdas.backends.job import KIND as INDEXED_JOB
from lambdas.backends.kubernetes.preflight import can_run_pods, cluster_findings
from lambdas.backends.volcano import KIND as VOLCANO
from lambdas.gateways import account, objects
from lambdas.handlers import preflight
from lambdas.handlers.examining import dataset_facts
from lambdas.logic.jobs import job_of
from lambdas.logic.preflight.account import account_findings
from lambdas.logic.preflight.cache import compilation_findings
from lambdas.logic.preflight.dataset import dataset_findings
from lambdas.logic.preflight.findings import (
    MAX_NOTES_BYTES,
    MAX_SENTENCE,
    Finding,
    Note,
    Problem,
    notes,
    require_no_problem,
    shortened,
)
from lambdas.logic.preflight.probe import (
    image_out_of_reach,
    probe_failure,
    probe_findings,
    probe_timeout,
    probed,
    secret_out_of_reach,
)
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import TOOLS_IMAGE, run_of, run_on, spec_with
from tests.unit.lambdas.conftest import CLUSTER as CLUSTER_OF_EKS
from tests.unit.lambdas.conftest import CONTEXT, DATA_BUCKET, Aws
from tests.wording import wording
from trainflow.deployment.kubernetes_names import JOB_LABEL
from trainflow.errors import PreflightFailed, ScriptFailed, WorkerFailed
from trainflow.nodes.daemon_pods import DaemonPods
from trainflow.nodes.instances import EFA_INTERFACE, INSTANCE_TYPE_LABEL, INSTANCE_TYPES, NEURON_DEVICE
from trainflow.nodes.offerings import VCPU_QUOTAS, node_quota
from trainflow.nodes.training_nodes import Nodegroup
from trainflow.observed.daemon_pods import read_daemon_pods
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.compile_cache import new_lease
from trainflow.workflow.preflight import (
    AccountFacts,
    ClusterFacts,
    DatasetFacts,
    PluginNodes,
    Probed,
    Quota,
    Unknown,
    VolumeClaim,
    Zone,
)
from trainflow.workflow.run import Run, Stage

GIB = 2**30
DENIED = Unknown("ec2:DescribeSubnets answered UnauthorizedOperation")
ZONES = (Zone("usw2-az4", "us-west-2d"),)
RUN = run_of(spec_with(compute__backend="volcano", compute__queue="research", compute__priority_class="urgent"))
SPEC = RUN.spec

PLUGINS = frozenset({"neuron-device-plugin", "aws-efa-k8s-device-plugin"})
CLUSTER = ClusterFacts(
    service_account=True,
    claim=VolumeClaim(phase="Bound"),
    plugins=PluginNodes(daemon_sets=PLUGINS),
)
NODEGROUP = Nodegroup(name="trainflow-trn1-32xlarge", desired=0, minimum=0, maximum=16)
QUOTA = Quota(name="Running On-Demand Trn instances", code="L-2C3B7624", limit=512, in_use=0)
ACCOUNT = AccountFacts(zones=ZONES, offered_in=frozenset({"usw2-az4"}), quota=QUOTA)
PROBED = Probed(machine="x86_64", free_bytes=900 * GIB)


def problems(found: Iterable[Finding]) -> list[str]:
    return [each.sentence for each in found if isinstance(each, Problem)]


def noted(found: Iterable[Finding]) -> list[str]:
    return [each.sentence for each in found if isinstance(each, Note)]


def in_cluster(zones: tuple[Zone, ...] | Unknown = ZONES, **facts: Any) -> list[Finding]:
    return list(cluster_findings(VOLCANO, SPEC, dataclasses.replace(CLUSTER, **facts), zones=zones))


def in_account(nodegroup: Nodegroup = NODEGROUP, **facts: Any) -> list[Finding]:
    return list(account_findings(SPEC, nodegroup, dataclasses.replace(ACCOUNT, **facts)))


def in_pod(run: Run = RUN, *, data_bytes: int | Unknown = 0, etag: str | None = None, **seen: Any) -> list[Finding]:
    data = DatasetFacts(num_bytes=data_bytes, etag=etag)
    return list(probe_findings(run, dataclasses.replace(PROBED, **seen), data))


def test_what_the_probe_finds_of_the_program_is_told_by_the_field_that_can_mend_it() -> None:
    found = problems(in_pod(program="no module\n  named x", arguments="unknown: --lr", continues="no checkpoint in a"))
    assert found == [
        "workload.module: no module named x",
        "workload.arguments: unknown: --lr",
        "resume_from: no checkpoint in a",
    ]


def test_a_deployment_as_the_stacks_make_it_has_nothing_in_its_way() -> None:
    assert [*in_cluster(), *in_account(), *in_pod()] == []


# The cluster


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        (
            {"kind_installed": False},
            wording(
                "preflight.what_the_cluster_lacks_is_a_problem_in_one_sentence.1",
                "compute.backend",
                "'volcano'",
                "jobs.batch.volcano.sh",
            ),
        ),
        (
            {"queue": None},
            wording(
                "preflight.what_the_cluster_lacks_is_a_problem_in_one_sentence.2",
                "compute.queue",
                "'research'",
                "cluster.volcano_queues",
            ),
        ),
        (
            {"queue": "Closed"},
            wording("preflight.what_the_cluster_lacks_is_a_problem_in_one_sentence.3", "compute.queue", "'research'"),
        ),
        (
            {"priority_class": False},
            wording(
                "preflight.what_the_cluster_lacks_is_a_problem_in_one_sentence.4",
                "compute.priority_class",
                "'urgent'",
                "PriorityClass",
            ),
        ),
        (
            {"service_account": False},
            wording("preflight.what_the_cluster_lacks_is_a_problem_in_one_sentence.5", "'training'"),
        ),
        (
            {"claim": None},
            wording("preflight.what_the_cluster_lacks_is_a_problem_in_one_sentence.6", "'fsx-claim'"),
        ),
        (
            {"claim": VolumeClaim(phase="Pending")},
            wording(
                "preflight.what_the_cluster_lacks_is_a_problem_in_one_sentence.7",
                "'fsx-claim'",
                "`kubectl describe pvc fsx-claim`",
            ),
        ),
        (
            {"claim": VolumeClaim(phase="Bound", zones=frozenset({"us-west-2b", "us-west-2a"}))},
            wording("preflight.what_the_cluster_lacks_is_a_problem_in_one_sentence.8", "'fsx-claim'"),
        ),
        (
            {"plugins": PluginNodes(daemon_sets=frozenset({"neuron-device-plugin"}))},
            wording(
                "preflight.what_the_cluster_lacks_is_a_problem_in_one_sentence.9",
                "compute.instance_type",
                "trn1.32xlarge",
                "vpc.amazonaws.com",
            ),
        ),
        (
            {"plugins": PluginNodes(settled=(frozenset({NEURON_DEVICE}),), huge_pages_mib=10256)},
            wording(
                "preflight.what_the_cluster_lacks_is_a_problem_in_one_sentence.10",
                "compute.instance_type",
                "trn1.32xlarge",
                "vpc.amazonaws.com",
            ),
        ),
    ],
)
def test_what_the_cluster_lacks_is_a_problem_in_one_sentence(facts: dict[str, Any], sentence: str) -> None:
    assert in_cluster(**facts) == [Problem(sentence)]


UNREAD = {
    "disks": "workload.image: whether a node for small programs has room for it: forbidden.",
    "kind_installed": "compute.backend: whether the cluster knows 'volcano': forbidden.",
    "queue": "compute.queue: whether there is a queue 'research': forbidden.",
    "priority_class": "compute.priority_class: whether there is one: forbidden.",
    "service_account": "Whether there is a service account 'training': forbidden.",
    "claim": "Whether the claim 'fsx-claim' is bound: forbidden.",
    "plugins": "Whether nodes will advertise aws.amazon.com/neuron, vpc.amazonaws.com/efa: forbidden.",
    "daemon_pods": "Whether daemon sets leave room for the training's pods: forbidden.",
    "ipv4": "Whether the cluster's pods have IPv4 addresses: forbidden.",
    "policies_enforced": "Whether the cluster enforces network policies: forbidden. Where they are not enforced, pods "
    "of other runs reach this run's pods (docs/security.md).",
}


@pytest.mark.parametrize("fact", [field.name for field in dataclasses.fields(ClusterFacts)])
def test_what_may_not_be_read_is_a_note_and_never_a_problem(fact: str) -> None:
    assert in_cluster(**{fact: Unknown("forbidden")}) == [Note(UNREAD[fact])]


def test_a_cluster_whose_pods_have_ipv6_addresses_only_is_refused_in_one_sentence() -> None:
    [problem] = in_cluster(ipv4=False)
    assert isinstance(problem, Problem)
    assert "use a cluster whose IP family is IPv4" in problem.sentence


def agent(cpu: str, *, memory: str = "64Mi", **spec: Any) -> DaemonPods:
    container = {"name": "agent", "resources": {"requests": {"cpu": cpu}, "limits": {"memory": memory}}}
    pod = {"tolerations": [{"operator": "Exists"}], "containers": [container], **spec}
    return read_daemon_pods({"metadata": {"name": "security-agent"}, "spec": {"template": {"spec": pod}}})


def required(key: str, operator: str, *values: str) -> dict[str, Any]:
    expression = {"key": key, "operator": operator, "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        (agent("13"), "request 13000m of CPU"),
        (agent("100m", memory="64Gi"), "request 65536 MiB of memory"),
        (agent("13", tolerations=[{"key": "aws.amazon.com/neuron", "operator": "Exists"}]), "security-agent"),
        (agent("13", affinity=required("eks.amazonaws.com/compute-type", "NotIn", "fargate")), "security-agent"),
        (agent("13", affinity=required(INSTANCE_TYPE_LABEL, "In", "trn1.32xlarge")), "security-agent"),
    ],
)
def test_daemon_sets_that_leave_too_little_of_a_node_are_a_problem(pods: DaemonPods, words: str) -> None:
    """The training's pods would wait for room that no node has, while the nodes are billed."""
    [problem] = in_cluster(daemon_pods=(pods,))
    assert isinstance(problem, Problem)
    assert words in problem.sentence


@pytest.mark.parametrize(
    "pods",
    [
        agent("500m"),
        agent("13", tolerations=[]),
        agent("13", tolerations=[{"operator": "Exists", "effect": "NoExecute"}]),
        agent("13", tolerations=[{"key": "aws.amazon.com/neuron", "value": "false"}]),
        agent("13", nodeSelector={"kubernetes.io/os": "windows"}),
        agent("13", nodeSelector={"team": "vision"}),
        agent("13", affinity=required(INSTANCE_TYPE_LABEL, "In", "m5.large")),
        agent("13", affinity=required("team", "Exists")),
    ],
)
def test_daemon_sets_that_may_be_elsewhere_or_are_small_are_no_finding(pods: DaemonPods) -> None:
    assert in_cluster(daemon_pods=(pods,)) == []


def test_nodes_of_bottlerocket_leave_a_note_where_a_gang_uses_efa() -> None:
    devices = frozenset({NEURON_DEVICE, EFA_INTERFACE})
    image = "Bottlerocket OS 1.53.0 (aws-k8s-1.36)"
    plugins = PluginNodes(settled=(devices,), huge_pages_mib=20000, os_images=frozenset({image}))
    facts = dataclasses.replace(CLUSTER, plugins=plugins)
    gang, alone = (run_on("job", num_nodes=number).spec for number in (2, 1))
    [note] = cluster_findings(INDEXED_JOB, gang, facts, zones=ZONES)
    assert isinstance(note, Note)
    assert "settings.oci-defaults.resource-limits.max-locked-memory" in note.sentence
    assert list(cluster_findings(INDEXED_JOB, alone, facts, zones=ZONES)) == []


@pytest.mark.parametrize("enforced", [False, Unknown("no daemon set is known to do so")])
def test_a_cluster_that_may_not_enforce_network_policies_is_noted_for_gangs(enforced: bool | Unknown) -> None:
    facts = dataclasses.replace(CLUSTER, policies_enforced=enforced)
    gang, alone = (run_on("job", num_nodes=number).spec for number in (2, 1))
    [note] = cluster_findings(INDEXED_JOB, gang, facts, zones=ZONES)
    assert isinstance(note, Note)
    assert "pods of other runs reach this run's pods" in note.sentence
    assert list(cluster_findings(INDEXED_JOB, alone, facts, zones=ZONES)) == []


def test_daemon_sets_and_zones_that_may_not_be_read_are_a_note_each() -> None:
    assert in_cluster(plugins=PluginNodes(daemon_sets=Unknown("forbidden"))) == [
        Note(f"Whether nodes will advertise {device}: there is none yet, and forbidden.")
        for device in ("aws.amazon.com/neuron", "vpc.amazonaws.com/efa")
    ]
    in_a_zone = VolumeClaim(phase="Bound", zones=frozenset({"us-west-2a"}))
    assert in_cluster(Unknown("forbidden"), claim=in_a_zone) == [
        Note(wording("preflight.daemon_sets_and_zones_that_may_not_be_read_are_a_note_each", "'fsx-claim'"))
    ]
    assert in_cluster(Unknown("forbidden")) == []


@pytest.mark.parametrize(
    ("instance_type", "set_aside", "refused"),
    [
        ("p5.48xlarge", 5119, True),
        ("p5.48xlarge", 5120, False),
        ("p4d.24xlarge", 0, True),
        ("trn1.32xlarge", 0, False),
        ("trn2.48xlarge", 0, False),
    ],
)
def test_as_many_huge_pages_as_a_pod_requests_are_enough(instance_type: str, set_aside: int, refused: bool) -> None:
    instance = INSTANCE_TYPES[instance_type]
    gang = {"compute__instance_type": instance_type, "compute__processes_per_node": instance.max_processes}
    spec = run_on("job", num_nodes=2, **gang).spec
    plugins = PluginNodes(settled=(frozenset(instance.plugin_devices(2)),), huge_pages_mib=set_aside)
    found = cluster_findings(INDEXED_JOB, spec, dataclasses.replace(CLUSTER, plugins=plugins), zones=ZONES)
    sentence = (
        f"compute.instance_type is {instance_type}, but its ready nodes set aside {set_aside} MiB of hugepages-2Mi, "
        "and a pod that uses EFA requests 5120 MiB; give the node group the EKS accelerated AMI, which sets them "
        "aside, or set vm.nr_hugepages on its nodes."
    )
    assert list(found) == ([Problem(sentence)] if refused else [])


@pytest.mark.parametrize("zone", ["us-west-2d", "usw2-az4"])
def test_the_zones_of_a_volume_may_be_names_or_ids(zone: str) -> None:
    assert in_cluster(claim=VolumeClaim(phase="Bound", zones=frozenset({zone, "elsewhere"}))) == []


def test_nodes_that_have_been_there_for_a_while_tell_more_than_daemon_sets() -> None:
    devices = frozenset(INSTANCE_TYPES["trn1.32xlarge"].plugin_devices(2))
    assert in_cluster(plugins=PluginNodes(settled=(devices, frozenset()), huge_pages_mib=10256)) == []


@pytest.mark.parametrize(
    "plugins",
    [
        PluginNodes(settled=(frozenset({NEURON_DEVICE}),), huge_pages_mib=10256),
        PluginNodes(daemon_sets=frozenset({"neuron-device-plugin"})),
    ],
)
def test_a_single_node_needs_no_efa_and_so_no_plugin_for_it(plugins: PluginNodes) -> None:
    alone, gang = (run_on("job", num_nodes=number).spec for number in (1, 2))
    facts = dataclasses.replace(CLUSTER, plugins=plugins)
    assert list(cluster_findings(INDEXED_JOB, alone, facts, zones=ZONES)) == []
    assert len(problems(cluster_findings(INDEXED_JOB, gang, facts, zones=ZONES))) == 1


def test_plugins_that_the_chart_calls_otherwise_count_too() -> None:
    names = frozenset({"neuron-device-plugin-daemonset", "blue-aws-efa-k8s-device-plugin"})
    assert in_cluster(plugins=PluginNodes(daemon_sets=names)) == []


def test_instances_without_devices_need_no_plugin() -> None:
    spec = run_of(spec_with(compute__instance_type="m5.large", compute__processes_per_node=1)).spec
    facts = dataclasses.replace(CLUSTER, plugins=PluginNodes(daemon_sets=Unknown("the cluster serves none")))
    assert list(cluster_findings(INDEXED_JOB, spec, facts, zones=ZONES)) == []


@pytest.mark.parametrize(
    ("facts", "can"),
    [
        ({}, True),
        ({"service_account": False}, False),
        ({"claim": None}, False),
        ({"claim": VolumeClaim(phase="Lost")}, False),
        ({"claim": DENIED, "service_account": DENIED}, True),
    ],
)
def test_a_pod_that_cannot_start_is_not_waited_for(facts: dict[str, Any], can: bool) -> None:
    assert can_run_pods(dataclasses.replace(CLUSTER, **facts)) is can


# The account


def test_a_type_that_its_zone_does_not_offer_is_a_problem() -> None:
    [sentence] = problems(in_account(offered_in=frozenset()))
    assert sentence.startswith("compute.instance_type is trn1.32xlarge, which is not offered in us-west-2d (usw2-az4)")


def test_where_ec2_may_not_be_asked_the_snapshot_decides_and_is_named() -> None:
    found = in_account(offered_in=DENIED)
    assert problems(found) == []
    assert "a snapshot of November 2026 was used instead" in noted(found)[0]
    assert len(problems(in_account(offered_in=DENIED, zones=(Zone("usw2-az3", "us-west-2c"),)))) == 1


def test_without_zones_their_offer_is_unknown() -> None:
    found = in_account(zones=DENIED, offered_in=DENIED)
    assert (len(problems(found)), len(noted(found))) == (0, 1)


def test_a_gang_beyond_its_node_group_and_its_quota_has_two_problems() -> None:
    small = dataclasses.replace(NODEGROUP, maximum=1)
    sentences = problems(in_account(small, quota=dataclasses.replace(QUOTA, limit=128)))
    assert sentences[0].startswith("compute.num_nodes is 2, but the node group")
    assert "2 x trn1.32xlarge take 256 vCPUs, but the quota" in sentences[1]
    assert "(L-2C3B7624) allows 128" in sentences[1]


def test_spares_count_for_the_quota() -> None:
    account = dataclasses.replace(ACCOUNT, quota=dataclasses.replace(QUOTA, limit=256))
    (sentence,) = problems(list(account_findings(parse_run_spec(spec_with(compute__spares=1)), NODEGROUP, account)))
    assert "compute.num_nodes and compute.spares: 3 x trn1.32xlarge take 384 vCPUs, but the quota" in sentence


def test_a_gang_that_waits_for_others_to_release_their_nodes_is_told_how_long() -> None:
    busy = dataclasses.replace(QUOTA, limit=384.0, in_use=256.0)
    assert noted(in_account(dataclasses.replace(NODEGROUP, desired=0), quota=busy)) == [
        "compute.num_nodes: 2 x trn1.32xlarge take 256 vCPUs and the quota "
        f"'{QUOTA.name}' (L-2C3B7624) allows 384, of which 256 were in use some minutes ago; the run waits up to "
        "limits.capacity_timeout_minutes for them."
    ]


@given(
    limit=st.integers(0, 2000), in_use=st.integers(0, 2000), desired=st.integers(0, 4)
)  # the gang is of 2 nodes of 128 vCPUs
def test_only_a_quota_too_small_for_the_gang_alone_stops_it(limit: int, in_use: int, desired: int) -> None:
    group = dataclasses.replace(NODEGROUP, desired=desired)
    found = in_account(group, quota=dataclasses.replace(QUOTA, limit=float(limit), in_use=float(in_use)))
    short = in_use + max(0, 2 - desired) * 128 > limit
    assert [type(each) for each in found] == ([Problem] if limit < 256 else [Note] if short else [])


def test_which_quota_counts_a_node() -> None:
    trn1, m5 = INSTANCE_TYPES["trn1.32xlarge"], INSTANCE_TYPES["m5.large"]
    assert node_quota(trn1, capacity_type="ON_DEMAND") == VCPU_QUOTAS["trn_on_demand"]
    assert node_quota(trn1, capacity_type="SPOT") == VCPU_QUOTAS["trn_spot"]
    assert node_quota(m5, capacity_type="SPOT") == VCPU_QUOTAS["standard_spot"]
    assert node_quota(trn1, capacity_type="CAPACITY_BLOCK") is None


# The pod


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({"program": "there is no module 'x' in the image."}, "workload.module: there is no module 'x' in the image."),
        ({"arguments": "--epochs is 0; it has to be above 0."}, "workload.arguments: --epochs is 0"),
        ({"free_bytes": GIB, "checkpoint_bytes": 4 * GIB}, "1.0 GiB free, but the run needs 4.0 GiB for checkpoints"),
    ],
)
def test_what_the_pod_saw_to_be_wrong_is_a_problem(seen: dict[str, Any], words: str) -> None:
    [sentence] = problems(in_pod(**seen))
    assert words in sentence


@pytest.mark.parametrize("field", ["module", "script", "command"])
def test_a_fault_of_the_program_is_reported_at_the_field_that_names_it(field: str) -> None:
    named = {"module": None, "script": None, "command": None, field: ("train",) if field == "command" else "train"}
    workload = RUN.spec.workload.model_copy(update=named)
    run = RUN.model_copy(update={"spec": RUN.spec.model_copy(update={"workload": workload})})
    assert problems(in_pod(run, program="it is not there.")) == [f"workload.{field}: it is not there."]


def test_a_probe_that_could_not_ask_for_the_room_leaves_a_note() -> None:
    assert noted(in_pod(free_bytes=None, checkpoint_bytes=4 * GIB)) == [
        wording("preflight.a_probe_that_could_not_ask_for_the_room_leaves_a_note", "Whether", "checkpoints")
    ]


def test_data_and_checkpoints_share_the_room() -> None:
    [sentence] = problems(in_pod(data_bytes=60 * GIB, checkpoint_bytes=50 * GIB, free_bytes=100 * GIB))
    assert sentence.startswith("dataset.url: the shared file system has 100.0 GiB free, but the run needs 60.0 GiB for")
    assert in_pod(data_bytes=60 * GIB, checkpoint_bytes=40 * GIB, free_bytes=100 * GIB) == []


def test_a_data_set_that_is_there_needs_no_room() -> None:
    assert SPEC.dataset is not None
    assert in_pod(data_bytes=60 * GIB, free_bytes=GIB, staged_url=SPEC.dataset.url) == []
    linked = RUN.model_copy(update={"linked_folder": "/data/corpus"})
    assert in_pod(linked, data_bytes=60 * GIB, free_bytes=GIB) == []


def test_a_folder_that_holds_another_data_set_is_a_problem_before_staging_refuses_it() -> None:
    [sentence] = problems(in_pod(staged_url="s3://elsewhere/wikicorpus_seqlen128.tar"))
    assert sentence.startswith("dataset.name: /data/")
    assert "holds s3://elsewhere/wikicorpus_seqlen128.tar; give s3://corpus/" in sentence
    assert sentence.endswith(" a name of its own, or remove the other.")
    linked = RUN.model_copy(update={"linked_folder": "/data/corpus"})
    assert in_pod(linked, staged_url="s3://elsewhere/wikicorpus_seqlen128.tar") == []


@pytest.mark.parametrize(("staged_etag", "fits"), [("new", True), ("old", False), (None, True)])
def test_a_new_upload_under_an_old_url_needs_room_beside_the_old_one(staged_etag: str | None, fits: bool) -> None:
    assert SPEC.dataset is not None
    url = SPEC.dataset.url
    found = in_pod(data_bytes=60 * GIB, etag="new", free_bytes=GIB, staged_url=url, staged_etag=staged_etag)
    assert (problems(found) == []) is fits


def test_what_an_archive_may_grow_to_is_an_estimate_and_stops_no_run() -> None:
    run = run_of(spec_with(dataset__url="s3://corpus/a.tar.gz"))
    [note] = in_pod(run, data_bytes=40 * GIB, free_bytes=100 * GIB)
    assert isinstance(note, Note)
    assert "perhaps 3 times as much" in note.sentence
    assert len(problems(in_pod(run, data_bytes=140 * GIB, free_bytes=100 * GIB))) == 1


def test_another_machine_than_the_gangs_proves_nothing() -> None:
    [note] = in_pod(machine="aarch64")
    assert isinstance(note, Note)


@given(st.dictionaries(st.text(), st.none() | st.integers() | st.text()))
def test_an_older_trainers_probe_is_understood_as_far_as_it_goes(result: dict[str, Any]) -> None:
    unknown = {name: value for name, value in result.items() if name not in Probed.__dataclass_fields__}
    assert probed({"machine": "x86_64", **unknown}) == Probed(machine="x86_64")


@pytest.mark.parametrize(
    ("pending_reason", "stops"),
    [
        (None, False),
        ("0/1 nodes are available: 1 Insufficient cpu.", False),
        ("ErrImagePull: connection reset", False),
        ('ImagePullBackOff: Back-off pulling image "trainer:nope": not found', True),
        ("InvalidImageName: couldn't parse image name", True),
    ],
)
def test_an_image_is_out_of_reach_once_the_kubelet_holds_off(pending_reason: str | None, stops: bool) -> None:
    found = image_out_of_reach(run_of(), pending_reason)
    assert (found is not None) is stops
    if found is not None:
        assert pending_reason is not None
        assert pending_reason.partition(": ")[2] in found.sentence


@pytest.mark.parametrize("message", ['secret "hub" not found', "couldn't find key token in Secret training/hub"])
def test_a_secret_that_is_not_there_is_a_problem_in_the_kubelets_words(message: str) -> None:
    spec = parse_run_spec(spec_with(workload__secrets={"HF_TOKEN": {"name": "hub", "key": "token"}}))
    found = secret_out_of_reach(spec, f"CreateContainerConfigError: {message}")
    assert found == Problem(f"workload.secrets: {message}; create it in the runs' namespace, or correct the spec.")
    assert secret_out_of_reach(spec, "ContainerCreating") is None
    assert secret_out_of_reach(SPEC, f"CreateContainerConfigError: {message}") is None


def test_the_helpers_image_is_told_from_the_workloads() -> None:
    workload = image_out_of_reach(run_of(), f'ImagePullBackOff: Back-off pulling image "{SPEC.workload.image}"')
    helpers = image_out_of_reach(run_of(), f'ImagePullBackOff: Back-off pulling image "{TOOLS_IMAGE}": 403 Forbidden')
    assert workload is not None and workload.sentence.startswith("workload.image is 'registry.example/trainer")
    assert helpers is not None and helpers.sentence == (
        f"The tools image '{TOOLS_IMAGE}', from which every pod takes Trainflow's helpers, cannot be pulled (Back-off "
        f'pulling image "{TOOLS_IMAGE}": 403 Forbidden); let the nodes\' role read its repository.'
    )


def test_a_probe_that_fails_explains_why_the_image_cannot_run_it() -> None:
    built_elsewhere = probe_failure(SPEC, WorkerFailed("exec /usr/bin/python: exec format error"))
    assert "not built for x86_64; build it with `--platform linux/amd64`" in built_elsewhere.sentence
    no_python = probe_failure(SPEC, ScriptFailed('exec: "python": executable file not found in $PATH'))
    assert "choose an image that has Python 3.10 or newer as `python`" in no_python.sentence


def test_a_probe_that_never_ran_is_reported_with_its_pending_reason() -> None:
    assert probe_timeout(SPEC, "0/1 nodes are available").sentence.endswith(
        "within 30 minutes: 0/1 nodes are available"
    )


# The list


def test_only_what_is_longer_than_a_sentence_may_be_is_cut_off() -> None:
    longest = "x" * MAX_SENTENCE
    assert shortened(longest) == longest
    assert shortened(f"{longest}x") == f"{longest[:-1]}…"


def test_one_problem_is_a_sentence_and_several_are_a_numbered_list() -> None:
    with pytest.raises(PreflightFailed, match=r"^A\.$"):
        require_no_problem([Problem("A."), Note("N."), Problem("A.")])
    with pytest.raises(PreflightFailed) as failed:
        require_no_problem([Problem("A."), Problem("B.")])
    assert str(failed.value).splitlines() == ["This run could not start for 2 reasons:", "1. A.", "2. B."]
    require_no_problem([Note("N.")])


@given(st.lists(st.text(max_size=700), max_size=20))
def test_notes_never_outgrow_the_states_payload(sentences: list[str]) -> None:
    kept = notes(map(Note, sentences))
    assert len(json.dumps(kept, ensure_ascii=False).encode()) <= MAX_NOTES_BYTES


def test_the_compilation_of_another_run_is_waited_for() -> None:
    record = new_lease(run_of(run_id="bert-ffffffffffff"), "bert-0123", now=datetime(2026, 11, 21, 12, tzinfo=UTC))
    [note] = compilation_findings(record)
    assert isinstance(note, Note)
    assert "bert-ffffffffffff compiles the same graphs since 2026-11-21 12:00 UTC" in note.sentence
    assert list(compilation_findings(None)) == []


# The handler


@pytest.fixture
def ready(aws: Aws, cluster: FakeKubernetesApi) -> FakeKubernetesApi:
    """A cluster and an account as the stacks make them."""
    account._client.cache_clear()
    zone = [{"Name": "availability-zone-id", "Values": ["usw2-az4"]}]
    [subnet] = aws.client("ec2").describe_subnets(Filters=zone)["Subnets"]
    aws.add_nodegroup("trn1.32xlarge", subnets=[subnet["SubnetId"]])
    cluster.add("serviceaccounts", {"metadata": {"name": "training"}})
    claim = {"metadata": {"name": "fsx-claim"}, "spec": {"volumeName": "shared"}, "status": {"phase": "Bound"}}
    cluster.add("persistentvolumeclaims", claim)
    cluster.add("persistentvolumes", {"metadata": {"name": "shared"}, "spec": {}})
    for name in PLUGINS:
        cluster.add("daemonsets.apps", {"metadata": {"name": name}})
    agent = {"name": "aws-eks-nodeagent", "args": ["--enable-network-policy=true"]}
    with_agent = {"template": {"spec": {"containers": [agent]}}}
    cluster.add("daemonsets.apps", {"metadata": {"name": "aws-node"}, "spec": with_agent})
    return cluster


def without_data() -> Run:
    return run_of(spec_with(dataset=None))


def probe_ends(cluster: FakeKubernetesApi, run: Run, result: dict[str, Any], *, image_id: str = "") -> None:
    """The probe's pod ends well."""
    job = job_of(run, Stage.PREFLIGHT, 1, artifacts_url="s3://a/").ref
    cluster.objects["jobs", job.name]["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    labels = {JOB_LABEL: job.name, "batch.kubernetes.io/job-completion-index": "0"}
    terminated = {"exitCode": 0, "message": json.dumps({"result": result})}
    status = {"containerStatuses": [{"imageID": image_id, "state": {"terminated": terminated}}]}
    cluster.add("pods", {"metadata": {"name": f"{job.name}-0", "labels": labels}, "spec": {}, "status": status})


def call(run: Run) -> dict[str, Any]:
    answer: dict[str, Any] = preflight.lambda_handler({"run": run.model_dump(mode="json")}, CONTEXT)
    return answer


def test_a_good_run_waits_for_its_probe_and_learns_the_images_digest(ready: FakeKubernetesApi) -> None:
    run, digest = without_data(), f"sha256:{'ab' * 32}"
    for _ in range(2):  # safe to repeat
        waiting = {
            "finished": False,
            "attempt": 1,
            "image_digest": None,
            "versions": {},
            "notes": [],
            "wait_seconds": 10,
        }
        assert call(run) == waiting
    assert ready.names("jobs") == [f"{run.run_id}-preflight-1"]
    seen = dataclasses.replace(PROBED, versions={"python": "3.12.4", "torch": "2.9.0"})
    probe_ends(ready, run, dataclasses.asdict(seen), image_id=f"registry.example/trainer@{digest}")
    answer = call(run)
    assert (answer["finished"], answer["image_digest"]) == (True, digest)
    assert answer["versions"] == {"python": "3.12.4", "torch": "2.9.0"}
    assert [note for note in answer["notes"] if "quota" not in note] == []  # moto knows no quotas of EC2


ECR_IMAGE = "123456789012.dkr.ecr.us-west-2.amazonaws.com/trainflow:tools-0123456789abcdef"


def in_ecr(run: Run) -> Run:
    return run.model_copy(update={"tools_image": ECR_IMAGE})


@pytest.mark.parametrize("repository", ["trainflow", "another"])
def test_a_run_is_refused_while_ecr_lacks_the_image_of_staging_and_publishing(
    aws: Aws, ready: FakeKubernetesApi, repository: str
) -> None:
    aws.client("ecr").create_repository(repositoryName=repository)
    run = in_ecr(without_data())
    call(run)
    probe_ends(ready, run, dataclasses.asdict(PROBED))
    with pytest.raises(PreflightFailed) as failed:
        call(run)
    assert str(failed.value) == (
        f"The image of staging and publishing, '{ECR_IMAGE}', is not in ECR; build it with `make images CONFIG=…`, or "
        "push it there if it is the configuration's images.tools."
    )


def test_a_run_starts_once_ecr_has_that_image(aws: Aws, ready: FakeKubernetesApi) -> None:
    ecr = aws.client("ecr")
    ecr.create_repository(repositoryName="trainflow")
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json", "layers": []}
    tag = ECR_IMAGE.partition(":")[2]
    ecr.put_image(repositoryName="trainflow", imageManifest=json.dumps(manifest), imageTag=tag)
    run = in_ecr(without_data())
    call(run)
    probe_ends(ready, run, dataclasses.asdict(PROBED))
    answer = call(run)
    assert answer["finished"] and not [note for note in answer["notes"] if "staging and publishing" in note]


def test_without_leave_to_ask_ecr_a_run_starts_with_a_note(
    aws: Aws, ready: FakeKubernetesApi, refusing: Callable[[str, str | None], None]
) -> None:
    refusing("DescribeImages", "AccessDeniedException")
    run = in_ecr(without_data())
    call(run)
    probe_ends(ready, run, dataclasses.asdict(PROBED))
    assert (
        f"Whether the image of staging and publishing, '{ECR_IMAGE}', is in ECR: ecr:DescribeImages answered "
        "AccessDeniedException."
    ) in call(run)["notes"]


def test_everything_is_named_at_once(ready: FakeKubernetesApi) -> None:
    run = run_on("volcano", num_nodes=99, compute__queue="missing-queue", compute__priority_class="vip", dataset=None)
    ready.missing.add("batch.volcano.sh")
    call(run)
    probe_ends(ready, run, dataclasses.asdict(PROBED) | {"program": "there is no module 'trainer.pretrain'."})
    with pytest.raises(PreflightFailed) as failed:
        call(run)
    lines = str(failed.value).splitlines()
    assert lines[0] == "This run could not start for 5 reasons:"
    for line, words in zip(
        lines[1:],
        ["num_nodes is 99", "Volcano is not installed", "missing-queue", "vip", "trainer.pretrain"],
        strict=True,
    ):
        assert words in line


@pytest.mark.parametrize(
    ("dataset", "sentence"),
    [
        ({"url": "s3://data/wiki.tar"}, "dataset.url: there is no object s3://data/wiki.tar, or this run may not read"),
        ({"url": "s3://nowhere/wiki.tar"}, "dataset.url: there is no object s3://nowhere/wiki.tar, or"),
        ({"url": "s3://data/empty/"}, "dataset.url: there is no object below s3://data/empty/, or this run may not l"),
        ({"url": "s3://nowhere/wiki/"}, "dataset.url: there is no object below s3://nowhere/wiki/, or"),
        ({"url": "s3://data/wiki/", "manifest_url": "s3://data/no"}, "dataset.manifest_url: there is no object s3://"),
    ],
)
def test_data_that_is_not_there_is_on_the_same_list_with_the_ways_out(
    aws: Aws, ready: FakeKubernetesApi, dataset: dict[str, Any], sentence: str
) -> None:
    for key in ("wiki/0.hdf5", "empty/"):
        aws.client("s3").put_object(Bucket=DATA_BUCKET, Key=key, Body=b"")
    run = run_of(spec_with(dataset=dataset, compute__num_nodes=99))
    call(run)
    probe_ends(ready, run, dataclasses.asdict(PROBED))
    with pytest.raises(PreflightFailed) as failed:
        call(run)
    [nodes, missing] = str(failed.value).splitlines()[1:]
    assert "compute.num_nodes is 99" in nodes
    assert sentence in missing
    assert "put it below data/ of the data bucket, set dataset.public if its bucket is public, or add its" in missing


def test_an_archive_and_its_missing_manifest_are_two_problems(aws: Aws, ready: FakeKubernetesApi) -> None:
    run = run_of(spec_with(dataset={"url": "s3://data/no.tar", "manifest_url": "s3://data/no.sha256"}))
    call(run)
    probe_ends(ready, run, dataclasses.asdict(PROBED))
    with pytest.raises(PreflightFailed, match="for 2 reasons"):
        call(run)


@pytest.mark.parametrize(
    "dataset",
    [
        {"url": "s3://data/wiki/"},
        {"url": "s3://data/wiki.tar", "public": True, "region": "us-west-2", "manifest_url": "s3://data/wiki.sha256"},
        {"url": "https://nowhere.invalid/wiki.tar", "sha256": "ab" * 32},
    ],
)
def test_data_that_is_there_is_found_signed_and_unsigned(
    aws: Aws, ready: FakeKubernetesApi, dataset: dict[str, Any]
) -> None:
    for key in ("wiki/0.hdf5", "wiki.tar", "wiki.sha256"):
        aws.client("s3").put_object(Bucket=DATA_BUCKET, Key=key, Body=b"0", ACL="public-read")
    run = run_of(spec_with(dataset=dataset))
    call(run)
    probe_ends(ready, run, dataclasses.asdict(PROBED))
    assert call(run)["finished"]


@pytest.mark.lengthy
def test_of_more_objects_than_are_counted_the_size_is_a_note(
    aws: Aws, ready: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "MAX_PAGES", 1)
    for number in range(1001):
        aws.client("s3").put_object(Bucket=DATA_BUCKET, Key=f"data/many/{number}", Body=b"0")
    run = run_of(spec_with(dataset={"url": f"s3://{DATA_BUCKET}/data/many/"}))
    call(run)
    probe_ends(ready, run, dataclasses.asdict(PROBED))
    answer = call(run)
    assert answer["finished"]
    assert f"the size of s3://{DATA_BUCKET}/data/many/ could not be determined" in "".join(answer["notes"])


def test_what_is_staged_is_compared_with_the_archives_present_upload(aws: Aws, ready: FakeKubernetesApi) -> None:
    url = f"s3://{DATA_BUCKET}/data/a.tar"
    etag = aws.client("s3").put_object(Bucket=DATA_BUCKET, Key="data/a.tar", Body=b"x" * 2048)["ETag"].strip('"')
    for staged, fits in ((etag, True), ("0" * 32, False)):
        run = run_of(spec_with(dataset__url=url), run_id=f"bert-{int(fits)}123456789ab")
        call(run)
        seen = {"machine": "x86_64", "free_bytes": 1000, "staged_url": url, "staged_etag": staged}
        probe_ends(ready, run, seen)
        if fits:
            assert call(run)["finished"]
        else:
            with pytest.raises(PreflightFailed, match="shared file system has"):
                call(run)


def test_without_a_service_account_no_pod_is_waited_for(ready: FakeKubernetesApi) -> None:
    del ready.objects["serviceaccounts", "training"]
    with pytest.raises(PreflightFailed, match="no service account 'training'"):
        call(without_data())
    assert ready.names("jobs") == []


def test_an_instance_type_without_a_node_group_is_a_problem(ready: FakeKubernetesApi) -> None:
    run = run_of(spec_with(dataset=None, compute={"instance_type": "trn1.2xlarge"}))
    call(run)
    probe_ends(ready, run, dataclasses.asdict(PROBED))
    with pytest.raises(PreflightFailed, match="no node group 'trainflow-trn1-2xlarge'"):
        call(run)


def test_a_type_in_fallback_needs_a_node_group_that_holds_the_gang(aws: Aws, ready: FakeKubernetesApi) -> None:
    run = run_of(spec_with(dataset=None, compute__fallback=["trn1n.32xlarge"]))
    call(run)
    probe_ends(ready, run, dataclasses.asdict(PROBED))
    with pytest.raises(PreflightFailed) as missing:
        call(run)
    assert str(missing.value) == (
        f"compute.fallback names trn1n.32xlarge, but the cluster '{CLUSTER_OF_EKS}' has no node group "
        "'trainflow-trn1n-32xlarge'; remove it from fallback, or deploy a node group for it."
    )
    zone = [{"Name": "availability-zone-id", "Values": ["usw2-az3"]}]
    [subnet] = aws.client("ec2").describe_subnets(Filters=zone)["Subnets"]
    aws.add_nodegroup("trn1n.32xlarge", maximum=1, subnets=[subnet["SubnetId"]])
    with pytest.raises(PreflightFailed) as unfit:
        call(run)
    assert str(unfit.value).splitlines()[1:] == [
        wording(
            "preflight.a_type_in_fallback_needs_a_node_group_that_holds_the_gang.1",
            "compute.num_nodes",
            "'trainflow-trn1n-32xlarge'",
        ),
        wording(
            "preflight.a_type_in_fallback_needs_a_node_group_that_holds_the_gang.2",
            "compute.fallback",
            "trn1n.32xlarge",
        ),
    ]


def test_a_probe_that_waits_for_too_long_is_a_problem(ready: FakeKubernetesApi) -> None:
    run = without_data()
    call(run)
    created = datetime.now(UTC) - timedelta(minutes=31)
    job = ready.objects["jobs", f"{run.run_id}-preflight-1"]
    job["metadata"]["creationTimestamp"] = created.isoformat()
    with pytest.raises(PreflightFailed, match="did not end within 30 minutes"):
        call(run)


@pytest.mark.parametrize(
    ("num_bytes", "price"),
    [(2_000_000_000_000, "90.00 USD for 2000.0 GB (0.045 USD a GB)"), (Unknown("it is not known"), "0.045 USD a GB")],
)
def test_the_price_of_the_first_staging_from_another_region_is_a_note(num_bytes: int | Unknown, price: str) -> None:
    assert SPEC.dataset is not None
    facts = DatasetFacts(num_bytes=num_bytes, from_region="us-east-1")
    assert noted(dataset_findings(SPEC.dataset, facts)) == [
        f"dataset.url: {SPEC.dataset.url} is in us-east-1, so that its first staging goes through the NAT gateway, for "
        f"about {price}; the bucket's owner pays for the transfer between Regions. A copy in the data bucket costs "
        "neither."
    ]


def test_only_a_data_set_of_another_region_is_said_to_cross_regions(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    aws.client("s3").put_object(Bucket=DATA_BUCKET, Key="data/a.tar", Body=b"x")
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    crossing = {}
    for region in (None, "us-west-2", "us-east-1"):
        spec = spec_with(dataset__url=f"s3://{DATA_BUCKET}/data/a.tar", dataset__region=region)
        crossing[region] = dataset_facts(run_of(spec).spec.dataset).from_region
    assert crossing == {None: None, "us-west-2": None, "us-east-1": "us-east-1"}


def test_the_room_is_compared_with_the_data_sets_own_size(aws: Aws, ready: FakeKubernetesApi) -> None:
    aws.client("s3").put_object(Bucket=DATA_BUCKET, Key="data/a.tar", Body=b"x" * 2048)
    aws.client("s3").put_object(Bucket=DATA_BUCKET, Key="data/b/1.h5", Body=b"x" * 1024)
    for number, (url, bytes_needed) in enumerate({"data/a.tar": 2048, "data/b/": 1024}.items()):
        for free, fits in ((bytes_needed, True), (bytes_needed - 1, False)):
            spec = spec_with(dataset__url=f"s3://{DATA_BUCKET}/{url}")
            run = run_of(spec, run_id=f"bert-{number}{int(fits)}23456789ab")
            call(run)
            probe_ends(ready, run, {"machine": "x86_64", "free_bytes": free})
            if fits:
                assert call(run)["finished"]
            else:
                with pytest.raises(PreflightFailed, match="shared file system has"):
                    call(run)


@pytest.mark.parametrize("code", ["AccessDeniedException", "UnauthorizedOperation"])
def test_an_account_that_may_not_be_asked_is_a_note(
    ready: FakeKubernetesApi, refusing: Callable[[str, str | None], None], code: str
) -> None:
    for operation in ("DescribeSubnets", "GetServiceQuota"):
        refusing(operation, code)
    run = without_data()
    call(run)
    probe_ends(ready, run, dataclasses.asdict(PROBED))
    answer = call(run)
    assert answer["finished"]
    assert [code in note for note in answer["notes"]] == [True, True]


def test_the_quota_and_its_use_are_read_together(aws: Aws, refusing: Callable[[str, str | None], None]) -> None:
    account._client.cache_clear()
    now = datetime.now(UTC)
    metric = {"MetricNamespace": "AWS/Usage", "MetricName": "ResourceCount", "MetricDimensions": {"Class": "Trn"}}
    for minutes, value in ((12, 128.0), (2, 256.0)):
        aws.client("cloudwatch").put_metric_data(
            Namespace="AWS/Usage",
            MetricData=[
                {
                    "MetricName": "ResourceCount",
                    "Dimensions": [{"Name": "Class", "Value": "Trn"}],
                    "Timestamp": now - timedelta(minutes=minutes),
                    "Value": value,
                }
            ],
        )
    assert account._in_use(metric, now=now) == 256.0
    assert isinstance(account._in_use(None, now=now), Unknown)
    refusing("GetMetricStatistics", "AccessDenied")
    assert account._in_use(metric, now=now) == Unknown("cloudwatch:GetMetricStatistics answered AccessDenied")


@pytest.mark.parametrize(
    ("dataset", "is_verifiable"),
    [
        ({"url": "s3://data/old.tar"}, False),
        ({"url": "s3://data/old.tar.zst"}, False),
        ({"url": "s3://data/old.tar.gz"}, True),
        ({"url": "s3://data/old.tar", "sha256": "ab" * 32}, True),
        ({"url": "s3://data/old.tar", "manifest_url": "s3://data/old.tar.gz"}, True),
        ({"url": "s3://data/new.tar"}, True),
    ],
)
def test_an_archive_that_nothing_vouches_for_is_a_note_and_no_problem(
    aws: Aws, ready: FakeKubernetesApi, dataset: dict[str, Any], is_verifiable: bool
) -> None:
    plain = boto3.client("s3", region_name="us-west-2", config=Config(request_checksum_calculation="when_required"))
    for name in ("old.tar", "old.tar.zst", "old.tar.gz"):  # moto, as S3 before 2025, keeps no checksum of these
        plain.put_object(Bucket=DATA_BUCKET, Key=name, Body=b"0")
    aws.client("s3").put_object(Bucket=DATA_BUCKET, Key="new.tar", Body=b"0", ChecksumAlgorithm="SHA256")
    run = run_of(spec_with(dataset=dataset))
    call(run)
    probe_ends(ready, run, dataclasses.asdict(PROBED))
    answer = call(run)
    assert answer["finished"]
    note = (
        f"dataset.url: {dataset['url']} is not verifiable, because S3 keeps no checksum of it: damaged bytes would not "
        "be noticed; give dataset.sha256 or dataset.manifest_url, or upload it again with a checksum."
    )
    assert (note in answer["notes"]) is not is_verifiable
    assert ("is not verifiable" in "".join(answer["notes"])) is not is_verifiable
