"""Every check of `trainflow check-account`: an account in which it fails; in the healthy one all pass."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.account.healthy import (
    ACCOUNT,
    ADMINISTRATOR,
    BOOTSTRAP,
    CALLER,
    HEALTHY,
    NEWEST,
    NOW,
    configuration,
    found,
    troubles,
    with_quota,
)
from tests.wording import wording
from trainflow.cli.account.checks import findings
from trainflow.cli.account.facts import (
    ClusterVersion,
    EksCluster,
    Facts,
    Identity,
    NoCredentials,
    NodegroupImage,
    NodeImage,
    Quota,
    Reservation,
    Simulation,
    Unknown,
)
from trainflow.cli.account.findings import Level, something_fails

LOST = Unknown("the caller lacks the permission x:Y", "Allow x:Y.")
RESERVATION = "cr-0123456789abcdef0"
DIGEST = "@sha256:" + "0" * 64
LOG_GROUP = "/aws/eks/trainflow/cluster"
assert isinstance(HEALTHY.add_ons, Mapping)
OFFERED = HEALTHY.add_ons


def test_nothing_troubles_in_a_healthy_account() -> None:
    assert troubles() == []
    assert not something_fails(found())


def test_every_finding_that_is_not_fine_says_why_and_what_to_do() -> None:
    changes: dict[str, Any] = {
        "bootstrap_version": None,
        "quotas": with_quota("L-F678F1CE", Quota(5, 5)),
        "stacks": {"trainflow-images": "DELETE_FAILED"},
        "cluster_versions": (),
        "log_groups": frozenset({LOG_GROUP}),
    }
    bad = [finding for finding in found(**changes) if finding.level is not Level.FINE]
    assert len(bad) == 5
    assert all(finding.why and finding.fix for finding in bad)
    assert something_fails(bad)


def _with_reservation(mode: str = "reservation", max_nodes: int = 2) -> Any:
    group = {"instance_type": "trn1.32xlarge", "max_nodes": max_nodes, "mode": mode, "reservation_id": RESERVATION}
    return configuration(capacity__nodegroups=[group])


def _reserved(**changes: Any) -> Reservation:
    given: dict[str, Any] = {
        "state": "active",
        "instance_type": "trn1.32xlarge",
        "zone_id": "usw2-az4",
        "total": 2,
        "capacity_block": False,
        "end": None,
    }
    return Reservation(**given | changes)


@pytest.mark.parametrize(
    ("of", "facts", "trouble"),
    [
        (
            {"account": "999999999999"},
            {},
            (
                "credentials",
                "fails",
                f"the credentials are of account {ACCOUNT}, and the configuration is for 999999999999",
            ),
        ),
        (
            {},
            {"identity": Identity(ACCOUNT, f"arn:aws:iam::{ACCOUNT}:root")},
            ("credentials", "surprises", f"the caller is the root user of {ACCOUNT}"),
        ),
        (
            {},
            {"region_status": "not-opted-in"},
            ("region", "fails", "us-west-2 is not enabled for this account"),
        ),
        (
            {},
            {"bootstrap_version": None},
            ("bootstrap", "fails", "the account and Region are not bootstrapped for CDK"),
        ),
        (
            {},
            {"bootstrap_version": 5},
            ("bootstrap", "fails", wording("checks.what_would_fail_or_surprise_is_said.1", "5", "6")),
        ),
        (
            {},
            {"roles": {**HEALTHY.roles, BOOTSTRAP[0]: False}},
            ("bootstrap", "fails", f"bootstrap roles are missing: {BOOTSTRAP[0]}"),
        ),
        (
            {},
            {"may_deploy": Simulation(CALLER, ("sts:AssumeRole",))},
            ("permissions", "fails", f"{CALLER} may not assume the bootstrap roles"),
        ),
        (
            {},
            {"may_create": Simulation("role", ("eks:CreateCluster", "fsx:CreateFileSystem"))},
            ("permissions", "fails", "role may not: eks:CreateCluster, fsx:CreateFileSystem"),
        ),
        (
            {},
            {"stacks": {"trainflow-cluster": "DELETE_FAILED"}},
            ("stacks", "fails", "trainflow-cluster is DELETE_FAILED"),
        ),
        (
            {},
            {"stacks": {"trainflow-cluster": "ROLLBACK_COMPLETE"}},
            ("stacks", "surprises", "trainflow-cluster is ROLLBACK_COMPLETE"),
        ),
        (
            {},
            {"stacks": {"trainflow-cluster": "UPDATE_ROLLBACK_FAILED"}},
            ("stacks", "fails", "trainflow-cluster is UPDATE_ROLLBACK_FAILED"),
        ),
        (
            {},
            {"stacks": {"trainflow-cluster": "UPDATE_IN_PROGRESS"}},
            ("stacks", "fails", "trainflow-cluster is UPDATE_IN_PROGRESS"),
        ),
        (
            {},
            {"log_groups": frozenset({LOG_GROUP})},
            ("log groups", "surprises", f"the log group {LOG_GROUP} is there already"),
        ),
        (
            {},
            {"tagged": ("arn:aws:ec2:us-west-2:1:vpc/vpc-1", "arn:aws:fsx:us-west-2:1:file-system/fs-1")},
            (
                "leftovers",
                "surprises",
                wording("checks.what_would_fail_or_surprise_is_said.2", "1"),
            ),
        ),
        (
            {},
            {"zones": frozenset({"usw2-az2", "usw2-az4"})},
            ("zones", "fails", wording("checks.what_would_fail_or_surprise_is_said.3", "network.second_zone_id")),
        ),
        (
            {},
            {"offered": {**(HEALTHY.offered or {}), "trn1.32xlarge": frozenset({"usw2-az1"})}},
            (
                "instance types",
                "fails",
                wording("checks.what_would_fail_or_surprise_is_said.4", "capacity.nodegroups", "trn1.32xlarge"),
            ),
        ),
        (
            {},
            {"offered": {**(HEALTHY.offered or {}), "t3a.large": frozenset(), "t3.large": frozenset()}},
            (
                "instance types",
                "fails",
                wording("checks.what_would_fail_or_surprise_is_said.5", "t3a.large", "t3.large"),
            ),
        ),
        (
            {},
            {"quotas": with_quota("L-2C3B7624", Quota(8))},
            (
                "vCPU quotas",
                "surprises",
                wording("checks.what_would_fail_or_surprise_is_said.6", "128"),
            ),
        ),
        (
            {},
            {"quotas": with_quota("L-2C3B7624", Quota(0))},
            (
                "vCPU quotas",
                "surprises",
                wording("checks.what_would_fail_or_surprise_is_said.7", "128"),
            ),
        ),
        (
            {},
            {"quotas": with_quota("L-1216C47A", Quota(1))},
            (
                "vCPU quotas",
                "fails",
                wording("checks.what_would_fail_or_surprise_is_said.8", "1", "2"),
            ),
        ),
        (
            {},
            {"quotas": with_quota("L-2C3B7624", Quota(128))},
            (
                "vCPU quotas",
                "surprises",
                wording("checks.what_would_fail_or_surprise_is_said.9", "128", "288"),
            ),
        ),
        (
            {},
            {"quotas": with_quota("L-1216C47A", Quota(40))},
            (
                "vCPU quotas",
                "surprises",
                wording(
                    "checks.what_would_fail_or_surprise_is_said.10",
                    "40",
                    "capacity.vcpu_quotas.standard_on_demand",
                    "64",
                ),
            ),
        ),
        (
            {},
            {"quotas": with_quota("L-F678F1CE", Quota(5, 5))},
            ("quotas", "fails", wording("checks.what_would_fail_or_surprise_is_said.11", "5", "1")),
        ),
        (
            {},
            {"quotas": with_quota("L-0263D0A3", Quota(5, 5))},
            ("quotas", "fails", wording("checks.what_would_fail_or_surprise_is_said.12", "5", "1")),
        ),
        (
            {},
            {"quotas": with_quota("L-1194D53C", Quota(100, 100))},
            ("quotas", "fails", wording("checks.what_would_fail_or_surprise_is_said.13", "100")),
        ),
        (
            {},
            {"quotas": with_quota("L-8F1B9C74", Quota(1200, 1200))},
            (
                "quotas",
                "fails",
                wording("checks.what_would_fail_or_surprise_is_said.14", "1200"),
            ),
        ),
        (
            {},
            {"quotas": with_quota("L-B99A9384", Quota(10))},
            ("quotas", "surprises", wording("checks.what_would_fail_or_surprise_is_said.15", "10")),
        ),
        (
            {},
            {"quotas": with_quota("L-2DC20C30", Quota(1))},
            ("quotas", "surprises", "CodeBuild runs 1 builds at once (L-2DC20C30)"),
        ),
        (
            {},
            {"quotas": with_quota("L-2DC20C30", Quota(0))},
            ("quotas", "fails", "CodeBuild runs no builds (L-2DC20C30)"),
        ),
        (
            {},
            {"cluster_versions": (ClusterVersion("1.37", "STANDARD_SUPPORT", None),)},
            ("kubernetes version", "fails", "EKS does not offer Kubernetes 1.36"),
        ),
        (
            {},
            {"cluster_versions": (ClusterVersion("1.36", "UNSUPPORTED", None),)},
            ("kubernetes version", "fails", "EKS does not offer Kubernetes 1.36"),
        ),
        (
            {},
            {"cluster_versions": (ClusterVersion("1.36", "EXTENDED_SUPPORT", None),)},
            ("kubernetes version", "fails", "Kubernetes 1.36 is in extended support"),
        ),
        (
            {},
            {"cluster_versions": (ClusterVersion("1.36", "STANDARD_SUPPORT", datetime(2026, 12, 24, tzinfo=UTC)),)},
            (
                "kubernetes version",
                "surprises",
                wording("checks.what_would_fail_or_surprise_is_said.16", "1.36", "2026", "32"),
            ),
        ),
        (
            {},
            {"add_ons": {name: version for name, version in OFFERED.items() if name != "aws-fsx-csi-driver"}},
            ("add-ons", "fails", "EKS offers no aws-fsx-csi-driver for Kubernetes 1.36"),
        ),
        *(
            (
                {},
                {"add_ons": {**OFFERED, "vpc-cni": version}},
                ("add-ons", "fails", f"EKS installs vpc-cni {version} for Kubernetes 1.36, which is defective"),
            )
            for version in ("v1.21.0-eksbuild.4", "v1.21.1-eksbuild.3")
        ),
        (
            {},
            {"cluster": EksCluster("1.36", "ACTIVE", "API", None)},
            ("cluster", "fails", "there is a cluster trainflow that is not of this deployment"),
        ),
        (
            {},
            {
                "cluster": EksCluster("1.34", "ACTIVE", "API", "trainflow"),
                "stacks": {"trainflow-cluster": "CREATE_COMPLETE"},
            },
            (
                "cluster",
                "fails",
                wording("checks.what_would_fail_or_surprise_is_said.17", "1.34", "1.36"),
            ),
        ),
        (
            {},
            {"newest_release": None},
            ("node image", "fails", "EKS publishes no Neuron image for Kubernetes 1.36"),
        ),
        (
            {"capacity__neuron_ami_release": "1.36.2-20261105"},
            {"node_images": ()},
            ("node image", "fails", "capacity.neuron_ami_release: EKS has no Neuron release 1.36.2-20261105"),
        ),
        (
            {"capacity__neuron_ami_release": "1.36.1-20260728"},
            {
                "node_images": (
                    NodeImage("…-v20260728", "EKS-optimized Kubernetes node (k8s: 1.36.2, containerd: 2.*)"),
                )
            },
            (
                "node image",
                "fails",
                wording(
                    "checks.what_would_fail_or_surprise_is_said.18",
                    "capacity.neuron_ami_release",
                    "1.36.1",
                    "20260728",
                    "1.36.2",
                ),
            ),
        ),
        (
            {"capacity__neuron_ami_release": NEWEST},
            {"nodegroups": {"trainflow-trn1-32xlarge": NodegroupImage("1.36.2-20260728", 2)}},
            (
                "node image",
                "surprises",
                f"trainflow-trn1-32xlarge goes from 1.36.2-20260728 to {NEWEST} with 2 nodes up",
            ),
        ),
        (
            {"capacity__neuron_ami_release": NEWEST},
            {"nodegroups": {"trainflow-trn1-32xlarge": NodegroupImage("1.36.4-20260930", 0)}},
            ("node image", "fails", f"trainflow-trn1-32xlarge is at 1.36.4-20260930, newer than {NEWEST}"),
        ),
        (
            {},
            {
                "roles": {**HEALTHY.roles, "AWSServiceRoleForAmazonEKS": False},
                "may_create": Simulation("role", ("iam:CreateServiceLinkedRole",)),
            },
            (
                "service-linked roles",
                "fails",
                wording("checks.what_would_fail_or_surprise_is_said.19", "CloudFormation", "CreateServiceLinkedRole"),
            ),
        ),
        (
            {
                "capacity__nodegroups": [{"instance_type": "trn1.32xlarge", "max_nodes": 2, "mode": "spot"}],
                "capacity__vcpu_quotas": {"trn_spot": 288},
            },
            {"roles": {**HEALTHY.roles, "AWSServiceRoleForEC2Spot": False}},
            ("service-linked roles", "surprises", "AWSServiceRoleForEC2Spot does not exist"),
        ),
        (
            {"cluster__administrators": []},
            {},
            ("administrators", "fails", "cluster.administrators is empty"),
        ),
        (
            {},
            {"roles": {**HEALTHY.roles, ADMINISTRATOR: False}},
            ("administrators", "fails", f"cluster.administrators: {ADMINISTRATOR} does not exist"),
        ),
        (
            {"cluster__public_endpoint_cidrs": []},
            {},
            (
                "way in",
                "surprises",
                wording("checks.what_would_fail_or_surprise_is_said.20", "cluster.public_endpoint_cidrs"),
            ),
        ),
        (
            {},
            {"address": "198.51.100.1"},
            (
                "way in",
                "surprises",
                wording(
                    "checks.what_would_fail_or_surprise_is_said.21",
                    "198.51.100.1",
                    "cluster.public_endpoint_cidrs",
                    "203.0.113.0",
                    "24",
                ),
            ),
        ),
        (
            {},
            {"address": "2001:db8::1"},
            (
                "way in",
                "surprises",
                wording(
                    "checks.what_would_fail_or_surprise_is_said.22",
                    "2001",
                    "cluster.public_endpoint_cidrs",
                    "203.0.113.0",
                    "24",
                ),
            ),
        ),
        ({"alarms__emails": []}, {}, ("alarms", "surprises", "alarms.emails is empty")),
        (
            {},
            {"artifacts": {"the chart volcano 1.15.2": False}},
            ("images and charts", "fails", "the registry has no such thing: the chart volcano 1.15.2"),
        ),
    ],
)
def test_what_would_fail_or_surprise_is_said(
    of: dict[str, Any], facts: dict[str, Any], trouble: tuple[str, ...]
) -> None:
    assert trouble in troubles(configuration(**of), **facts)


@pytest.mark.parametrize(
    ("mode", "reservation", "sentence"),
    [
        ("reservation", None, "it does not exist"),
        ("reservation", _reserved(state="expired"), "it is expired"),
        ("reservation", _reserved(instance_type="trn1.2xlarge"), "it is of trn1.2xlarge, not of trn1.32xlarge"),
        ("reservation", _reserved(zone_id="usw2-az1"), "it is in usw2-az1, not in usw2-az4"),
        ("capacity-block", _reserved(), "it is a capacity reservation, and mode is 'capacity-block'"),
        ("reservation", _reserved(capacity_block=True), "it is a Capacity Block, and mode is 'reservation'"),
    ],
)
def test_a_reservation_that_nodes_cannot_be_started_in_is_refused(
    mode: str, reservation: Reservation | None, sentence: str
) -> None:
    said = troubles(_with_reservation(mode), reservations={RESERVATION: reservation})
    assert said == [("reservations", "fails", f"{RESERVATION}: {sentence}")]


def test_a_reservation_smaller_than_the_node_group_surprises() -> None:
    said = troubles(_with_reservation(), reservations={RESERVATION: _reserved(total=1)})
    assert said == [("reservations", "surprises", f"{RESERVATION} holds 1 instances, and max_nodes is 2")]


@pytest.mark.parametrize("state", ["active", "scheduled"])
def test_a_capacity_block_that_has_yet_to_begin_is_fine(state: str) -> None:
    reservation = _reserved(state=state, capacity_block=True)
    assert troubles(_with_reservation("capacity-block"), reservations={RESERVATION: reservation}) == []


def test_a_pinned_release_that_exists_is_fine_with_the_newest_beside_it() -> None:
    image = NodeImage("…-v20260728", "EKS-optimized Kubernetes node (k8s: 1.36.2, containerd: 2.*)")
    of = configuration(capacity__neuron_ami_release="1.36.2-20260728")
    (said,) = [one for one in found(of, node_images=(image,)) if one.check == "node image"]
    assert (said.level, said.what) == (Level.FINE, f"1.36.2-20260728 exists; the newest is {NEWEST}")


def test_production_pins_a_release_and_the_newest_is_reported() -> None:
    production = configuration(
        environment="production", storage={}, images={"neuron_base": f"x.io/a{DIGEST}", "cpu_base": f"x.io/b{DIGEST}"}
    )
    (said,) = [one for one in found(production) if one.check == "node image"]
    assert (said.level, said.fix) == (Level.FAILS, f"Write capacity.neuron_ami_release: {NEWEST} (the newest).")


def test_a_deployment_that_is_there_needs_no_second_vpc_and_owns_its_log_groups() -> None:
    """An update of a healthy deployment: everything is taken by itself."""
    names = ("network", "storage", "cluster", "capacity", "images", "orchestration", "triggers", "observability")
    full = {"L-F678F1CE": Quota(5, 5), "L-0263D0A3": Quota(5, 5), "L-1194D53C": Quota(1, 1)}
    assert (
        troubles(
            stacks={f"trainflow-{name}": "UPDATE_COMPLETE" for name in names},
            quotas={**HEALTHY.quotas, **full},
            log_groups=frozenset({LOG_GROUP}),
            tagged=("arn:aws:fsx:us-west-2:1:file-system/fs-1",),
            cluster=EksCluster("1.36", "ACTIVE", "API", "trainflow"),
            nodegroups={"trainflow-trn1-32xlarge": NodegroupImage("1.36.2-20260728", 2)},
        )
        == []
    )


@pytest.mark.parametrize("version", ["v1.20.5-eksbuild.1", "v1.21.2-eksbuild.1", "v1.21.10-eksbuild.1", ""])
def test_other_versions_of_the_network_plugin_are_fine(version: str) -> None:
    assert troubles(add_ons={**OFFERED, "vpc-cni": version}) == []


def test_an_add_on_that_is_installed_keeps_its_version() -> None:
    """What EKS installs into new clusters does not concern one that is there."""
    stacks = {"trainflow-cluster": "UPDATE_COMPLETE"}
    offered = {**OFFERED, "vpc-cni": "v1.21.1-eksbuild.3"}
    ours = EksCluster("1.36", "ACTIVE", "API", "trainflow")
    assert [said for said in troubles(stacks=stacks, cluster=ours, add_ons=offered) if said[0] == "add-ons"] == []


def test_a_log_group_left_by_a_rolled_back_stack_is_reported() -> None:
    said = troubles(stacks={"trainflow-cluster": "ROLLBACK_COMPLETE"}, log_groups=frozenset({LOG_GROUP}))
    assert ("log groups", "surprises", f"the log group {LOG_GROUP} is there already") in said


@pytest.mark.parametrize(
    ("cluster", "sentence"),
    [
        (None, "existing_cluster.name: there is no cluster theirs"),
        (EksCluster("1.36", "FAILED", "API", None), "the cluster theirs is FAILED"),
        (
            EksCluster("1.36", "ACTIVE", "CONFIG_MAP", None),
            wording(
                "checks.an_existing_cluster_has_to_be_found_and_support_access_entries", "entries", "authentication"
            ),
        ),
        (
            EksCluster("1.36", "ACTIVE", "API", None, ip_family="ipv6"),
            "the cluster theirs gives its pods IPv6 addresses only",
        ),
    ],
)
def test_an_existing_cluster_has_to_be_found_and_support_access_entries(
    cluster: EksCluster | None, sentence: str
) -> None:
    of = configuration(existing_cluster={"name": "theirs"}, network=None, storage__lustre=None)
    said = troubles(of, cluster=cluster, zones=None, offered=None, cluster_versions=None, add_ons=None)
    assert said == [("cluster", "fails", sentence)]


@pytest.mark.parametrize(("version", "surprising"), [("1.32", True), ("1.33", False), ("1.37", False), ("1.38", True)])
def test_an_existing_cluster_of_a_version_that_was_not_tried_is_a_surprise(version: str, surprising: bool) -> None:
    of = configuration(existing_cluster={"name": "theirs"}, network=None, storage__lustre=None)
    said = troubles(of, cluster=EksCluster(version, "ACTIVE", "API", None))
    assert said == [("cluster", "surprises", f"the cluster theirs is of Kubernetes {version}")][: int(surprising)]


def test_an_existing_cluster_needs_no_zones_versions_and_administrators() -> None:
    of = configuration(
        existing_cluster={"name": "theirs"}, network=None, storage__lustre=None, cluster__administrators=[]
    )
    there = EksCluster("1.34", "ACTIVE", "API", None)
    checks = {one.check for one in found(of, cluster=there)}
    assert checks.isdisjoint(
        {"zones", "instance types", "kubernetes version", "add-ons", "node image", "administrators", "way in"}
    )
    assert troubles(of, cluster=there) == []


def test_a_slurm_cluster_needs_its_image_and_its_quota() -> None:
    pcs = {
        "ami_id": "ami-0123456789abcdef0",
        "environment": "/opt/trainflow",
        "queues": [{"instance_type": "trn1n.32xlarge", "max_nodes": 1}],
    }
    of = configuration(slurm={"pcs": pcs}, capacity__vcpu_quotas={"trn_on_demand": 416, "standard_on_demand": 64})
    assert troubles(of, objects={"ami-0123456789abcdef0": False}) == [
        (
            "vCPU quotas",
            "surprises",
            wording("checks.a_slurm_cluster_needs_its_image_and_its_quota", "288", "416"),
        ),
        ("named resources", "fails", "slurm.pcs.ami_id: there is no ami-0123456789abcdef0 in us-west-2"),
    ]


def test_a_secret_that_runs_may_read_has_to_be_there() -> None:
    arn = "arn:aws:secretsmanager:us-west-2:123456789012:secret:hub-AbCdEf"
    granting = configuration(run_secrets=[{"secret_arn": arn}])
    assert troubles(granting, objects={arn: False}) == [
        ("named resources", "fails", f"run_secrets.0.secret_arn: there is no {arn} in us-west-2")
    ]
    assert troubles(granting, objects={arn: True}) == []


def test_missing_credentials_are_one_finding_and_the_others_need_no_account() -> None:
    without_credentials = NoCredentials("the credentials have expired", "aws sso login")
    facts = Facts(now=NOW, address="203.0.113.7", identity=without_credentials)
    said = list(findings(configuration(cluster__administrators=[]), facts, path=Path("config/mine.yaml")))
    assert [(one.check, one.level.value) for one in said] == [
        ("credentials", "fails"),
        ("administrators", "fails"),
        ("way in", "fine"),
        ("alarms", "fine"),
    ]


def test_a_request_without_permission_is_unchecked_and_does_not_fail() -> None:
    of = configuration(
        capacity__neuron_ami_release="1.36.2-20260728",
        capacity__nodegroups=[
            {"instance_type": "trn1.32xlarge", "max_nodes": 2, "mode": "reservation", "reservation_id": RESERVATION}
        ],
    )
    blind = found(
        of,
        address=LOST,
        region_status=LOST,
        zones=LOST,
        offered=LOST,
        quotas=dict.fromkeys(HEALTHY.quotas, LOST),
        cluster_versions=LOST,
        add_ons=LOST,
        cluster=LOST,
        nodegroups=LOST,
        newest_release=LOST,
        node_images=LOST,
        bootstrap_version=LOST,
        roles=dict.fromkeys(HEALTHY.roles, LOST),
        may_deploy=LOST,
        may_create=LOST,
        stacks=LOST,
        log_groups=LOST,
        tagged=LOST,
        reservations={RESERVATION: LOST},
        artifacts={"the chart volcano 1.15.2": LOST},
    )
    assert {one.level for one in blind} == {Level.UNCHECKED, Level.FINE}
    assert [one.check for one in blind if one.level is Level.FINE] == ["credentials", "alarms"]
    assert all("could not be checked: the caller lacks the permission x:Y" in one.what for one in blind if one.fix)
