"""A gateway on the way of the functions to the Kubernetes API, which can fail.

Nodes and controllers have another way to the API, so trainings go on. This is how an outage of an endpoint, of a
network or of logins looks; an API server that is down as a whole also keeps nodes from reporting.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kubetwin.kubeconfig import load_connection
from kubetwin.troubles import Trouble, TroubledGateway

from local.aws import deployment
from local.twin import Twin


# Decision 46: a fault is injected at its source, and nodes and controllers go on without it.
class FunctionsGateway:
    """A gateway between the functions and the twin's Kubernetes API, which can fail."""

    def __init__(self, twin: Twin) -> None:
        self._eks = twin.client("eks")
        self._gateway = TroubledGateway(load_connection(twin.kubeconfig))

    @property
    def failed(self) -> int:
        """Requests that met a trouble."""
        return self._gateway.failed

    @contextmanager
    def open(self) -> Iterator[None]:
        """Let `eks:DescribeCluster` name the gateway inside the block, and afterwards what it named before."""
        before = self._eks.describe_cluster(name=deployment.CLUSTER_NAME)["cluster"]
        self._gateway.start()
        try:
            self._set_endpoint()
            yield
        finally:
            deployment.set_endpoint(
                kubernetes_endpoint=before["endpoint"], ca_data=before["certificateAuthority"]["data"]
            )
            self._gateway.stop()

    def begin(self, trouble: Trouble) -> None:
        """Fail from now on."""
        self._gateway.begin(trouble)

    def end(self) -> None:
        """Answer again; `eks:DescribeCluster` names the present authority."""
        self._gateway.end()
        self._set_endpoint()

    def _set_endpoint(self) -> None:
        deployment.set_endpoint(kubernetes_endpoint=self._gateway.endpoint, ca_data=self._gateway.ca_data)
