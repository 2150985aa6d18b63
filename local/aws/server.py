"""moto as one AWS endpoint on a loopback port."""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

import boto3
from moto.core.config import default_user_config
from moto.server import ThreadedMotoServer

from local.aws import patches

REGION = "us-west-2"
"""A region that has Trainium, so that specs and names look as they do there."""

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "twin", "AWS_SECRET_ACCESS_KEY": "twin"}
"""What the twin's clients sign with; moto takes any."""


class AwsServer:
    """The twin's AWS endpoint. One a process: moto keeps its state in module globals."""

    def __init__(self, *, time_scale: float) -> None:
        self._time_scale = time_scale
        self._port = _free_port()
        self._server = ThreadedMotoServer("127.0.0.1", self._port, verbose=False)
        # "localhost", because moto tells S3 buckets in host names from addresses by it.
        self.endpoint = f"http://localhost:{self._port}"

    @property
    def client_environment(self) -> dict[str, str]:
        """Environment variables that lead any AWS SDK here."""
        return {
            **CREDENTIALS,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def start(self) -> None:
        """Answer requests from now on."""
        # The interpreter calls the other services on this port.
        os.environ["MOTO_PORT"] = str(self._port)
        default_user_config["stepfunctions"] = {"execute_state_machine": True}
        default_user_config["lambda"] = {"use_docker": True}
        patches.apply_all()
        patches.scaled_waits(self._time_scale)
        # The interpreter logs every caught error of a run, with all of the run's variables.
        for noisy in ("werkzeug", "moto", "botocore"):
            logging.getLogger(noisy).setLevel(logging.CRITICAL)
        self._server.start()

    def stop(self) -> None:
        """Free the port."""
        self._server.stop()

    def client(self, service: str) -> Any:
        """A boto3 client of one of the twin's services, whatever the caller's own AWS settings are."""
        return boto3.client(  # type: ignore[call-overload]
            service,
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
