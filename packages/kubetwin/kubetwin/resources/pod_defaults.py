"""Defaults of pods and pod templates, and the additions of admission to a new pod."""

from __future__ import annotations

import copy
from typing import Any

from kubetwin.model import errors, times
from kubetwin.model.errors import GroupResource, Object
from kubetwin.model.quantity import parse_quantity
from kubetwin.store import Store

TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 (a path)
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def default_pod_spec(spec: Object) -> None:
    """Defaults that a pod and a template share."""
    for name in ("initContainers", "containers"):
        for container in spec.get(name) or []:
            default_container(container)
    for volume in spec.get("volumes") or []:
        _default_volume(volume)
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]


def default_container(container: Object) -> None:
    """Defaults of one container."""
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", _pull_policy(container.get("image", "")))
    for port in container.get("ports") or []:
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or []:
        _default_field(variable.get("valueFrom") or {})
    for hook in (container.get("lifecycle") or {}).values():
        _default_handler(hook)
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            _default_handler(container[probe])
            for key, value in (
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ):
                container[probe].setdefault(key, value)


def _default_handler(handler: Object) -> None:
    if "httpGet" in handler:
        handler["httpGet"].setdefault("path", "/")
        handler["httpGet"].setdefault("scheme", "HTTP")
    if "grpc" in handler:
        handler["grpc"].setdefault("service", "")


def _pull_policy(image: str) -> str:
    tag = image.rsplit("/", 1)[-1].partition("@")[0].partition(":")[2]
    return "Always" if tag in ("", "latest") and "@" not in image else "IfNotPresent"


def _default_field(source: Object) -> None:
    if "fieldRef" in source:
        source["fieldRef"].setdefault("apiVersion", "v1")


def _default_volume(volume: Object) -> None:
    if set(volume) == {"name"}:
        volume["emptyDir"] = {}
    for source in ("configMap", "secret", "projected", "downwardAPI"):
        if source in volume:
            volume[source].setdefault("defaultMode", 0o644)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    for item in (volume.get("downwardAPI") or {}).get("items") or []:
        _default_field(item)
    for source in (volume.get("projected") or {}).get("sources") or []:
        source.get("serviceAccountToken", {}).setdefault(
            "expirationSeconds", 3600
        ) if "serviceAccountToken" in source else None
        for item in (source.get("downwardAPI") or {}).get("items") or []:
            _default_field(item)


def default_pod(pod: Object) -> None:
    """Defaults of a pod that a template does not have: limits become requests, ports those of the host's network."""
    spec = pod.setdefault("spec", {})
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    for name in ("initContainers", "containers"):
        for container in spec.get(name) or []:
            limits = container["resources"].get("limits") or {}
            if limits:
                requests = container["resources"].setdefault("requests", {})
                for resource, amount in limits.items():
                    requests.setdefault(resource, amount)
            for port in container.get("ports") or [] if spec.get("hostNetwork") else []:
                port["hostPort"] = port.get("hostPort") or port.get("containerPort", 0)


def prepare_pod(pod: Object, store: Store) -> None:
    """Add the fields of admission plugins (service account, priority, runtime class) and the first status."""
    spec = pod["spec"]
    _admit_service_account(pod, store)
    _admit_priority(pod, store)
    _admit_runtime_class(pod)
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        gated = {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": times.seconds(times.now()),
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }
        pod["status"]["conditions"] = [gated]


def _admit_service_account(pod: Object, store: Store) -> None:
    spec, metadata = pod["spec"], pod["metadata"]
    account = spec.setdefault("serviceAccountName", spec.get("serviceAccount") or "default")
    spec["serviceAccount"] = account
    found = store.get("serviceaccounts", metadata["namespace"], account)
    if found is None:
        detail = (
            f'error looking up service account {metadata["namespace"]}/{account}: serviceaccount "{account}" not found'
        )
        raise errors.forbidden(GroupResource("pods"), metadata.get("name", ""), detail)
    if found.get("imagePullSecrets") and not spec.get("imagePullSecrets"):
        spec["imagePullSecrets"] = copy.deepcopy(found["imagePullSecrets"])
    wanted = spec.get("automountServiceAccountToken", found.get("automountServiceAccountToken", True))
    if wanted and spec.get("containers"):
        _mount_token(spec, metadata)


def _mount_token(spec: Object, metadata: Object) -> None:
    name = f"kube-api-access-{metadata['uid'][:5]}"
    mounted = False
    for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
        mounts = container.setdefault("volumeMounts", [])
        if all(mount.get("mountPath") != TOKEN_PATH for mount in mounts):
            mounts.append({"name": name, "readOnly": True, "mountPath": TOKEN_PATH})
            mounted = True
    if mounted:
        spec.setdefault("volumes", []).append({"name": name, "projected": _token_sources()})


def _token_sources() -> dict[str, Any]:
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    return {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [namespace]}},
        ],
        "defaultMode": 0o644,
    }


def _admit_priority(pod: Object, store: Store) -> None:
    spec = pod["spec"]
    name = spec.get("priorityClassName", "")
    classes = store.objects("priorityclasses.scheduling.k8s.io")
    if not name:
        chosen = next((c for c in classes if c.get("globalDefault")), None)
        if chosen is not None:
            spec["priorityClassName"] = chosen["metadata"]["name"]
    else:
        chosen = next((c for c in classes if c["metadata"]["name"] == name), None)
        if chosen is None and name not in SYSTEM_PRIORITIES:
            detail = f"no PriorityClass with name {name} was found"
            raise errors.forbidden(GroupResource("pods"), pod["metadata"].get("name", ""), detail)
    computed = chosen["value"] if chosen else SYSTEM_PRIORITIES.get(name, 0)
    if spec.get("priority", computed) != computed:
        detail = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {computed} from the given PriorityClass name"
        )
        raise errors.forbidden(GroupResource("pods"), pod["metadata"].get("name", ""), detail)
    spec["priority"] = computed
    spec.setdefault("preemptionPolicy", (chosen or {}).get("preemptionPolicy", "PreemptLowerPriority"))


def _admit_runtime_class(pod: Object) -> None:
    name = pod["spec"].get("runtimeClassName")
    if not name and pod["spec"].get("overhead"):
        detail = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        raise errors.forbidden(GroupResource("pods"), pod["metadata"].get("name", ""), detail)
    if name:  # this cluster has none
        detail = f'pod rejected: RuntimeClass "{name}" not found'
        raise errors.forbidden(GroupResource("pods"), pod["metadata"].get("name", ""), detail)


def tolerate_lost_nodes(spec: Object, seconds: int) -> None:
    """Let a pod stay for a while on a node that is lost, as the admission plugin DefaultTolerationSeconds does."""
    tolerations = spec.setdefault("tolerations", [])
    for state in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{state}"
        covered = any(t.get("key", "") in ("", key) and t.get("effect", "") in ("", "NoExecute") for t in tolerations)
        if not covered:
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds})


def qos_class(spec: Object) -> str:
    """Guaranteed, Burstable or BestEffort, from only CPU and memory."""
    containers = [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
    asked = False
    guaranteed = True
    for container in containers:
        limits = container["resources"].get("limits") or {}
        requests = container["resources"].get("requests") or {}
        for name in ("cpu", "memory"):
            asked = asked or name in limits or name in requests
            same = name in limits and parse_quantity(requests.get(name, limits[name])) == parse_quantity(limits[name])
            guaranteed = guaranteed and same
    if not asked:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"
