"""`python -m tests.integration.injecting_cluster …`: kubetwin that injects containers, as a mesh does.

The name of a run chooses the containers: pods of `NAME-…` get those of `INJECTED[NAME]`.
"""

from __future__ import annotations

from typing import Any

from kubetwin.__main__ import main
from kubetwin.model.errors import Object
from kubetwin.resources import pod_defaults, pods
from kubetwin.store import Store

from trainflow.deployment.kubernetes_names import RUN_LABEL


def _container(name: str, script: str) -> dict[str, Any]:
    return {"name": name, "image": "busybox", "command": ["/bin/sh", "-c", f"echo {name} talks; {script}"]}


INJECTED: dict[str, dict[str, list[dict[str, Any]]]] = {
    "keeps": {"containers": [_container("agent", "exec sleep 600"), _container("zz-proxy", "exec sleep 600")]},
    "ends": {"containers": [_container("agent", "exit 0")]},
    "beside": {"initContainers": [_container("mesh", "exec sleep 600") | {"restartPolicy": "Always"}]},
}


def _inject(pod: Object, store: Store) -> None:
    run = (pod["metadata"].get("labels") or {}).get(RUN_LABEL, "")
    for group, injected in INJECTED.get(run.partition("-")[0], {}).items():
        for container in injected:
            added = {**container}
            pod_defaults.default_container(added)
            pod["spec"].setdefault(group, []).insert(0, added)
    pod_defaults.prepare_pod(pod, store)


def inject_containers() -> None:
    """Let the API server add the containers to new pods."""
    object.__setattr__(pods.RESOURCES[0], "prepare", _inject)


if __name__ == "__main__":
    inject_containers()
    main()
