"""Other users of the machine, and web pages in its browsers, have nothing from the twin's servers."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import psutil
import pytest

from local.aws.server import AwsServer
from local.twin import Twin
from tests.integration.test_runs import TIME_SCALE

FORMER_KEY = "Credential=twin/20260101/us-west-2/{service}/aws4_request, SignedHeaders=host, Signature=0"
CALLER = "/?Action=GetCallerIdentity&Version=2011-06-15"


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    with Twin(
        home=tmp_path_factory.mktemp("home"), log_dir=tmp_path_factory.mktemp("logs"), time_scale=TIME_SCALE
    ) as running:
        yield running


@pytest.fixture(scope="module")
def aws(twin: Twin) -> AwsServer:
    return twin.aws


def answer(aws: AwsServer, method: str, path: str, body: str = "", **headers: str) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection(urlsplit(aws.endpoint).netloc, timeout=30)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        said = connection.getresponse()
        return said.status, said.read().decode(), {name.lower(): value for name, value in said.getheaders()}
    finally:
        connection.close()


def test_a_request_without_credentials_is_refused_whatever_it_asks(aws: AwsServer) -> None:
    for method, path, headers in (
        ("POST", CALLER, {}),
        ("GET", CALLER, {}),
        ("POST", "/clusters/trainflow/access-entries", {}),
        ("POST", "/", {"X_Amz_Target": "AWSStepFunctions.StartExecution"}),
        ("GET", "/", {"X_Amz_Target": "DynamoDB_20120810.ListTables"}),
        ("PUT", "/bucket", {}),
        ("GET", "/", {}),
        ("POST", "/moto-api/reset", {}),
        ("GET", "/moto-api/data.json", {}),
    ):
        status, text, _headers = answer(aws, method, path, "{}" if method == "POST" else "", **headers)
        assert status in (400, 403), (method, path, status, text)
        assert "MissingAuthenticationToken" in text or "AccessDenied" in text, (method, path, text)
    entries = "/clusters/trainflow/access-entries"
    assert "NoSuchBucket" in answer(aws, "GET", entries, Host="eks.us-west-2.amazonaws.com")[1], "it is S3 that answers"


@pytest.mark.parametrize("service", ["sts", "eks", "s3", "states", "dynamodb"])
def test_a_key_that_the_twin_has_not_given_out_is_refused(aws: AwsServer, service: str) -> None:
    signed = f"AWS4-HMAC-SHA256 {FORMER_KEY.format(service=service)}"
    paths = {"sts": CALLER, "eks": "/clusters/trainflow/access-entries"}
    target = {"states": "AWSStepFunctions.ListStateMachines", "dynamodb": "DynamoDB_20120810.ListTables"}
    headers = {"X_Amz_Target": target[service]} if service in target else {}
    method = "POST" if service != "s3" else "GET"
    status, text, _headers = answer(aws, method, paths.get(service, "/"), "{}", Authorization=signed, **headers)
    assert (status in (400, 403), "<ListAllMyBuckets" in text) == (True, False), text


def test_a_private_object_is_not_read_without_credentials_and_a_public_one_is(aws: AwsServer) -> None:
    s3 = aws.client("s3")
    for bucket in ("private-one", "public-one"):
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
        s3.put_object(Bucket=bucket, Key="k", Body=b"text", ACL="public-read" if bucket == "public-one" else "private")
    assert answer(aws, "GET", "/private-one/k")[0] == 403
    assert answer(aws, "GET", "/private-one?list-type=2")[0] == 403
    assert answer(aws, "GET", "/public-one/k")[:2] == (200, "text")


def test_a_web_page_is_not_answered_even_with_credentials(aws: AwsServer) -> None:
    key = aws.owner_credentials["AWS_ACCESS_KEY_ID"]
    signed = f"AWS4-HMAC-SHA256 {FORMER_KEY.format(service='sts').replace('twin', key)}"
    assert answer(aws, "POST", CALLER, Authorization=signed)[0] == 200
    for method in ("POST", "OPTIONS"):
        status, _text, headers = answer(aws, method, CALLER, Authorization=signed, Origin="https://example.org")
        assert status == 403
        assert [name for name in headers if name.startswith("access-control-")] == []


def test_each_twin_has_a_key_of_its_own_that_no_command_line_shows(twin: Twin) -> None:
    key = twin.aws.owner_credentials["AWS_ACCESS_KEY_ID"]
    assert key != AwsServer(time_scale=100).owner_credentials["AWS_ACCESS_KEY_ID"]
    lines = subprocess.run(["ps", "-A", "-ww", "-o", "args="], capture_output=True, text=True, check=True).stdout
    assert key not in lines


PROBE = """
import encodings.idna, http.client, json, os, ssl, sys
context = ssl._create_unverified_context()
os.setgroups([])
os.setgid(65534)
os.setuid(65534)  # nobody
answers = {}
for port in json.loads(sys.argv[1]):
    for tls in (False, True):
        for method, path in (("GET", "/api/v1/secrets"), ("POST", "/"), ("GET", "/containerLogs/a/b/c"),
                             ("GET", "/slurm/v0.0.41/jobs"), ("GET", "/clusters")):
            make = http.client.HTTPSConnection if tls else http.client.HTTPConnection
            connection = make("127.0.0.1", port, timeout=10, **({"context": context} if tls else {}))
            try:
                connection.request(method, path)
                answers[f"{port} {'https' if tls else 'http'} {method} {path}"] = connection.getresponse().status
            except (OSError, http.client.HTTPException):
                pass  # another protocol
            finally:
                connection.close()
print(json.dumps(answers))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_has_nothing_from_any_port_of_a_twin(twin: Twin) -> None:
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    ports = set()
    for process in processes:
        for connection in process.net_connections(kind="inet"):
            if connection.status == psutil.CONN_LISTEN:
                assert connection.laddr.ip in ("127.0.0.1", "::1"), connection
                ports.add(connection.laddr.port)
    assert len(ports) >= 2, "AWS and Kubernetes at least"
    done = subprocess.run(
        [sys.executable, "-I", "-c", PROBE, json.dumps(sorted(ports))],
        cwd="/",
        env={},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert len({name.split()[0] for name in answers}) >= 2
    assert {name: status for name, status in answers.items() if status not in (400, 401, 403, 404)} == {}
