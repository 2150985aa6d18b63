"""What the charts and add-ons put into the cluster, as recorded in tests/assets/charts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

Facts = dict[str, Any]

CHARTS: dict[str, Facts] = {
    name: facts
    for file in ("rendered", "read")
    for name, facts in yaml.safe_load(Path(f"tests/assets/charts/{file}.yaml").read_text()).items()
}
"""Facts by chart or add-on: rendered ones, and those of the few that were read (tests/chart_facts.py)."""


def recorded_pods(*kinds: str) -> list[tuple[str, Facts]]:
    """Chart and pod of every workload of these kinds; the pod is its template with a name."""
    return [(name, pod) for name, facts in CHARTS.items() for pod in facts["pods"] if pod["kind"] in kinds]


def as_pod(recorded: Facts) -> Facts:
    """A pod of a recorded workload, as the scheduler reads it."""
    spec = recorded["spec"]
    containers = {
        key: [
            {**one, "ports": [{"containerPort": port, "hostPort": port} for port in one.get("hostPorts", ())]}
            for one in spec[key]
        ]
        for key in ("initContainers", "containers")
        if key in spec
    }
    return {"metadata": {"name": recorded["name"], "namespace": recorded["namespace"]}, "spec": {**spec, **containers}}
