"""Other users of the machine, and web pages in its browsers, have nothing from the twin's servers."""

from __future__ import annotations

import hashlib
import http.client
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import boto3
import psutil
import pytest
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from local.aws import deployment
from local.aws.server import REGION, AwsServer
from local.twin import Twin
from tests.integration.strangers import answers_to_another_user, granted, listening, only_root
from tests.integration.test_runs import TIME_SCALE
from trainflow.page.library import RunLibrary
from trainflow.page.server import PageServer

FORMER_KEY = "Credential=twin/20260101/us-west-2/{service}/aws4_request, SignedHeaders=host, Signature=0"
CALLER = "/?Action=GetCallerIdentity&Version=2011-06-15"


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    home = tmp_path_factory.mktemp("home")
    for bucket in (deployment.ARTIFACT_BUCKET, "corpora"):
        (home / "s3" / bucket).mkdir(parents=True)
        (home / "s3" / bucket / "k").write_text("text")
    with Twin(home=home, log_dir=tmp_path_factory.mktemp("logs"), time_scale=TIME_SCALE) as running:
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


def test_a_key_is_refused_before_the_fields_of_its_request_are(aws: AwsServer) -> None:
    signed = f"AWS4-HMAC-SHA256 {FORMER_KEY.format(service='states')}"
    for operation, fields in (
        ("DescribeExecution", '{"executionArn": "x"}'),
        ("DescribeExecution", '{"executionArn": 3}'),
        ("DescribeExecution", "no"),
        ("SendTaskSuccess", "{}"),
        ("Other", "{}"),
    ):
        headers = {"X_Amz_Target": f"AWSStepFunctions.{operation}", "Content_Type": "application/x-amz-json-1.0"}
        status, text, _headers = answer(aws, "POST", "/", fields, Authorization=signed, **headers)
        assert (status, "UnrecognizedClient" in text) == (400, True), text


def test_a_private_object_is_not_read_without_credentials_and_a_public_one_is(aws: AwsServer) -> None:
    s3 = aws.client("s3")
    for bucket in ("private-one", "public-one"):
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
        s3.put_object(Bucket=bucket, Key="k", Body=b"text", ACL="public-read" if bucket == "public-one" else "private")
    assert answer(aws, "GET", "/private-one/k")[0] == 403
    assert answer(aws, "GET", "/private-one?list-type=2")[0] == 403
    assert answer(aws, "GET", "/public-one/k")[:2] == (200, "text")


def test_artifacts_of_earlier_runs_are_private_and_data_sets_of_the_folder_are_not(aws: AwsServer) -> None:
    for key in ("/k", "?list-type=2"):
        assert answer(aws, "GET", f"/{deployment.ARTIFACT_BUCKET}{key}")[0] == 403
        assert answer(aws, "GET", f"/corpora{key}")[0] == 200


def signed_by_owner(aws: AwsServer) -> dict[str, str]:
    """Headers of a signed request for the caller's identity."""
    request = AWSRequest(method="POST", url=f"{aws.endpoint}{CALLER}")
    SigV4Auth(Credentials(*aws.owner_credentials.values()), "sts", REGION).add_auth(request)
    return {name.replace("-", "_"): value for name, value in request.headers.items()}


def test_a_web_page_is_not_answered_even_with_credentials(aws: AwsServer) -> None:
    signed = signed_by_owner(aws)
    assert answer(aws, "POST", CALLER, **signed)[0] == 200
    for method in ("POST", "OPTIONS"):
        status, _text, headers = answer(aws, method, CALLER, **signed, Origin="https://example.org")
        assert status == 403
        assert [name for name in headers if name.startswith("access-control-")] == []


READS = {
    "sts": (lambda sts: sts.get_caller_identity(), "SignatureDoesNotMatch"),
    "s3": (lambda s3: s3.list_buckets(), "SignatureDoesNotMatch"),
    "ec2": (lambda ec2: ec2.describe_instances(), "SignatureDoesNotMatch"),
    "sns": (lambda sns: sns.list_topics(), "SignatureDoesNotMatch"),
    "eks": (lambda eks: eks.list_clusters(), "InvalidSignatureException"),
    "lambda": (lambda functions: functions.list_functions(), "InvalidSignatureException"),
    "stepfunctions": (lambda states: states.list_state_machines(), "InvalidSignatureException"),
    "dynamodb": (lambda tables: tables.list_tables(), "InvalidSignatureException"),
}
"""A call of each protocol, and its error for a wrong signature."""


@pytest.mark.parametrize("service", READS)
@pytest.mark.parametrize("whose", ["owner", "role"])
def test_the_id_of_a_key_is_of_no_use_without_its_secret(twin: Twin, service: str, whose: str) -> None:
    """Ids of keys are in presigned URLs and in logs."""
    aws = twin.aws
    credentials = aws.owner_credentials if whose == "owner" else aws.credentials_of(deployment.POD_ROLE, "tests")
    client = boto3.session.Session().client(
        service,  # type: ignore[call-overload]
        endpoint_url=aws.endpoint,
        region_name=REGION,
        aws_access_key_id=credentials["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key="another",
        aws_session_token=credentials.get("AWS_SESSION_TOKEN"),
        config=Config(retries={"total_max_attempts": 1}),
    )
    read, error = READS[service]
    with pytest.raises(ClientError) as refused:
        read(client)
    assert refused.value.response["Error"]["Code"] == error
    assert "does not match the signature you provided" in refused.value.response["Error"]["Message"]


def test_a_signed_request_is_of_no_use_for_another(aws: AwsServer) -> None:
    signed = signed_by_owner(aws)
    assert answer(aws, "POST", CALLER, **signed)[0] == 200
    other = CALLER.replace("GetCallerIdentity", "GetSessionToken")
    assert answer(aws, "POST", other, **signed)[0] == 403
    assert answer(aws, "POST", CALLER, "Action=GetSessionToken", **signed)[0] == 403


def test_a_signed_request_to_s3_is_of_no_use_for_another_body(aws: AwsServer) -> None:
    s3, bucket = aws.client("s3"), f"body-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    request = AWSRequest(method="PUT", url=f"{aws.endpoint}/{bucket}/k", data=b"mine")
    S3SigV4Auth(Credentials(*aws.owner_credentials.values()), "s3", REGION).add_auth(request)
    signed = {name.replace("-", "_"): value for name, value in request.headers.items()}
    status, text, _headers = answer(aws, "PUT", f"/{bucket}/k", "other", **signed)
    assert (status, "<Code>XAmzContentSHA256Mismatch</Code>" in text) == (400, True), text
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
    assert answer(aws, "PUT", f"/{bucket}/k", "mine", **signed)[0] == 200
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"mine"


class ChunkedAuth(SigV4Auth):
    """Signs a request whose body is signed chunk by chunk, which botocore itself does not send."""

    def __init__(self, credentials: Credentials) -> None:
        super().__init__(credentials, "s3", REGION)

    def chunk(self, request: AWSRequest, previous: str, data: bytes) -> tuple[str, bytes]:
        """A chunk's signature, and the chunk as it is sent."""
        scope, hashes = self.credential_scope(request), (hashlib.sha256(part).hexdigest() for part in (b"", data))
        text = "\n".join(["AWS4-HMAC-SHA256-PAYLOAD", request.context["timestamp"], scope, previous, *hashes])
        signature = self.signature(text, request)
        return signature, b"%x;chunk-signature=%s\r\n%s\r\n" % (len(data), signature.encode(), data)


def test_an_upload_in_signed_chunks_is_stored_and_one_that_was_changed_is_refused(aws: AwsServer) -> None:
    s3, bucket = aws.client("s3"), f"chunks-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    signing, parts = ChunkedAuth(Credentials(*aws.owner_credentials.values())), (b"a" * 9000, b"mine", b"")
    request = AWSRequest(
        method="PUT",
        url=f"{aws.endpoint}/{bucket}/k",
        headers={
            "Content-Encoding": "aws-chunked",
            "X-Amz-Content-SHA256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
            "X-Amz-Decoded-Content-Length": str(sum(map(len, parts))),
        },
    )
    signing.add_auth(request)
    previous, body = request.headers["Authorization"].rpartition("Signature=")[2], b""
    for part in parts:
        previous, sent = signing.chunk(request, previous, part)
        body += sent
    signed = {name.replace("-", "_"): value for name, value in request.headers.items()}
    for changed in (body.replace(b"mine", b"else"), body.replace(b"4;chunk", b"3;chunk"), body.partition(b"4;")[0]):
        status, text, _headers = answer(aws, "PUT", f"/{bucket}/k", changed.decode(), **signed)
        assert (status, "<Code>SignatureDoesNotMatch</Code>" in text) == (403, True), text
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
    assert answer(aws, "PUT", f"/{bucket}/k", body.decode(), **signed)[0] == 200
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"".join(parts)


def test_a_hash_that_is_none_is_refused(aws: AwsServer) -> None:
    request = AWSRequest(method="PUT", url=f"{aws.endpoint}/any/k", headers={"X-Amz-Content-SHA256": "<nonsense>"})
    SigV4Auth(Credentials(*aws.owner_credentials.values()), "s3", REGION).add_auth(request)
    signed = {name.replace("-", "_"): value for name, value in request.headers.items()}
    status, text, _headers = answer(aws, "PUT", "/any/k", **signed)
    assert status == 400
    assert "<Code>InvalidArgument</Code>" in text
    assert "<ArgumentValue>&lt;nonsense&gt;</ArgumentValue>" in text


@pytest.mark.parametrize(
    "key", ["a b/c+d", "ä/€", "a//b", "a/./b/../c", "k=v&x", "100%", "~tilde'()*!", "a:b@c,d;e", "q?r#s", '"<>"']
)
def test_objects_of_any_name_are_written_listed_and_read(aws: AwsServer, key: str) -> None:
    s3, bucket = aws.client("s3"), f"any-name-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.put_object(Bucket=bucket, Key=key, Body=b"text", Metadata={"said": "two  spaces"}, Tagging="a=b%20c")
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == b"text"
    assert key in [each["Key"] for each in s3.list_objects_v2(Bucket=bucket, Prefix=key)["Contents"]]
    url = urlsplit(presigned(aws, bucket, key, "s3v4"))
    assert answer(aws, "GET", f"{url.path}?{url.query}")[:2] == (200, "text")
    assert answer(aws, "GET", f"{url.path}?{url.query.replace('Expires=3600', 'Expires=7200')}")[0] == 403


def presigned(aws: AwsServer, bucket: str, key: str, version: str) -> str:
    s3 = boto3.session.Session().client(
        "s3",
        endpoint_url=aws.endpoint,
        region_name=REGION,
        aws_access_key_id=aws.owner_credentials["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=aws.owner_credentials["AWS_SECRET_ACCESS_KEY"],
        config=Config(signature_version=version),
    )
    return str(s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": key}))


def test_an_address_that_only_looks_presigned_reads_nothing(aws: AwsServer) -> None:
    s3, bucket = aws.client("s3"), "not-presigned"
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    for key in ("k", "Signature="):
        s3.put_object(Bucket=bucket, Key=key, Body=b"text")
    old = urlsplit(presigned(aws, bucket, "k", "s3"))
    now = urlsplit(presigned(aws, bucket, "k", "s3v4"))
    for path in (
        f"/{bucket}/k?Signature=0",
        f"/{bucket}/k?X-Amz-Signature=0",
        f"/{bucket}/Signature=",
        f"/{bucket}/Signature%3D",
        f"{old.path}?{old.query}",
        f"{now.path}?{now.query.replace('SignedHeaders=host', 'SignedHeaders=')}",
    ):
        assert answer(aws, "GET", path)[0] == 403, path


def test_each_twin_has_a_key_of_its_own_that_no_command_line_shows(twin: Twin) -> None:
    key = twin.aws.owner_credentials["AWS_ACCESS_KEY_ID"]
    assert key != AwsServer(time_scale=100).owner_credentials["AWS_ACCESS_KEY_ID"]
    lines = subprocess.run(["ps", "-A", "-ww", "-o", "args="], capture_output=True, text=True, check=True).stdout
    assert key not in lines


@only_root
def test_another_user_has_nothing_from_any_port_of_a_twin(twin: Twin, tmp_path: Path) -> None:
    with RunLibrary(folder=tmp_path) as runs, PageServer(runs) as page:
        found = listening([psutil.Process(), *psutil.Process().children(recursive=True)])
        answers = answers_to_another_user(found)
    ports = {port for _host, port in found.addresses}
    assert {host for host, _port in found.addresses} <= {"127.0.0.1", "::1"}
    assert {urlsplit(twin.aws.endpoint).port, page.port} < ports, "and Kubernetes"
    assert {f"{port}" for port in ports} == {name.split()[0].rpartition(":")[2] for name in answers if " " in name}
    assert granted(answers) == {}
