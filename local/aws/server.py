"""moto as one AWS endpoint on a loopback port, with the twin's additions."""

from __future__ import annotations

import functools
import logging
import os
import secrets
import socket
import threading
from collections.abc import Mapping
from typing import Any, ClassVar

from botocore.config import Config
from moto.core.config import default_user_config
from moto.server import ThreadedMotoServer

from local.aws import (
    access_entries,
    event_calls,
    events,
    message_limits,
    metric_limits,
    moto_performance,
    object_events,
    patches,
    schedules,
    throttling,
    unexpected,
    versions,
)
from local.aws.access import entrance, guard, trusts
from local.aws.access.guard import Guard
from local.aws.faults import RequestPlan, no_throttling
from local.aws.queues import QueueConsumers
from local.aws.replacements import put_back, replace_item
from local.aws.schedules import Schedules
from local.aws.services import LAMBDA, STEP_FUNCTIONS
from local.aws.session import NO_FILES, SettingsAside, isolated_session
from local.aws.targets import Targets

REGION = "us-west-2"
"""A region with Trainium, so that specs and names are as in such a region."""

PATIENT = Config(read_timeout=None, retries={"total_max_attempts": 1})
"""An invocation waits its turn behind those of many runs. A call that gives up and comes again would be a second
invocation."""


class AwsServer:
    """The twin's AWS endpoint. One at a time in a process: moto keeps its state in module globals."""

    _used: ClassVar[bool] = False

    def __init__(
        self, *, time_scale: float, keep_settings: bool = False, throttled: RequestPlan = no_throttling
    ) -> None:
        """
        Args:
            time_scale: Waits take `1 / time_scale` of their time.
            throttled: Requests to S3 and DynamoDB that are throttled.
            keep_settings: Whether the caller's AWS settings stay in this process's environment, for the login to an
                existing cluster.
        """
        self.owner_credentials = {
            "AWS_ACCESS_KEY_ID": f"AKIA{secrets.token_hex(16).upper()}",
            "AWS_SECRET_ACCESS_KEY": secrets.token_hex(20),
        }
        self._settings_aside = None if keep_settings else SettingsAside()
        self._time_scale, self._throttled = time_scale, throttled
        self._port = _free_port()
        self._listens = False
        self._server = ThreadedMotoServer("127.0.0.1", self._port, verbose=False)
        self._session = isolated_session()
        self._clients: dict[tuple[str, str | None], Any] = {}
        self._lock = threading.RLock()
        # "localhost", because moto distinguishes S3 buckets in host names from addresses by it.
        self.endpoint = f"http://localhost:{self._port}"
        self.guard = Guard(
            REGION,
            owner_key=self.owner_credentials["AWS_ACCESS_KEY_ID"],
            owner_secret=self.owner_credentials["AWS_SECRET_ACCESS_KEY"],
        )
        self.targets = Targets(self.client, self.guard, time_scale=time_scale)
        self.schedules = Schedules(self.targets, time_scale=time_scale)
        pollers = functools.partial(self.client_of, principal=LAMBDA)
        self._queues = QueueConsumers(self.client, pollers, time_scale=time_scale)

    @property
    def client_environment(self) -> dict[str, str]:
        """Environment variables that make any AWS SDK use this endpoint."""
        return {
            **self.owner_credentials,
            **NO_FILES,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def start(self) -> None:
        """Start to answer requests."""
        if self._settings_aside is not None:
            self._settings_aside.take()
        # Half a second for images that the twin never starts.
        replace_item(os.environ, "MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
        self._forget_others()
        # The interpreter calls the other services on this port.
        replace_item(os.environ, "MOTO_PORT", str(self._port))
        replace_item(default_user_config, "stepfunctions", {"execute_state_machine": True})
        replace_item(default_user_config, "lambda", {"use_docker": True})
        patches.apply_all()
        patches.scaled_waits(self._time_scale)
        moto_performance.apply_all()
        moto_performance.clients_made_once(
            self._session, functools.partial(self.credentials_of, service=STEP_FUNCTIONS)
        )
        unexpected.install()
        guard.install(self.guard)
        entrance.install(self.guard)
        trusts.install(self.guard)
        throttling.install(self._throttled)
        metric_limits.apply()
        message_limits.apply_all()
        versions.apply_all()
        schedules.refuse_invalid_expressions()
        access_entries.serve()
        event_calls.apply_all()
        object_events.apply()
        events.deliver_to(self.targets)
        events.status_changes(self.targets)
        self._queues.start()
        # The interpreter logs every caught error of a run, with all of the run's variables.
        for noisy in ("werkzeug", "moto", "botocore"):
            logging.getLogger(noisy).setLevel(logging.CRITICAL)
        self._server.start()
        self._listens = True
        self.schedules.start()

    def take_stacks(self) -> None:
        """Prepare the account for the CDK: bootstrap, deploy and destroy."""
        from local.aws import cloudformation

        cloudformation.apply(self.client)

    def start_nothing(self) -> None:
        """Stop schedules, queues and events, before the functions that they call are stopped."""
        self.schedules.stop()
        self._queues.stop()
        self.targets.stop()

    def stop(self) -> None:
        """Free the port, and leave moto as it was."""
        self.start_nothing()
        if self._listens:  # also called when the start has failed, whose reason must not be lost
            self._server.stop()
            self._listens = False
        put_back()
        if self._settings_aside is not None:
            self._settings_aside.put_back()

    def client(self, service: str) -> Any:
        """A boto3 client of one of the twin's services, whatever the caller's own AWS settings are."""
        return self._client(service, None)

    def client_of(self, service: str, role_arn: str, *, principal: str | None = None) -> Any:
        """A boto3 client with the credentials of a role.

        Args:
            service: Name of the service.
            role_arn: The role.
            principal: The service that uses the role; see `credentials_of`.
        """
        if principal is not None:
            self.guard.require_trust(principal, role_arn)
        return self._client(service, role_arn)

    def _client(self, service: str, role_arn: str | None) -> Any:
        with self._lock:
            if (service, role_arn) not in self._clients:
                credentials = self.credentials_of(role_arn, service) if role_arn else self.owner_credentials
                self._clients[service, role_arn] = self._session.client(  # type: ignore[call-overload]
                    service,
                    endpoint_url=self.endpoint,
                    region_name=REGION,
                    aws_access_key_id=credentials["AWS_ACCESS_KEY_ID"],
                    aws_secret_access_key=credentials["AWS_SECRET_ACCESS_KEY"],
                    aws_session_token=credentials.get("AWS_SESSION_TOKEN"),
                    config=PATIENT if service == "lambda" else None,
                )
            return self._clients[service, role_arn]

    def credentials_of(
        self, role_arn: str, session: str, *, service: str | None = None, tags: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Environment variables of an assumed role, as Lambda sets them for a function.

        Args:
            role_arn: The role.
            session: Name of the session.
            service: Principal of the service that assumes it; None for the account's owner, who may assume every role.
            tags: Tags that the service gives the session.

        Raises:
            AccessDenied: If the role's trust policy does not let the service assume it.
        """
        if service is not None:
            self.guard.require_trust(service, role_arn, tags=tags)
        assumed = self.client("sts").assume_role(RoleArn=role_arn, RoleSessionName=session)["Credentials"]
        return {
            "AWS_ACCESS_KEY_ID": assumed["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": assumed["SecretAccessKey"],
            "AWS_SESSION_TOKEN": assumed["SessionToken"],
        }

    @classmethod
    def _forget_others(cls) -> None:
        """Reset the state that an earlier server of this process has left."""
        if cls._used:
            from moto.moto_api._internal.models import moto_api_backend

            moto_api_backend.reset()
        cls._used = True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
