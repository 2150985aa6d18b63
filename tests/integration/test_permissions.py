"""IAM and KMS in the twin: what the templates' policies do not allow is refused, as in an account."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.aws import deployment
from local.aws.access.guard import AccessDenied
from local.aws.deployment import ARTIFACT_BUCKET, DATA_BUCKET, RUN_TABLE, Deployment
from local.aws.server import REGION, AwsServer
from local.aws.session import isolated_session
from local.aws.targets import Target
from local.granted_buckets import GrantedBuckets
from tests.integration.permitted import FOR_RULES
from trainflow.workflow.metric_names import NAMESPACE

ELSEWHERE = "111111111111"
MISSING_KEY = "11111111-1111-1111-1111-111111111111"


@pytest.fixture(scope="module")
def deployed(aws: AwsServer) -> Deployment:
    deployment.make_cluster(aws)
    return deployment.deploy(aws, granted_buckets=GrantedBuckets(readable=("granted",), writable=("writable",)))


def role(name: str) -> str:
    return f"arn:aws:iam::123456789012:role/trainflow-{name}"


def code(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"]["Code"])


REFUSED: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "code of all runs": ("Pods", "s3", "put_object", {"Bucket": ARTIFACT_BUCKET, "Key": "code/x", "Body": b""}),
    "an action": ("Pods", "s3", "put_object", {"Bucket": DATA_BUCKET, "Key": "data/x", "Body": b""}),
    "a prefix": ("Preflight", "s3", "list_objects_v2", {"Bucket": DATA_BUCKET, "Prefix": "runs/"}),
    "a listing without prefix": ("Preflight", "s3", "list_objects_v2", {"Bucket": DATA_BUCKET}),
    "writing to a bucket that is granted for reading": (
        *("Pods", "s3", "put_object"),
        {"Bucket": "granted", "Key": "x", "Body": b""},
    ),
    "a bucket": ("Pods", "s3", "get_object", {"Bucket": "somebodys", "Key": "x"}),
    "a table": ("WriteRecord", "dynamodb", "put_item", {"TableName": RUN_TABLE, "Item": {"run_id": {"S": "a"}}}),
    "an item": ("StartRun", "dynamodb", "put_item", {"TableName": RUN_TABLE, "Item": {"run_id": {"S": "a"}}}),
    "a namespace": ("PublishMetrics", "cloudwatch", "put_metric_data", {"Namespace": "Other", "MetricData": []}),
    "a source": ("CleanUp", "events", "put_events", {"Entries": [{"Source": "x", "DetailType": "y", "Detail": "{}"}]}),
    "a function without its version": ("Training", "lambda", "invoke", {"FunctionName": "trainflow-Notify"}),
    "a service": ("Notify", "eks", "describe_cluster", {"name": "trainflow"}),
    "an action without resources": ("Notify", "ec2", "describe_subnets", {}),
    "an operation that no mapping lists": ("Notify", "iam", "list_roles", {}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_role_may_do_what_its_template_says_and_nothing_else(aws: AwsServer, deployed: Deployment, case: str) -> None:
    name, service, operation, parameters = REFUSED[case]
    with pytest.raises(ClientError) as error:
        getattr(aws.client_of(service, role(name)), operation)(**parameters)
    assert code(error) in ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation")
    assert f"assumed-role/trainflow-{name}/" in str(error.value)


def test_what_the_templates_allow_is_done(aws: AwsServer, deployed: Deployment) -> None:
    pods = aws.client_of("s3", role("Pods"))
    pods.put_object(Bucket=ARTIFACT_BUCKET, Key="runs/x", Body=b"1")
    assert pods.get_object(Bucket=ARTIFACT_BUCKET, Key="runs/x")["Body"].read() == b"1"
    deployment.create_bucket(aws, "writable")
    pods.put_object(Bucket="writable", Key="x", Body=b"2")
    assert pods.get_object(Bucket="writable", Key="x")["Body"].read() == b"2"
    aws.client_of("s3", role("Preflight")).list_objects_v2(Bucket=DATA_BUCKET, Prefix="data/x/")
    aws.client_of("sns", role("Notify")).publish(TopicArn=deployed.topic_arn, Message="told")
    aws.client_of("cloudwatch", role("PublishMetrics")).put_metric_data(Namespace=NAMESPACE, MetricData=[])
    key = {"run_id": {"S": "#notice a"}}
    aws.client_of("dynamodb", role("StartRun")).put_item(TableName=RUN_TABLE, Item=key)
    assert aws.client_of("sts", role("Notify")).get_caller_identity()["Arn"].endswith("trainflow-Notify/sts")


@pytest.mark.parametrize("key", ["missing", "deleted"])
def test_a_missing_object_is_missing_only_to_those_who_may_list_the_bucket(
    aws: AwsServer, deployed: Deployment, key: str
) -> None:
    """As S3 answers; a policy that allows prefixes alone does not allow it."""
    iam, missing = aws.client("iam"), {"Bucket": ARTIFACT_BUCKET, "Key": f"runs/{key}"}
    if key == "deleted":  # which leaves a marker in a bucket with versions
        aws.client("s3").put_object(**missing, Body=b"1")
        aws.client("s3").delete_object(**missing)
    reads: dict[str, Any] = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
    lists: dict[str, Any] = {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "*"}
    below = {**lists, "Condition": {"StringLike": {"s3:prefix": "runs/*"}}}
    iam.create_role(RoleName=f"reader-{key}", AssumeRolePolicyDocument='{"Version": "2012-10-17", "Statement": []}')
    s3 = aws.client_of("s3", f"arn:aws:iam::123456789012:role/reader-{key}")
    expected = {"AccessDenied": ([reads], [reads, below]), "NoSuchKey": ([reads, lists],)}
    for refusal, policies in expected.items():
        for statements in policies:
            document = json.dumps({"Version": "2012-10-17", "Statement": statements})
            iam.put_role_policy(RoleName=f"reader-{key}", PolicyName="own", PolicyDocument=document)
            with pytest.raises(ClientError) as error:
                s3.get_object(**missing)
            assert code(error) == refusal
            assert ("not authorized to perform: s3:ListBucket" in str(error.value)) is (refusal == "AccessDenied")
            with pytest.raises(ClientError) as error:
                s3.head_object(**missing)
            assert code(error) == ("403" if refusal == "AccessDenied" else "404")
    refused = [call for call in aws.guard.calls if call.caller.endswith(f"role/reader-{key}") and not call.allowed]
    assert refused == [], "nothing that a role would need"


def test_requests_are_recorded_with_role_action_resource_and_conditions(aws: AwsServer, deployed: Deployment) -> None:
    aws.client_of("s3", role("Pods")).put_object(Bucket=ARTIFACT_BUCKET, Key="runs/recorded", Body=b"1")
    recorded = {
        (call.action, call.resource.split(":")[2], dict(call.context).get("kms:viaservice"), call.allowed)
        for call in aws.guard.calls
        if (call.caller == role("Pods") and "runs/recorded" in call.resource) or call.action == "kms:GenerateDataKey"
    }
    assert ("s3:PutObject", "s3", None, True) in recorded
    assert ("kms:GenerateDataKey", "kms", ("s3.us-west-2.amazonaws.com",), True) in recorded


UNKNOWN: dict[str, tuple[str, str, dict[str, Any], str, int]] = {
    "S3": ("s3", "get_object", {"Bucket": DATA_BUCKET, "Key": "x"}, "InvalidAccessKeyId", 403),
    "query": ("iam", "list_roles", {}, "InvalidClientTokenId", 403),
    "a request that needs no permission": ("sts", "get_caller_identity", {}, "InvalidClientTokenId", 403),
    "JSON": ("dynamodb", "list_tables", {}, "UnrecognizedClientException", 400),
    "REST": ("lambda", "list_functions", {}, "UnrecognizedClientException", 403),
    "EC2": ("ec2", "describe_subnets", {}, "AuthFailure", 401),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_an_access_key_that_does_not_exist_is_refused(aws: AwsServer, deployed: Deployment, case: str) -> None:
    service, operation, parameters, refused, status = UNKNOWN[case]
    given = {"aws_access_key_id": "AKIAUNKNOWN", "aws_secret_access_key": "b"}
    client: Any = isolated_session().client(  # type: ignore[call-overload]
        service, endpoint_url=aws.endpoint, region_name=REGION, **given
    )
    with pytest.raises(ClientError) as error:
        getattr(client, operation)(**parameters)
    assert (code(error), error.value.response["ResponseMetadata"]["HTTPStatusCode"]) == (refused, status)
    recorded = [call.action for call in aws.guard.calls if call.caller == "AKIAUNKNOWN" and not call.allowed]
    assert case.startswith("a request") or any(action.startswith(f"{service}:") for action in recorded)


@pytest.mark.parametrize("token", [None, "another"])
def test_credentials_of_a_role_are_of_no_use_without_their_session_token(
    aws: AwsServer, deployed: Deployment, token: str | None
) -> None:
    made = aws.credentials_of(role("Pods"), "pods")
    given = {"aws_access_key_id": made["AWS_ACCESS_KEY_ID"], "aws_secret_access_key": made["AWS_SECRET_ACCESS_KEY"]}

    def client(service: str, session_token: str | None) -> Any:
        return isolated_session().client(  # type: ignore[call-overload]
            service, endpoint_url=aws.endpoint, region_name=REGION, aws_session_token=session_token, **given
        )

    listed = {"Bucket": ARTIFACT_BUCKET, "Key": "runs/token", "Body": b""}
    client("s3", made["AWS_SESSION_TOKEN"]).put_object(**listed)
    with pytest.raises(ClientError, match="InvalidAccessKeyId"):
        client("s3", token).put_object(**listed)
    with pytest.raises(ClientError, match="InvalidClientTokenId"):
        client("sts", token).get_caller_identity()


@pytest.mark.parametrize("caller", ["owner", "pods"])
def test_a_bucket_of_another_owner_is_refused(aws: AwsServer, deployed: Deployment, caller: str) -> None:
    s3 = aws.client("s3") if caller == "owner" else aws.client_of("s3", role("Pods"))
    mine = {"Bucket": ARTIFACT_BUCKET, "Key": "runs/owned", "Body": b""}
    s3.put_object(**mine, ExpectedBucketOwner="123456789012")
    with pytest.raises(ClientError) as error:
        s3.put_object(**mine, ExpectedBucketOwner=ELSEWHERE)
    assert code(error) == "AccessDenied"


def test_a_key_that_does_not_exist_or_waits_for_its_deletion_encrypts_nothing(
    aws: AwsServer, deployed: Deployment
) -> None:
    kms = aws.client("kms")
    leaving = kms.create_key()["KeyMetadata"]["KeyId"]
    kms.schedule_key_deletion(KeyId=leaving)
    for key, refusal in ((MISSING_KEY, "KMS.NotFoundException"), (leaving, "KMS.KMSInvalidStateException")):
        encrypted = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key}
        with pytest.raises(ClientError) as error:
            aws.client("s3").put_object(Bucket=ARTIFACT_BUCKET, Key="runs/x", Body=b"", **encrypted)
        assert code(error) == refusal


def test_a_disabled_key_encrypts_and_decrypts_nothing(aws: AwsServer, deployed: Deployment) -> None:
    kms, pods = aws.client("kms"), aws.client_of("s3", role("Pods"))
    pods.put_object(Bucket=ARTIFACT_BUCKET, Key="runs/locked", Body=b"1")
    (rule,) = aws.client("s3").get_bucket_encryption(Bucket=ARTIFACT_BUCKET)["ServerSideEncryptionConfiguration"][
        "Rules"
    ]
    key = rule["ApplyServerSideEncryptionByDefault"]["KMSMasterKeyID"].rsplit("/", 1)[1]
    kms.disable_key(KeyId=key)
    try:
        for call in (
            lambda: pods.get_object(Bucket=ARTIFACT_BUCKET, Key="runs/locked"),
            lambda: pods.put_object(Bucket=ARTIFACT_BUCKET, Key="runs/locked", Body=b"2"),
            lambda: kms.encrypt(KeyId=key, Plaintext=b"3"),
        ):
            with pytest.raises(ClientError) as error:
                call()
            assert code(error).removeprefix("KMS.") == "DisabledException"
    finally:
        kms.enable_key(KeyId=key)


def test_each_service_names_its_own_error_for_a_disabled_key(aws: AwsServer, deployed: Deployment) -> None:
    kms, sqs, key = aws.client("kms"), aws.client("sqs"), {"run_id": {"S": "#notice locked"}}
    queue = sqs.get_queue_url(QueueName="trainflow-run-requests-dead-letters")["QueueUrl"]
    (attribute,) = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["KmsMasterKeyId"])["Attributes"].values()
    locked = attribute.rsplit("/", 1)[1]
    kms.disable_key(KeyId=locked)
    try:
        refused: dict[str, Callable[[], Any]] = {
            "KMSDisabled": lambda: aws.client("sns").publish(TopicArn=deployed.topic_arn, Message="untold"),
            "KMS.DisabledException": lambda: sqs.send_message(QueueUrl=queue, MessageBody="unsent"),
            "AccessDeniedException": lambda: aws.client("dynamodb").get_item(TableName=RUN_TABLE, Key=key),
        }
        for expected, call in refused.items():
            with pytest.raises(ClientError) as error:
                call()
            assert code(error) == expected
    finally:
        kms.enable_key(KeyId=locked)


def test_a_key_is_used_only_if_its_policy_lets_the_account_decide(aws: AwsServer, deployed: Deployment) -> None:
    sns, kms = aws.client_of("sns", role("Notify")), aws.client("kms")
    key = aws.client("sns").get_topic_attributes(TopicArn=deployed.topic_arn)["Attributes"]["KmsMasterKeyId"]
    before = kms.get_key_policy(KeyId=key, PolicyName="default")["Policy"]
    nobody = {"Statement": [{"Effect": "Allow", "Action": "kms:Put*", "Principal": {"AWS": "*"}, "Resource": "*"}]}
    kms.put_key_policy(KeyId=key, PolicyName="default", Policy=json.dumps(nobody))
    try:
        with pytest.raises(ClientError, match=r"KMSAccessDenied.*kms:GenerateDataKey"):
            sns.publish(TopicArn=deployed.topic_arn, Message="untold")
    finally:
        kms.put_key_policy(KeyId=key, PolicyName="default", Policy=before)
    sns.publish(TopicArn=deployed.topic_arn, Message="told")


@pytest.mark.parametrize("kind", ["queue", "function"])
def test_a_rule_without_permission_delivers_nothing_but_a_dead_letter(
    aws: AwsServer, deployed: Deployment, kind: str
) -> None:
    """Only the rules that the policy of the queue or function names may send to it."""
    sqs, events = aws.client("sqs"), aws.client("events")
    queue = "arn:aws:sqs:us-west-2:123456789012:trainflow-run-requests-dead-letters"
    target = queue if kind == "queue" else deployed.functions["CleanUp"]
    letters = sqs.create_queue(QueueName=f"letters-{kind}", Attributes={"Policy": FOR_RULES})["QueueUrl"]
    dead = {"DeadLetterConfig": {"Arn": f"arn:aws:sqs:us-west-2:123456789012:letters-{kind}"}}
    events.put_rule(Name=kind, EventPattern=json.dumps({"source": [kind]}))
    events.put_targets(Rule=kind, Targets=[{"Id": "target", "Arn": target, **dead}])

    events.put_events(Entries=[{"Source": kind, "DetailType": "x", "Detail": "{}"}])

    assert aws.targets.drain(10)
    (letter,) = sqs.receive_message(QueueUrl=letters)["Messages"]
    assert json.loads(letter["Body"])["source"] == kind
    assert "Messages" not in sqs.receive_message(
        QueueUrl=sqs.get_queue_url(QueueName=queue.rsplit(":", 1)[1])["QueueUrl"]
    )
    refused = [call for call in aws.guard.calls if call.caller == "events.amazonaws.com" and not call.allowed]
    assert target in {call.resource for call in refused}


def test_a_rules_permission_is_for_one_version_or_alias_of_a_function(aws: AwsServer, deployed: Deployment) -> None:
    events, functions = aws.client("events"), aws.client("lambda")
    target = deployed.functions["CleanUp"]
    function = ":".join(target.split(":")[:7])
    alias = functions.create_alias(FunctionName=function, Name="next", FunctionVersion="$LATEST")["AliasArn"]
    rule = events.put_rule(Name="qualified", EventPattern=json.dumps({"source": ["qualified"]}))["RuleArn"]
    permission = {"Action": "lambda:InvokeFunction", "Principal": "events.amazonaws.com", "SourceArn": rule}

    def refused(arn: str) -> bool:
        try:
            aws.targets._authorize(Target(arn=arn, sender=rule), arn)
        except AccessDenied:
            return True
        return False

    functions.add_permission(FunctionName=function, StatementId="latest", **permission)
    assert (refused(function), refused(alias)) == (False, True)
    functions.remove_permission(FunctionName=function, StatementId="latest")
    functions.add_permission(FunctionName=alias, StatementId="next", **permission)
    assert (refused(function), refused(alias)) == (True, False)


def test_a_statement_taken_away_is_missed(aws: AwsServer, deployed: Deployment) -> None:
    iam, ecr = aws.client("iam"), aws.client_of("ecr", role("Preflight"))
    ecr.describe_images(repositoryName="trainflow")
    given = {"RoleName": "trainflow-Preflight", "PolicyName": "Grants"}
    before = iam.get_role_policy(**given)["PolicyDocument"]
    left = [each for each in before["Statement"] if each["Action"] != "ecr:DescribeImages"]
    iam.put_role_policy(**given, PolicyDocument=json.dumps({**before, "Statement": left}))
    try:
        with pytest.raises(ClientError, match=re.escape("perform: ecr:DescribeImages on resource: arn:aws:ecr:")):
            ecr.describe_images(repositoryName="trainflow")
    finally:
        iam.put_role_policy(**given, PolicyDocument=json.dumps(before))
