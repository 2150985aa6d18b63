"""Services: what the server allocates, keeps, drops and refuses, with its words (pkg/apis/core/validation)."""

from __future__ import annotations

from typing import Any

import pytest
from kubetwin.model.errors import ApiError
from kubetwin.resources import load_registry
from kubetwin.state.cluster import Cluster
from kubetwin.store import Store

Object = dict[str, Any]


class Services:
    """Creates and updates Services of one namespace."""

    def __init__(self) -> None:
        self.cluster = Cluster(Store(), load_registry())
        self.cluster.create(self.cluster.registry.by_key("namespaces"), "", {"metadata": {"name": "ns"}})
        self.resource = self.cluster.registry.by_key("services")

    def create(self, name: str = "s", **spec: Any) -> Object:
        body = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}
        stored: Object = self.cluster.create(self.resource, "ns", body)["spec"]
        return stored

    def update(self, name: str = "s", **spec: Any) -> Object:
        old = self.cluster.get(self.resource, "ns", name)
        stored: Object = self.cluster.update(self.resource, "ns", {**old, "spec": {**old["spec"], **spec}})["spec"]
        return stored


@pytest.fixture
def services() -> Services:
    return Services()


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        ({"clusterIP": "abc"}, 'spec.clusterIPs[0]: Invalid value: "abc": must be a valid IP address, (e.g. 10.9.8.7'),
        ({"clusterIP": "1.2.3.4"}, 'Invalid value: ["1.2.3.4"]: failed to allocate IP 1.2.3.4: the provided IP (1.2.3'),
        ({"type": "ExternalName"}, "spec.externalName: Required value"),
        (
            {"type": "ExternalName", "externalName": "A"},
            'spec.externalName: Invalid value: "A": a lowercase RFC 1123 s',
        ),
        ({"type": "ExternalName", "externalName": "a", "clusterIP": "None"}, "spec.clusterIPs: Forbidden: may not be"),
        ({"type": "NodePort", "clusterIP": "None"}, "may not be set to 'None' for NodePort services"),
        ({"type": "LoadBalancer", "ports": [{"port": 10250}]}, "may not expose port 10250 externally since it is used"),
        (
            {"ports": [{"port": 1, "nodePort": 30000}]},
            "nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
        ),
        ({"type": "NodePort", "ports": [{"port": 1, "nodePort": 80}]}, "The range of valid ports is 30000-32767"),
        ({"ports": [{"port": 1, "targetPort": "UP"}]}, 'spec.ports[0].targetPort: Invalid value: "UP": must contain o'),
        ({"ports": [{"port": 1, "targetPort": 70000}]}, "spec.ports[0].targetPort: Invalid value: 70000: must be betw"),
        ({"ports": [{"port": 1, "name": "A_"}]}, 'spec.ports[0].name: Invalid value: "A_": a lowercase RFC 1123 label'),
        (
            {"ports": [{"port": 1, "name": "a"}, {"port": 1, "name": "b"}]},
            'spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,"Port":1,"TargetPort":0,',
        ),
        ({"sessionAffinityConfig": {"clientIP": {}}}, "must not be set when session affinity is None"),
        (
            {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}},
            "clientIP.timeoutSeconds: Invalid value: 0: must be greater than 0 and less than 86400",
        ),
        ({"externalTrafficPolicy": "Local"}, 'Invalid value: "Local": may only be set for externally-accessible servi'),
        ({"externalIPs": ["x"]}, 'spec.externalIPs[0]: Invalid value: "x": must be a valid IP address'),
    ],
)
def test_a_service_that_kubernetes_refuses(services: Services, spec: Object, refusal: str) -> None:
    with pytest.raises(ApiError) as refused:
        services.create(**spec)
    assert refused.value.code == 422
    assert refusal in str(refused.value)


def test_a_service_for_nodes_gets_a_port_of_theirs_and_keeps_it(services: Services) -> None:
    first = services.create("a", type="NodePort")["ports"][0]["nodePort"]
    second = services.create("b", type="LoadBalancer")["ports"][0]["nodePort"]
    assert (first, second) == (30000, 30001)
    assert services.update("b", ports=[{"port": 90}])["ports"][0]["nodePort"] == second
    with pytest.raises(ApiError, match="provided port is already allocated"):
        services.create("c", type="NodePort", ports=[{"port": 1, "nodePort": first}])


def test_a_service_that_changes_its_type_loses_what_the_new_one_does_not_have(services: Services) -> None:
    address = services.create(type="NodePort")["clusterIP"]
    inside = services.update(type="ClusterIP")
    assert inside["clusterIP"] == address
    assert "nodePort" not in inside["ports"][0]
    assert "externalTrafficPolicy" not in inside
    outside = services.update(type="ExternalName", externalName="a.example")
    assert not {"clusterIP", "clusterIPs", "ipFamilies", "internalTrafficPolicy"} & set(outside)


def test_an_address_is_given_once_and_does_not_change(services: Services) -> None:
    address = services.create()["clusterIP"]
    with pytest.raises(ApiError, match="provided IP is already allocated"):
        services.create("b", clusterIP=address)
    with pytest.raises(ApiError, match="may not change once set"):
        services.update(clusterIP="10.96.0.99", clusterIPs=["10.96.0.99"])


def test_a_headless_service_without_a_selector_is_for_both_families(services: Services) -> None:
    assert services.create("a", clusterIP="None")["ipFamilyPolicy"] == "RequireDualStack"
    assert services.create("b", clusterIP="None", selector={"a": "b"})["ipFamilies"] == ["IPv4"]
