"""Values of Secrets Manager become variables of the program, and messages about them hold none."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import boto3
import botocore.loaders
import pytest
from botocore.exceptions import EndpointConnectionError
from botocore.stub import Stubber

from trainer.runtime.errors import SecretUnavailable
from trainer.steps import secrets as step
from trainflow.protocol.plan import SecretSource

VALUE = "hf_4711"


SERVER = """
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print("http://{}:{}".format(*server.get_host_and_port()), flush=True)
input()
"""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """moto in a process of its own: in this one other tests have answered for Secrets Manager in their own ways."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.stdin.close()


@pytest.fixture
def secrets(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of an empty Secrets Manager, which any AWS program of this process talks to."""
    monkeypatch.setattr("botocore.session.create_loader", botocore.loaders.create_loader)
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("secretsmanager")
    yield client
    for found in client.list_secrets(IncludePlannedDeletion=True)["SecretList"]:
        client.delete_secret(SecretId=found["ARN"], ForceDeleteWithoutRecovery=True)


def read(**source: str) -> str:
    return step.values_of({"HF_TOKEN": SecretSource(**source)})["HF_TOKEN"]


def test_a_value_is_the_whole_secret_or_one_key_of_it_by_name_or_arn(secrets: Any) -> None:
    secrets.create_secret(Name="plain", SecretString=VALUE)
    arn = secrets.create_secret(Name="hub/keys", SecretString=json.dumps({"token": VALUE, "port": 8080}))["ARN"]
    assert read(secret="plain") == VALUE
    assert read(secret="hub/keys", key="token") == VALUE
    assert read(secret=arn, key="port") == "8080"


def test_a_secret_of_two_variables_is_read_once(secrets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets.create_secret(Name="hub", SecretString='{"a": "1", "b": "2"}')
    connect, calls = step._connect, []
    monkeypatch.setattr(step, "_connect", lambda secret: calls.append(secret) or connect(secret))
    both = {"A": SecretSource(secret="hub", key="a"), "B": SecretSource(secret="hub", key="b")}
    assert (step.values_of(both), calls) == ({"A": "1", "B": "2"}, ["hub"])


@pytest.mark.parametrize(
    ("content", "key", "sentence"),
    [
        (None, None, r"Secrets Manager has no secret 'hub' with a value in the Region of the run; create it, or"),
        (VALUE, "token", r"the secret 'hub' is not a JSON object, so it has no key 'token'\."),
        (f'["{VALUE}"]', "token", r"the secret 'hub' is not a JSON object, so it has no key 'token'\."),
        (f'{{"tokens": "{VALUE}"}}', "token", r"the secret 'hub' has no key 'token'; add it, or correct the spec\."),
        (f'{{"token": ["{VALUE}"]}}', "token", r"the key 'token' of the secret 'hub' holds no text or number\."),
        (f'{{"token": "{VALUE}\\u0000"}}', "token", r"the secret 'hub' holds a NUL character"),
    ],
)
def test_a_value_that_cannot_be_used_is_explained_without_it(
    secrets: Any, content: str | None, key: str | None, sentence: str
) -> None:
    if content is not None:
        secrets.create_secret(Name="hub", SecretString=content)
    with pytest.raises(SecretUnavailable, match=rf"^workload.secrets.HF_TOKEN: {sentence}") as failed:
        read(secret="hub", **({"key": key} if key else {}))
    assert VALUE not in str(failed.value)


def test_a_binary_secret_and_one_that_is_being_deleted_are_refused(secrets: Any) -> None:
    secrets.create_secret(Name="binary", SecretBinary=b"\x00")
    with pytest.raises(SecretUnavailable, match="'binary' is binary"):
        read(secret="binary")
    secrets.create_secret(Name="gone", SecretString=VALUE)
    secrets.delete_secret(SecretId="gone", RecoveryWindowInDays=7)
    with pytest.raises(SecretUnavailable, match=r"'gone' .*InvalidRequest.*: .*deleted"):
        read(secret="gone")


def test_a_secret_that_the_deployment_does_not_grant_names_the_setting(
    secrets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "_connect", lambda _secret: secrets)
    reason = "User: arn:aws:sts::123456789012:assumed-role/pods/a is not authorized to perform: secretsmanager:…"
    with Stubber(secrets) as stub, pytest.raises(SecretUnavailable) as failed:
        stub.add_client_error("get_secret_value", "AccessDeniedException", reason)  # moto asks for no permission
        read(secret="hub")
    assert str(failed.value) == (
        f"workload.secrets.HF_TOKEN: runs of this deployment may not read the secret 'hub' ({reason}); name its ARN in "
        "run_secrets of the configuration and deploy the cluster stack, or correct the spec."
    )


def test_a_service_that_cannot_be_reached_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(_secret: str) -> Any:
        raise EndpointConnectionError(endpoint_url="https://secretsmanager.us-west-2.amazonaws.com/")

    monkeypatch.setattr(step, "_connect", unreachable)
    with pytest.raises(SecretUnavailable, match=r"'hub' .*\(Could not connect"):
        read(secret="hub")
