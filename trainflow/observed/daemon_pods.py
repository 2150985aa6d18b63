"""The parser of daemon sets, for what their pods request (`trainflow.nodes.daemon_pods`)."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from trainflow.nodes.daemon_pods import DaemonPods
from trainflow.observed.quantity import parse_quantity


def read_daemon_pods(manifest: Mapping[str, Any]) -> DaemonPods:
    """Parse a daemon set that the API serves."""
    spec = ((manifest.get("spec") or {}).get("template") or {}).get("spec") or {}
    beside = [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    resources = [each.get("resources") or {} for each in (*(spec.get("containers") or ()), *beside)]
    cpu, memory = (
        sum(
            # A container that names a limit alone requests as much.
            (
                parse_quantity((each.get("requests") or {}).get(kind, (each.get("limits") or {}).get(kind, 0)))
                for each in resources
            ),
            Decimal(0),
        )
        for kind in ("cpu", "memory")
    )
    return DaemonPods(name=manifest["metadata"]["name"], cpu=cpu, memory=memory, spec=spec)
