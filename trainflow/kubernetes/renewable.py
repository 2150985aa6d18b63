"""The API of a cluster through a connection that is kept: one that is refused is not used again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubernetes.client import ApiClient, ApiException
from urllib3.exceptions import HTTPError

from trainflow.errors import ClusterUnavailable
from trainflow.kubernetes.api import KubernetesApi


class RenewableApi(KubernetesApi):
    """The API through a client that a process keeps, whose address, certificate or token may become wrong."""

    def __init__(self, api: ApiClient, *, forget: Callable[[], None]) -> None:
        """
        Args:
            api: The client.
            forget: Drops what is kept of the connection, so that the next one is made anew.
        """
        super().__init__(api)
        self._forget = forget

    def request(self, method: str, path: str, **arguments: Any) -> Any:
        """See `KubernetesApi`.

        Raises:
            ClusterUnavailable: If the API does not accept the token (401): the next try has a new one.
        """
        try:
            return super().request(method, path, **arguments)
        except ApiException as refused:
            if refused.status == 401:
                self._forget()
                sentence = f"The Kubernetes API did not accept the function's token: 401 {refused.reason}."
                raise ClusterUnavailable(sentence) from refused
            if not refused.status:  # a TLS handshake that failed, perhaps for another CA
                self._forget()
            raise
        except HTTPError:
            self._forget()
            raise
