"""The container that a request about a pod means."""

from __future__ import annotations

from kubetwin.model.errors import Object, bad_request


def container_of(pod: Object, wanted: str) -> str:
    """Name of the container that a request for a log or a stream means.

    Raises:
        ApiError: 400 if the container does not exist, or if the pod has several and the request names none.
    """
    spec, name = pod["spec"], pod["metadata"]["name"]
    names = [str(c["name"]) for c in spec["containers"]]
    others = [c["name"] for c in spec.get("initContainers") or []]
    if wanted:
        if wanted not in names and wanted not in others:
            raise bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    if len(names) > 1:
        chosen = f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
        raise bad_request(chosen + (f" or one of the init containers: [{' '.join(others)}]" if others else ""))
    return names[0]
