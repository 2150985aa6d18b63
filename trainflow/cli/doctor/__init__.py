"""`trainflow doctor`: why do a run's pods not find each other, their files, their devices or their image?

The connectivity checks of the PyTorchJob tutorial (nslookup, nc, describe, get events, from a pod made by hand) as one
command, on every backend. `examination.py` asks the cluster, `inside.py` runs in a pod, `findings.py` judges. Without a
run, `deployed/` examines the deployment and its cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rich.markup import escape

from trainflow.cli.doctor.cluster import DoctorError, KubernetesCluster
from trainflow.cli.doctor.deployed.checks import aws_findings, cluster_findings, unreachable
from trainflow.cli.doctor.deployed.facts import Answer, ClusterFacts, Unasked
from trainflow.cli.doctor.deployed.gathering import Client, ask_aws, ask_cluster
from trainflow.cli.doctor.examination import examine
from trainflow.cli.doctor.findings import Finding, Outcome, findings
from trainflow.cli.json_output import VERSION, print_json
from trainflow.cli.terminal import Console
from trainflow.deployment.address import DeploymentAddress
from trainflow.errors import TrainflowError
from trainflow.kubernetes.api import KubernetesApi

__all__ = ["DoctorError", "doctor", "doctor_of_place"]

ALL_WELL, SOMETHING_FAILED = 0, 1
_STYLES = {Outcome.OK: "green", Outcome.FAILED: "red", Outcome.SKIPPED: "dim"}


def doctor(
    run: str,
    *,
    kubeconfig: Path | None,
    namespace: str,
    console: Console,
    as_json: bool = False,
    api: KubernetesApi | None = None,
    devices_on_paper: bool = False,
) -> int:
    """Examine a run's pods and print one line a check.

    Args:
        run: The run's id.
        kubeconfig: The cluster; as kubectl chooses if not given.
        namespace: Namespace of the run's pods.
        console: Where to print.
        as_json: Print one JSON document instead.
        api: The cluster, where a place names it.
        devices_on_paper: Whether its nodes offer devices that they do not have.

    Returns:
        The command's exit status: 0 if nothing failed, 1 otherwise.

    Raises:
        DoctorError: If the run cannot be examined.
    """
    cluster = KubernetesCluster(kubeconfig, api=api)
    with console.status(f"Looking at {run} …"):
        evidence = replace(examine(cluster, run, namespace), devices_on_paper=devices_on_paper)
    return _show(list(findings(evidence)), {"run_id": run}, console=console, as_json=as_json)


def doctor_of_place(
    address: DeploymentAddress,
    *,
    client: Client,
    kubernetes: Callable[[], KubernetesApi],
    console: Console,
    as_json: bool = False,
) -> int:
    """Examine a deployment and its cluster, and print one line a check.

    Args:
        address: Names of the deployment's parts.
        client: Makes a boto3 client of a service.
        kubernetes: Connects to the cluster.
        console: Where to print.
        as_json: Print one JSON document instead.

    Returns:
        The command's exit status: 0 if nothing failed, 1 otherwise.
    """
    with console.status(f"Looking at the deployment {address.deployment} …"):
        cluster, systems = _ask_cluster(kubernetes, address.namespace)
        found = list(aws_findings(ask_aws(address, client, systems)))
    if isinstance(cluster, Unasked):
        found.append(unreachable(cluster))
    else:
        found += cluster_findings(cluster)
    status = _show(found, {"deployment": address.deployment}, console=console, as_json=as_json)
    first = next((finding.check for finding in found if finding.outcome is Outcome.FAILED), None)
    if first is not None and not as_json:
        console.print(f"Begin with: {first}.", markup=False, highlight=False)
    return status


def _ask_cluster(
    kubernetes: Callable[[], KubernetesApi], namespace: str
) -> tuple[ClusterFacts | Unasked, Answer[Sequence[str]]]:
    try:
        return ask_cluster(kubernetes(), namespace)
    except TrainflowError as refused:  # it could not be found or opened: the cluster's own line has more
        return Unasked(str(refused)), Unasked(str(refused))


def _show(found: Sequence[Finding], subject: Mapping[str, str], *, console: Console, as_json: bool) -> int:
    if as_json:
        print_json({"version": VERSION, **subject, "findings": [asdict(finding) for finding in found]})
    else:
        for finding in found:
            _print(console, finding)
    return SOMETHING_FAILED if any(f.outcome is Outcome.FAILED for f in found) else ALL_WELL


def _print(console: Console, finding: Finding) -> None:
    style = _STYLES[finding.outcome]
    advice = f" {finding.advice}" if finding.advice else ""
    text = f"{finding.check}: {finding.seen}{'.' if advice and not finding.seen.endswith('.') else ''}{advice}"
    console.print(f"[{style}]{finding.outcome.value:<7}[/] {escape(text)}", highlight=False, soft_wrap=True)
