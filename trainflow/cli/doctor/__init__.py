"""`trainflow doctor`: why do a run's pods not find each other, their files, their devices or their image?

The connectivity checks of the PyTorchJob tutorial (nslookup, nc, describe, get events, from a pod made by hand) as one
command, on every backend. `examination.py` asks the cluster, `inside.py` runs in a pod, `findings.py` judges.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from rich.markup import escape

from trainflow.cli.doctor.cluster import DoctorError, KubernetesCluster
from trainflow.cli.doctor.examination import examine
from trainflow.cli.doctor.findings import Finding, Outcome, findings
from trainflow.cli.json_output import VERSION, print_json
from trainflow.cli.terminal import Console
from trainflow.kubernetes.api import KubernetesApi

__all__ = ["DoctorError", "doctor"]

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
    found = list(findings(evidence))
    if as_json:
        print_json({"version": VERSION, "run_id": run, "findings": [asdict(finding) for finding in found]})
    else:
        for finding in found:
            _print(console, finding)
    return SOMETHING_FAILED if any(f.outcome is Outcome.FAILED for f in found) else ALL_WELL


def _print(console: Console, finding: Finding) -> None:
    style = _STYLES[finding.outcome]
    advice = f" {finding.advice}" if finding.advice else ""
    text = f"{finding.check}: {finding.seen}{'.' if advice and not finding.seen.endswith('.') else ''}{advice}"
    console.print(f"[{style}]{finding.outcome.value:<7}[/] {escape(text)}", highlight=False, soft_wrap=True)
