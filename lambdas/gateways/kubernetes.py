"""The Kubernetes API, logged in to as on EKS: endpoint and CA from EKS, a presigned STS token."""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from typing import Any

from kubernetes import client
from urllib3.exceptions import HTTPError

from lambdas.errors import BackendNotInstalled, ClusterAccessDenied, ClusterUnavailable, JobConflict, JobNotFound
from lambdas.gateways import eks
from lambdas.gateways.backend import Claim, JobStatus, LogLine, WorkerPod
from lambdas.gateways.job_status import job_status
from lambdas.gateways.kubernetes_objects import Node, claim_of, log_lines, obstacle, worker_pod
from lambdas.models.backends import BACKENDS, Backend
from lambdas.models.instances import INSTANCE_TYPE_LABEL
from lambdas.models.kubernetes_names import (
    BACKEND_LABEL,
    CLAIM_LABEL,
    JOB_LABEL,
    MANAGED_BY,
    RUN_LABEL,
    SPEC_HASH_ANNOTATION,
)
from lambdas.models.run import JobRef

TOKEN_LIFETIME_SECONDS = 600
"""EKS accepts a token for 15 minutes; it is renewed well before."""

REQUEST_TIMEOUT_SECONDS = (5, 20)
"""To connect, to read. A Lambda that hangs costs a whole poll lap."""

LOG_LIMIT_BYTES = 8 * 1024 * 1024
"""Most that one look at a log reads; the rest waits for the next look."""

MAX_FAILED_PODS = 5
"""Failed pods that are looked at: the first one is the cause, the others mostly its victims."""

MANAGED_BY_SELECTOR = ",".join(f"{name}={value}" for name, value in MANAGED_BY.items())

CORE = "/api/v1"
KIND_API = {(backend.api_version, backend.kind): backend.api for backend in BACKENDS.values()}
"""Where the objects that are jobs live; all others that we make are in the core group."""


@lru_cache
def _ca_file(cluster: str) -> str:
    """The CA certificate as a file, as the TLS library wants it; /tmp is the only folder a Lambda may write to."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem", delete=False) as file:
        file.write(eks.describe_cluster(cluster).ca_pem)
    return file.name


@lru_cache(maxsize=2)
def _api_client(cluster: str, _token_period: int) -> client.ApiClient:
    configuration = client.Configuration()
    configuration.host = eks.describe_cluster(cluster).url
    configuration.ssl_ca_cert = _ca_file(cluster)
    configuration.api_key = {"authorization": f"Bearer {eks.bearer_token(cluster)}"}
    configuration.retries = False
    return client.ApiClient(configuration)


def connect(cluster: str, *, namespace: str) -> KubernetesBackend:
    """A connection to the cluster; client and token are shared by the invocations of a warm Lambda."""
    with _translated():
        return KubernetesBackend(_api_client(cluster, int(time.time() // TOKEN_LIFETIME_SECONDS)), namespace=namespace)


class KubernetesBackend:
    """Runs jobs of every kind in `BACKENDS`. Implements `lambdas.gateways.backend.Backend`."""

    def __init__(self, api: client.ApiClient, *, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    def submit(self, objects: Sequence[dict[str, Any]]) -> None:
        """Create the objects in their order.

        Raises:
            JobConflict: If one of them exists and was made from another specification.
        """
        for manifest in objects:
            try:
                self._call("POST", self._collection_of(manifest), body=manifest)
            except client.ApiException as error:
                if error.status == 409:
                    self._expect_same(manifest)
                    continue
                _require_installed(manifest, error)
                raise

    def status(self, job: JobRef) -> JobStatus:
        """One call, whatever the number of nodes.

        Raises:
            JobNotFound: If the job is not there (any more).
        """
        try:
            found = self._call("GET", f"{self._jobs(BACKENDS[job.backend])}/{job.name}")
        except client.ApiException as error:
            if error.status == 404:
                raise JobNotFound(f"The job '{job.name}' is not in the cluster (any more).") from None
            raise
        return job_status(job, found)

    def failed_pods(self, job: JobRef) -> list[WorkerPod]:
        """At most five failed pods, the first to fail first."""
        pods = self._pods(f"{JOB_LABEL}={job.name}", field_selector="status.phase=Failed", limit=MAX_FAILED_PODS)
        return sorted(map(worker_pod, pods), key=lambda pod: (pod.finished_at is None, pod.finished_at, pod.name))

    def failed_pods_of_run(self, run_id: str) -> list[WorkerPod]:
        """At most five failed pods of any stage of the run."""
        pods = self._pods(f"{RUN_LABEL}={run_id}", field_selector="status.phase=Failed", limit=MAX_FAILED_PODS)
        return [worker_pod(pod) for pod in pods]

    def obstacle(self, job: JobRef) -> str | None:
        """What one of the pending pods waits for: a node, as the scheduler says it, or its image."""
        pods = self._pods(f"{JOB_LABEL}={job.name}", field_selector="status.phase=Pending", limit=1)
        return obstacle(pods[0]) if pods else None

    def rank0(self, job: JobRef) -> str | None:
        """The pod of index 0: static rendezvous gives it rank 0. One call."""
        pod = self._pod_of_index_0(job)
        return str(pod["metadata"]["name"]) if pod else None

    def result(self, job: JobRef, *, pod: str | None = None) -> str | None:
        """The termination message of a pod's container; None while it runs or when it left none."""
        found = self._pod_of_index_0(job) if pod is None else self._pod(pod)
        return worker_pod(found).message if found else None

    def read_log(self, pod: str, *, since: datetime | None = None, tail_lines: int | None = None) -> list[LogLine]:
        """Complete lines, oldest first; `since` is exact to the second, so lines of that second come again."""
        query: list[tuple[str, Any]] = [("timestamps", "true"), ("limitBytes", LOG_LIMIT_BYTES)]
        if since is not None:
            query.append(("sinceTime", since.strftime("%Y-%m-%dT%H:%M:%SZ")))
        if tail_lines is not None:
            query.append(("tailLines", tail_lines))
        try:
            text = self._call("GET", f"{self._core('pods')}/{pod}/log", query=query, as_text=True)
        except client.ApiException as error:
            # 400: the container has not started; 404: the pod is gone. Neither has a log to read.
            if error.status in (400, 404):
                return []
            raise
        return list(log_lines(text))

    def cancel(self, run_id: str) -> list[str]:
        """Delete the run's jobs with their pods, its services, and its claim on nodes."""
        names = [name for backend in BACKENDS.values() for name in self._delete_jobs(backend, run_id)]
        for plural in ("services", "configmaps"):
            for found in self._list(self._core(plural), f"{RUN_LABEL}={run_id}"):
                self._delete(f"{self._core(plural)}/{found['metadata']['name']}")
        return names

    def delete(self, job: JobRef) -> None:
        """Delete one job with its pods and its service, and nothing else of the run. Safe to repeat."""
        self._delete(f"{self._jobs(BACKENDS[job.backend])}/{job.name}")
        if job.backend == "job":
            self._delete(f"{self._core('services')}/{job.name}")

    def nodes(self, instance_type: str) -> list[Node]:
        """Every node of an instance type."""
        return [Node(found) for found in self._list("/api/v1/nodes", f"{INSTANCE_TYPE_LABEL}={instance_type}")]

    def claim_nodes(self, run_id: str, instance_type: str, num_nodes: int) -> None:
        """Say that the run needs nodes, until it is cancelled. Safe to repeat."""
        labels = {**MANAGED_BY, RUN_LABEL: run_id, CLAIM_LABEL: instance_type}
        claim = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{run_id}-nodes", "labels": labels},
            "data": {"num_nodes": str(num_nodes)},
        }
        try:
            self._call("POST", self._core("configmaps"), body=claim)
        except client.ApiException as error:
            if error.status != 409:
                raise

    def claimed_nodes(self, instance_type: str) -> int:
        """Nodes that all runs together claim."""
        return sum(claim.num_nodes for claim in self._claims(f"{CLAIM_LABEL}={instance_type}"))

    def claims(self) -> list[Claim]:
        """Every claim on nodes."""
        return self._claims(CLAIM_LABEL)

    def drop_claim(self, claim: Claim) -> None:
        """Forget a claim of a run that is over. Safe to repeat."""
        self._delete(f"{self._core('configmaps')}/{claim.name}")

    def pods_by_phase(self) -> Counter[str]:
        """How many pods of all runs there are in each phase."""
        return Counter(str(pod["status"].get("phase")) for pod in self._pods(MANAGED_BY_SELECTOR))

    def nodes_used_by_others(self, run_id: str) -> set[str]:
        """Nodes that hold unfinished pods of other runs."""
        pods = self._pods(
            f"{RUN_LABEL},{RUN_LABEL}!={run_id}", field_selector="status.phase!=Succeeded,status.phase!=Failed"
        )
        return {pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}

    def _claims(self, selector: str) -> list[Claim]:
        return [claim_of(found) for found in self._list(self._core("configmaps"), selector)]

    def _expect_same(self, manifest: dict[str, Any]) -> None:
        name = manifest["metadata"]["name"]
        existing = self._call("GET", f"{self._collection_of(manifest)}/{name}")
        wanted = manifest["metadata"]["annotations"][SPEC_HASH_ANNOTATION]
        if (existing["metadata"].get("annotations") or {}).get(SPEC_HASH_ANNOTATION) != wanted:
            raise JobConflict(f"A {manifest['kind']} named '{name}' exists and was made from another specification.")

    def _delete_jobs(self, backend: Backend, run_id: str) -> list[str]:
        """Of one kind; of a kind that the cluster does not know there are none."""
        try:
            # The pods of other kinds of jobs go with those; of a JobSet's own Job nothing is labelled so.
            found = self._list(self._jobs(backend), f"{RUN_LABEL}={run_id},{BACKEND_LABEL}={backend.name}")
        except client.ApiException as error:
            if backend.software and error.status == 404:
                return []
            raise
        names = [str(job["metadata"]["name"]) for job in found]
        for name in names:
            self._delete(f"{self._jobs(backend)}/{name}")
        return names

    def _jobs(self, backend: Backend) -> str:
        return f"{backend.api}/namespaces/{self._namespace}/{backend.plural}"

    def _core(self, plural: str) -> str:
        return f"{CORE}/namespaces/{self._namespace}/{plural}"

    def _collection_of(self, manifest: dict[str, Any]) -> str:
        api = KIND_API.get((manifest["apiVersion"], manifest["kind"]), CORE)
        return f"{api}/namespaces/{self._namespace}/{manifest['kind'].lower()}s"

    def _pod_of_index_0(self, job: JobRef) -> Any:
        labels = {JOB_LABEL: job.name, **BACKENDS[job.backend].rank0}
        pods = self._pods(",".join(f"{name}={value}" for name, value in labels.items()), limit=1)
        return pods[0] if pods else None

    def _pod(self, name: str) -> Any:
        try:
            return self._call("GET", f"{self._core('pods')}/{name}")
        except client.ApiException as error:
            if error.status == 404:
                return None
            raise

    def _pods(self, label_selector: str, *, field_selector: str = "", limit: int = 0) -> list[Any]:
        return self._list(self._core("pods"), label_selector, field_selector=field_selector, limit=limit)

    def _list(self, path: str, label_selector: str, *, field_selector: str = "", limit: int = 0) -> list[Any]:
        query: list[tuple[str, Any]] = [("labelSelector", label_selector)]
        if field_selector:
            query.append(("fieldSelector", field_selector))
        if limit:
            query.append(("limit", limit))
        items: list[Any] = self._call("GET", path, query=query)["items"]
        return items

    def _delete(self, path: str) -> None:
        try:
            self._call("DELETE", path, query=[("propagationPolicy", "Background")])
        except client.ApiException as error:
            if error.status != 404:
                raise

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, Any]] = (),
        body: Any = None,
        as_text: bool = False,
    ) -> Any:
        """One request, as plain JSON: the generated models would cost more time than the request itself."""
        with _translated():
            response = self._api.call_api(
                path,
                method,
                query_params=list(query),
                header_params={"Accept": "*/*" if as_text else "application/json", "Content-Type": "application/json"},
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _return_http_data_only=True,
                _request_timeout=REQUEST_TIMEOUT_SECONDS,
            )
        return response.data.decode(errors="replace") if as_text else json.loads(response.data)


@contextmanager
def _translated() -> Iterator[None]:
    """Raise our errors for what any call may meet; 404 and 409 are the caller's to understand."""
    try:
        yield
    except client.ApiException as error:
        if error.status == 429 or error.status >= 500:
            raise ClusterUnavailable(f"The Kubernetes API answered {error.status} {error.reason}.") from error
        if error.status in (401, 403):
            raise ClusterAccessDenied(f"The Kubernetes API refused: {_status_message(error)}.") from error
        raise
    except HTTPError as error:
        raise ClusterUnavailable(f"The Kubernetes API did not answer: {error}.") from error


def _status_message(error: client.ApiException) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return f"{error.status} {error.reason}"


def _require_installed(manifest: dict[str, Any], error: client.ApiException) -> None:
    """A path that no API group answers for is plain text; a missing namespace would be a Status.

    Raises:
        BackendNotInstalled: If it was such a path.
    """
    if error.status != 404 or _is_status(error):
        return
    for backend in BACKENDS.values():
        if backend.software and (backend.api_version, backend.kind) == (manifest["apiVersion"], manifest["kind"]):
            raise BackendNotInstalled(
                f"compute.backend is '{backend.name}', but {backend.software} is not installed in the cluster: it does "
                f"not know {backend.plural}.{backend.group}."
            ) from None


def _is_status(error: client.ApiException) -> bool:
    try:
        return bool(json.loads(error.body)["kind"] == "Status")
    except (TypeError, ValueError, KeyError):
        return False
