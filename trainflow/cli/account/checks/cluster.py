"""The EKS cluster: its Kubernetes version, its add-ons, and a cluster of the name that is there already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta

from trainflow.cli.account.facts import EksCluster, Facts, Unknown
from trainflow.cli.account.findings import Finding, fails, fine, surprises, unchecked
from trainflow.cli.account.needs import ADD_ONS, DEFECTIVE_ADD_ONS, stack_names
from trainflow.cli.documents import page_path
from trainflow.configuration.deployment import Configuration

SOON = timedelta(days=90)
"""Time before the end of standard support that allows an upgrade in a test environment first."""

CHECKED_VERSIONS = ("1.33", "1.34", "1.35", "1.36", "1.37")
"""Versions whose schemas take the objects of runs without a field that they do not know: two before the oldest that the
stacks deploy, and up to the newest whose schemas there are."""


def kubernetes_version(configuration: Configuration, facts: Facts) -> Iterator[Finding]:
    """Does EKS offer the version, and for how long?"""
    versions, wanted = facts.cluster_versions, configuration.cluster.kubernetes_version
    if configuration.existing_cluster is not None or versions is None:
        return
    why = "The cluster is of support type STANDARD: at the end of standard support AWS upgrades it by itself."
    if isinstance(versions, Unknown):
        yield unchecked("kubernetes version", f"whether EKS offers {wanted}", versions, why=why)
        return
    supported = sorted((v.version for v in versions if v.status == "STANDARD_SUPPORT"), key=_minor)
    found = next((version for version in versions if version.version == wanted), None)
    fix = f"Set cluster.kubernetes_version to one of {', '.join(supported)} that {page_path('deploy.md')} supports."
    if found is None or found.status == "UNSUPPORTED":
        what = f"EKS does not offer Kubernetes {wanted}"
        yield fails("kubernetes version", what, why="EKS refuses to make the cluster.", fix=fix)
    elif found.status == "EXTENDED_SUPPORT":
        yield fails(
            "kubernetes version",
            f"Kubernetes {wanted} is in extended support",
            why="A cluster of support type STANDARD cannot be of such a version.",
            fix=fix,
        )
    elif found.end_of_standard_support is None:
        yield fine("kubernetes version", f"{wanted} is in standard support")
    else:
        left = found.end_of_standard_support - facts.now
        day = f"{found.end_of_standard_support:%Y-%m-%d}"
        if left < SOON:
            what = f"standard support of Kubernetes {wanted} ends on {day}, in {max(0, left.days)} days"
            yield surprises("kubernetes version", what, why=why, fix=fix)
        else:
            yield fine("kubernetes version", f"{wanted} is in standard support until {day}")


def add_ons(configuration: Configuration, facts: Facts) -> Iterator[Finding]:
    """Does EKS offer the add-ons for the version, and install none that is known to be defective?"""
    if configuration.existing_cluster is not None or facts.add_ons is None:
        return
    version = configuration.cluster.kubernetes_version
    why = "The cluster stack installs them and rolls back without."
    if isinstance(facts.add_ons, Unknown):
        yield unchecked("add-ons", f"whether EKS offers the add-ons for {version}", facts.add_ons, why=why)
        return
    missing = [name for name in ADD_ONS if name not in facts.add_ons]
    if missing:
        yield fails(
            "add-ons",
            f"EKS offers no {', no '.join(missing)} for Kubernetes {version}",
            why=why,
            fix="Choose another cluster.kubernetes_version.",
        )
        return
    # Of a cluster that is there, EKS does not change the add-ons' versions by itself.
    defective = [] if isinstance(facts.cluster, EksCluster) else [*_defective(facts.add_ons)]
    if defective:
        yield fails(
            "add-ons",
            f"EKS installs {', '.join(defective)} for Kubernetes {version}, which is defective",
            why="Its network policy agent stops traffic that the policies allow, as between the pods of a run.",
            fix="Choose another cluster.kubernetes_version, or wait until EKS installs a newer one: "
            f"aws eks describe-addon-versions --kubernetes-version {version} --addon-name vpc-cni",
        )
    else:
        yield fine("add-ons", f"all {len(ADD_ONS)} are offered for Kubernetes {version}")


def _defective(offered: Mapping[str, str]) -> Iterator[str]:
    for name, versions in DEFECTIVE_ADD_ONS.items():
        if offered[name].removeprefix("v").partition("-")[0] in versions:
            yield f"{name} {offered[name]}"


def the_cluster(configuration: Configuration, facts: Facts) -> Iterator[Finding]:
    """Is the name free, or the cluster that is there the right one?"""
    name, found = configuration.cluster_name, facts.cluster
    if isinstance(found, Unknown):
        why = "A name is given once in an account and Region."
        yield unchecked("cluster", f"whether there is a cluster {name}", found, why=why)
    elif configuration.existing_cluster is not None:
        yield _theirs(name, found)
    elif found is None:
        yield fine("cluster", f"the name {name} is free")
    else:
        yield _ours(configuration, facts, found)


def _theirs(name: str, found: EksCluster | None) -> Finding:
    if found is None:
        return fails(
            "cluster",
            f"existing_cluster.name: there is no cluster {name}",
            why="Everything else is deployed onto it.",
            fix="aws eks list-clusters, and correct the name or the Region.",
        )
    if found.status not in ("ACTIVE", "UPDATING"):
        return fails(
            "cluster",
            f"the cluster {name} is {found.status}",
            why="Its API has to answer.",
            fix=f"aws eks describe-cluster --name {name}",
        )
    if found.authentication_mode == "CONFIG_MAP":
        return fails(
            "cluster",
            f"the cluster {name} does not support access entries (authentication mode CONFIG_MAP)",
            why="The functions log in with access entries.",
            fix=f"aws eks update-cluster-config --name {name} --access-config authenticationMode=API_AND_CONFIG_MAP",
        )
    if found.ip_family == "ipv6":
        return fails(
            "cluster",
            f"the cluster {name} gives its pods IPv6 addresses only",
            why="The network policies of the runs let their pods reach IPv4 addresses only.",
            fix="Use a cluster whose IP family is ipv4; EKS cannot change it later.",
        )
    if found.version not in CHECKED_VERSIONS:
        return surprises(
            "cluster",
            f"the cluster {name} is of Kubernetes {found.version}",
            why="An older one drops fields of jobs that it does not know; a newer one may have removed them.",
            fix=f"Use a version from {CHECKED_VERSIONS[0]} to {CHECKED_VERSIONS[-1]}, whose schemas were tried.",
        )
    return fine("cluster", f"{name}: Kubernetes {found.version}, {found.status}")


def _ours(configuration: Configuration, facts: Facts, found: EksCluster) -> Finding:
    name, wanted = configuration.cluster_name, configuration.cluster.kubernetes_version
    stack = stack_names(configuration)["cluster"]
    owned = found.deployment == configuration.name
    if isinstance(facts.stacks, Mapping):
        owned = stack in facts.stacks
    if not owned:
        return fails(
            "cluster",
            f"there is a cluster {name} that is not of this deployment",
            why="EKS refuses a second cluster of the name.",
            fix="Choose another `name`, use it with existing_cluster, or delete it: "
            f"aws eks delete-cluster --name {name}",
        )
    steps = _minor(wanted) - _minor(found.version)
    if steps < 0 or steps > 1:
        return fails(
            "cluster",
            f"the cluster {name} is of Kubernetes {found.version}, and the configuration says {wanted}",
            why="EKS upgrades one minor version at a time and never goes back.",
            fix=f"Set cluster.kubernetes_version to {found.version} or the version after it.",
        )
    return fine("cluster", f"{name} is of this deployment, Kubernetes {found.version}")


def _minor(version: str) -> int:
    """36 for `1.36`; 0 if it is not a version."""
    minor = version.partition(".")[2]
    return int(minor) if minor.isdigit() else 0
