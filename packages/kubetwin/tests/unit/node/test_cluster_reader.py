"""Names of pods, as cluster DNS knows them."""

from __future__ import annotations

from typing import Any

import pytest
from kubetwin.node.cluster_reader import ClusterReader


class Api:
    """The two reads of the reader, over objects of one namespace."""

    def __init__(self, service: dict[str, Any] | None, *pods: dict[str, Any]) -> None:
        self.service, self.pods = service, list(pods)

    def find(self, path: str) -> dict[str, Any] | None:
        return {"spec": self.service} if self.service and path.endswith("/services/gang") else None

    def get(self, _path: str, *, labelSelector: str) -> dict[str, Any]:
        wanted = dict(pair.split("=") for pair in labelSelector.split(","))
        return {"items": [pod for pod in self.pods if wanted.items() <= pod["metadata"]["labels"].items()]}


def pod(*, subdomain: str = "gang", app: str = "gang", phase: str = "Pending") -> dict[str, Any]:
    spec = {"hostname": "job-0", "subdomain": subdomain}
    return {"metadata": {"labels": {"app": app}, "uid": "peer"}, "spec": spec, "status": {"phase": phase}}


HEADLESS = {"clusterIP": "None", "selector": {"app": "gang"}}


def resolves(api: Api, host: str = "job-0") -> bool:
    return ClusterReader(api, wait_seconds=0).names_a_pod(host, "gang", "ns")  # type: ignore[arg-type]


def test_a_pod_of_a_headless_service_has_a_name() -> None:
    assert resolves(Api(HEADLESS, pod()))


@pytest.mark.parametrize(
    "api",
    [
        Api(None, pod()),
        Api({**HEADLESS, "clusterIP": "10.96.0.1"}, pod()),
        Api({"clusterIP": "None"}, pod()),
        Api(HEADLESS),
        Api(HEADLESS, pod(app="other")),
        Api(HEADLESS, pod(subdomain="other")),
        Api(HEADLESS, pod(phase="Succeeded")),
    ],
    ids=["no service", "not headless", "no selector", "no pod", "not selected", "another subdomain", "ended"],
)
def test_a_name_that_cluster_dns_lacks_is_none(api: Api) -> None:
    assert not resolves(api)


def test_a_host_that_no_pod_has_is_no_name() -> None:
    assert not resolves(Api(HEADLESS, pod()), host="job-1")


def test_a_service_of_one_replica_is_a_name_when_it_selects_a_pod() -> None:
    service = {"clusterIP": "None", "selector": {"training.kubeflow.org/replica-index": "0"}}
    labels = {"training.kubeflow.org/replica-index": "0"}
    replica = {"metadata": {"labels": labels, "uid": "replica"}, "spec": {}, "status": {}}
    for api, expected in ((Api(service, replica), True), (Api(service), False), (Api(HEADLESS, pod()), False)):
        reader = ClusterReader(api, wait_seconds=0)  # type: ignore[arg-type]
        assert reader.names_one_pod("gang", "ns") is expected


@pytest.mark.parametrize("holder", ["containers", "initContainers"])
def test_a_pod_with_a_readiness_probe_has_a_name_when_it_is_ready_or_its_service_says_so(holder: str) -> None:
    probed = pod(phase="Running")
    probed["spec"][holder] = [{"name": "c", "readinessProbe": {"tcpSocket": {"port": 1}}}]
    assert not resolves(Api(HEADLESS, probed))
    assert resolves(Api({**HEADLESS, "publishNotReadyAddresses": True}, probed))
    reader = ClusterReader(Api(HEADLESS, probed), wait_seconds=0)  # type: ignore[arg-type]
    assert reader.names_a_pod("job-0", "gang", "ns", asker="peer"), "a kubelet tells a pod its own name"
    probed["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    assert resolves(Api(HEADLESS, probed))
