"""An account in which the example's deployment would succeed, as facts and as AWS's answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from trainflow.cli.account.checks import findings
from trainflow.cli.account.facts import ClusterVersion, Facts, Identity, Quota, Simulation
from trainflow.cli.account.findings import Finding, Level
from trainflow.configuration.deployment import Configuration

EXAMPLE = Path("config/example.yaml")
ACCOUNT = "123456789012"
ADMINISTRATOR = f"arn:aws:iam::{ACCOUNT}:role/Admin"
CALLER = f"arn:aws:sts::{ACCOUNT}:assumed-role/Deployer/me"
NEWEST = "1.36.3-20260827"
NOW = datetime(2026, 11, 22, tzinfo=UTC)

BOOTSTRAP = tuple(
    f"cdk-hnb659fds-{role}-role-{ACCOUNT}-us-west-2" for role in ("deploy", "file-publishing", "cfn-exec")
)


def configuration(**changes: Any) -> Configuration:
    """The example with an administrator, an address range and an email; fields changed by their dotted names."""
    document: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    document["cluster"] |= {"administrators": [ADMINISTRATOR], "public_endpoint_cidrs": ["203.0.113.0/24"]}
    document["alarms"] |= {"emails": ["you@example.com"]}
    for dotted, value in changes.items():
        *path, last = dotted.split("__")
        section = document
        for part in path:
            section = section.setdefault(part, {})
        section[last] = value
    return Configuration.model_validate(document)


HEALTHY = Facts(
    now=NOW,
    identity=Identity(ACCOUNT, CALLER),
    address="203.0.113.7",
    region_status="opt-in-not-required",
    zones=frozenset({"usw2-az1", "usw2-az2", "usw2-az3", "usw2-az4"}),
    offered={
        name: frozenset({"usw2-az1", "usw2-az4"})
        for name in (
            "trn1.2xlarge",
            "trn1.32xlarge",
            "trn1n.32xlarge",
            "c7i.4xlarge",
            "m5.large",
            "t3a.large",
            "t3.large",
        )
    },
    quotas={
        "L-2C3B7624": Quota(288),
        "L-6B0D517C": Quota(288),
        "L-1216C47A": Quota(64),
        "L-F678F1CE": Quota(5, 1),
        "L-0263D0A3": Quota(5, 4),
        "L-1194D53C": Quota(100, 0),
        "L-8F1B9C74": Quota(100_800, 0),
        "L-B99A9384": Quota(1000),
        "L-2DC20C30": Quota(20),
    },
    cluster_versions=(ClusterVersion("1.36", "STANDARD_SUPPORT", datetime(2027, 9, 1, tzinfo=UTC)),),
    add_ons={
        "amazon-cloudwatch-observability": "v6.4.0-eksbuild.1",
        "aws-fsx-csi-driver": "v1.8.0-eksbuild.1",
        "coredns": "v1.14.1-eksbuild.2",
        "eks-node-monitoring-agent": "v1.6.4-eksbuild.1",
        "eks-pod-identity-agent": "v1.3.10-eksbuild.3",
        "kube-proxy": "v1.36.2-eksbuild.1",
        "vpc-cni": "v1.23.1-eksbuild.1",
    },
    newest_release=NEWEST,
    bootstrap_version=31,
    roles={
        **dict.fromkeys(BOOTSTRAP, True),
        ADMINISTRATOR: True,
        "AWSServiceRoleForAmazonEKS": True,
        "AWSServiceRoleForAmazonEKSNodegroup": False,
        "AWSServiceRoleForAutoScaling": True,
        "AWSServiceRoleForAmazonFSx": True,
    },
    may_deploy=Simulation(CALLER, ()),
    may_create=Simulation(f"arn:aws:iam::{ACCOUNT}:role/{BOOTSTRAP[2]}", ()),
    artifacts={"the chart volcano 1.15.2": True},
)
"""Facts of an account for the example, before its first deployment."""


def found(of: Configuration | None = None, *, path: Path = Path("config/mine.yaml"), **changes: Any) -> list[Finding]:
    """What the checks say when some facts differ from those of the healthy account."""
    return list(findings(of or configuration(), dataclasses.replace(HEALTHY, **changes), path=path))


def troubles(of: Configuration | None = None, **changes: Any) -> list[tuple[str, str, str]]:
    """Check, level and what of every finding that is not fine."""
    return [(f.check, f.level.value, f.what) for f in found(of, **changes) if f.level is not Level.FINE]


def with_quota(code: str, quota: Any) -> Mapping[str, Any]:
    """The healthy account's quotas, but for one."""
    return {**HEALTHY.quotas, code: quota}
