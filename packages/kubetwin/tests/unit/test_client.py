from __future__ import annotations

import socket

import pytest
from kubetwin.client import ApiClient, ApiUnreachable
from kubetwin.kubeconfig import Connection


def test_requests_give_up_after_the_time_that_answers_are_limited_to() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"http://127.0.0.1:{silent.getsockname()[1]}"
        api = ApiClient(Connection(server=server, tls=None, authority_pem=None, authorization=lambda: None))
        api.limit_answers(0.1)
        with pytest.raises(ApiUnreachable, match="does not answer"):
            api.get("/api/v1/nodes")
