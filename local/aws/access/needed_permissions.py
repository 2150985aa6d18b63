"""The permissions that a request to AWS needs: actions, ARNs and condition keys.

Pure functions. Source of the actions, resources and keys: Service Authorization Reference. Requests that are not listed
need the action of their name on `*`, so a role without such a permission is refused rather than let pass. What a
service does with a KMS key for the caller is here as well, with `kms:ViaService`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from local.aws.access.evaluation import Permission

Parameters = Mapping[str, Any]

READS_TABLE = frozenset({"GetItem", "Query", "Scan", "BatchGetItem", "ConditionCheckItem"})
WRITES_TABLE = frozenset({"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem"})
IN_TRANSACTION = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
}

NEEDS_NOTHING = frozenset({"sts:GetCallerIdentity", "sts:GetSessionToken"})
"""Requests that IAM always answers (STS API reference)."""

SEND = ("kms:GenerateDataKey", "kms:Decrypt")
"""Actions on the key for sending to an encrypted queue or topic (SQS and SNS developer guides, 'Key management')."""


class Resources(Protocol):
    """Facts about the account's resources that a mapping needs."""

    account: str
    region: str

    def table_key(self, table: str) -> str:
        """Name of a table's partition key."""

    def secret_arn(self, secret: str) -> str:
        """ARN of a secret, for its name or ARN."""

    def key_of(self, arn: str) -> str | None:
        """ARN of the customer's KMS key that encrypts a resource; None without such a key."""

    def key_arn(self, key: str) -> str:
        """ARN of a KMS key, for its id, alias or ARN."""


@dataclass(frozen=True, kw_only=True)
class S3Request:
    """Bucket, key and operation of a request to S3."""

    action: str
    """Action as moto names it: IAM's name for most requests."""
    method: str
    bucket: str = ""
    key: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers, with names in lower case."""


def s3_permissions(
    request: S3Request, resources: Resources, *, object_key: Callable[[str, str], str | None]
) -> list[Permission]:
    """The permissions of a request to S3.

    Args:
        request: The request.
        resources: The account.
        object_key: Returns the KMS key of an object, for bucket and key.
    """
    bucket, name = f"arn:aws:s3:::{request.bucket or '*'}", request.key
    lists = request.action in ("HeadBucket", "ListBucket", "ListBucketVersions")
    if lists and "encryption" not in request.query:
        action = "ListBucketVersions" if request.action == "ListBucketVersions" else "ListBucket"
        # A request without a prefix has no such key, so a condition on the prefix refuses it.
        given = {f"s3:{each}": (request.query[each],) for each in ("prefix", "delimiter") if each in request.query}
        return [Permission(f"s3:{action}", bucket, {**TLS, **given})]
    if not name:
        # moto names no action of the subresource 'encryption'.
        reads = "Get" if request.method == "GET" else "Put"
        action = f"{reads}EncryptionConfiguration" if "encryption" in request.query else request.action
        return [Permission(f"s3:{action}", bucket, TLS)]
    arn = f"{bucket}/{name}"
    permissions = [Permission(f"s3:{request.action}", arn, TLS)]
    via = {"kms:viaservice": (f"s3.{resources.region}.amazonaws.com",)}
    # A head without the checksum reads nothing that is encrypted (S3 API reference, HeadObject, 'Permissions').
    tells_checksum = request.headers.get("x-amz-checksum-mode", "").upper() == "ENABLED"
    if request.action in ("GetObject", "GetObjectVersion") and (request.method == "GET" or tells_checksum):
        permissions += _with_key(object_key(request.bucket, name), ("kms:Decrypt",), via)
    if request.action in ("PutObject", "CreateMultipartUpload"):
        # Tags and access control lists that come with an object need their own permissions (S3 API reference,
        # PutObject, 'Permissions').
        own = {"x-amz-tagging": "PutObjectTagging", "x-amz-acl": "PutObjectAcl"}
        permissions += [
            Permission(f"s3:{action}", arn, TLS) for header, action in own.items() if request.headers.get(header)
        ]
    if request.action == "GetObject" and "attributes" in request.query:
        permissions.append(Permission("s3:GetObjectAttributes", arn, TLS))
    if request.action == "PutObject":
        asked_key = request.headers.get("x-amz-server-side-encryption-aws-kms-key-id")
        key = resources.key_arn(asked_key) if asked_key else resources.key_of(bucket)
        parts = "uploads" in request.query or "uploadId" in request.query
        # Parts are decrypted before they are put together (S3 user guide, 'Multipart upload and permissions').
        permissions += _with_key(
            key, ("kms:GenerateDataKey", "kms:Decrypt") if parts else ("kms:GenerateDataKey",), via
        )
        if source := request.headers.get("x-amz-copy-source"):
            source = source.lstrip("/").partition("?")[0]
            permissions.append(Permission("s3:GetObject", f"arn:aws:s3:::{source}", TLS))
            permissions += _with_key(object_key(*source.split("/", 1)), ("kms:Decrypt",), via)
    return permissions


TLS = {"aws:securetransport": ("true",), "s3:tlsversion": ("1.3",)}
"""The twin's plain connections on loopback stand for TLS."""


def _with_key(key: str | None, actions: Iterable[str], context: Mapping[str, tuple[str, ...]]) -> list[Permission]:
    return [Permission(action, key, context) for action in actions] if key else []


def deletion_permissions(bucket: str, keys: Iterable[str]) -> list[Permission]:
    """The permissions of DeleteObjects: one for each object."""
    return [Permission("s3:DeleteObject", f"arn:aws:s3:::{bucket}/{key}", TLS) for key in keys]


def request_permissions(service: str, operation: str, parameters: Parameters, resources: Resources) -> list[Permission]:
    """The permissions of a request to any service but S3.

    Args:
        service: Prefix of the service's actions, such as `states`.
        operation: Name of the operation in the service's API.
        parameters: Its parameters by their names in the API.
        resources: The account.
    """
    if f"{service}:{operation}" in NEEDS_NOTHING:
        return []
    mapping = SERVICES.get(service)
    permissions = mapping(operation, parameters, resources) if mapping else [Permission(f"{service}:{operation}", "*")]
    return [
        Permission(permission.action, permission.resource, {"aws:securetransport": ("true",), **permission.context})
        for permission in permissions
    ]


def _arn(resources: Resources, service: str, name: str) -> str:
    return f"arn:aws:{service}:{resources.region}:{resources.account}:{name}"


def _full(resources: Resources, service: str, name: str, prefix: str) -> str:
    """An ARN, for a parameter that may be a name or an ARN."""
    return name if name.startswith("arn:") else _arn(resources, service, f"{prefix}{name}")


def _via(resources: Resources, service: str) -> dict[str, tuple[str, ...]]:
    return {"kms:viaservice": (f"{service}.{resources.region}.amazonaws.com",)}


def _dynamodb(operation: str, parameters: Parameters, resources: Resources) -> list[Permission]:
    if operation == "TransactWriteItems":
        parts = [(IN_TRANSACTION[kind], part) for each in parameters["TransactItems"] for kind, part in each.items()]
        return [permission for name, part in parts for permission in _dynamodb(name, part, resources)]
    if operation == "TransactGetItems":
        return [
            permission
            for each in parameters["TransactItems"]
            for permission in _dynamodb("GetItem", each["Get"], resources)
        ]
    if operation in ("BatchGetItem", "BatchWriteItem"):
        return [
            permission
            for name, asked in parameters["RequestItems"].items()
            for permission in _table_permissions(operation, name, _batched_items(asked), asked, resources)
        ]
    if "TableName" not in parameters:
        return [Permission(f"dynamodb:{operation}", "*")]
    items = [item for name in ("Key", "Item") if (item := parameters.get(name))]
    return _table_permissions(operation, parameters["TableName"], items, parameters, resources)


def _batched_items(asked: Any) -> list[Mapping[str, Any]]:
    """Keys and items of one table in a batch of reads or writes."""
    if isinstance(asked, Mapping):
        return list(asked.get("Keys", ()))
    requests = [request for each in asked for request in each.values()]
    return [request.get("Item") or request.get("Key") or {} for request in requests]


def _table_permissions(
    operation: str, name: str, items: Iterable[Mapping[str, Any]], parameters: Any, resources: Resources
) -> list[Permission]:
    table = _full(resources, "dynamodb", name, "table/")
    key = resources.table_key(table.rpartition("/")[2])
    values = [value for item in items for value in item.get(key, {}).values()]
    if isinstance(parameters, Mapping):
        values += _queried(parameters, key)
    leading = {"dynamodb:leadingkeys": tuple(map(str, values))} if values else {}
    permissions = [Permission(f"dynamodb:{operation}", table, leading)]
    if operation in READS_TABLE | WRITES_TABLE:
        # DynamoDB decrypts the table's key with the caller's permission (DynamoDB developer guide, 'Encryption at rest:
        # How it works').
        permissions += _with_key(resources.key_of(table), ("kms:Decrypt",), _via(resources, "dynamodb"))
    return permissions


_EQUALITY = re.compile(r"(?P<name>#?[\w.-]+)\s*=\s*(?P<value>:\w+)")


def _queried(parameters: Parameters, key: str) -> list[Any]:
    """Values of the partition key that a Query asks for, in either of its forms."""
    names, values = parameters.get("ExpressionAttributeNames", {}), parameters.get("ExpressionAttributeValues", {})
    found = [
        value
        for match in _EQUALITY.finditer(str(parameters.get("KeyConditionExpression", "")))
        if names.get(match["name"], match["name"]) == key
        for value in values.get(match["value"], {}).values()
    ]
    legacy = parameters.get("KeyConditions", {}).get(key, {}).get("AttributeValueList", ())
    return [*found, *(value for each in legacy for value in each.values())]


def _sns(operation: str, parameters: Parameters, resources: Resources) -> list[Permission]:
    topic = parameters.get("TopicArn") or "*"
    permissions = [Permission(f"sns:{operation}", topic)]
    return (
        permissions + _with_key(resources.key_of(topic), SEND, _via(resources, "sns"))
        if operation == "Publish"
        else permissions
    )


def _sqs(operation: str, parameters: Parameters, resources: Resources) -> list[Permission]:
    name = parameters.get("QueueName") or str(parameters.get("QueueUrl", "")).rsplit("/", 1)[-1]
    queue = _arn(resources, "sqs", name) if name else "*"
    action = {"SendMessageBatch": "SendMessage", "DeleteMessageBatch": "DeleteMessage"}.get(operation, operation)
    keys = {"SendMessage": SEND, "ReceiveMessage": ("kms:Decrypt",)}.get(action, ())
    return [Permission(f"sqs:{action}", queue), *_with_key(resources.key_of(queue), keys, _via(resources, "sqs"))]


def _states(operation: str, parameters: Parameters, resources: Resources) -> list[Permission]:
    if execution := parameters.get("executionArn"):
        machine = execution.replace(":execution:", ":stateMachine:").rsplit(":", 1)[0]
        # The data is left out of metadata (Step Functions API reference, DescribeExecution, `includedData`).
        is_metadata = parameters.get("includedData") == "METADATA_ONLY"
        with_data = ("DescribeExecution", "GetExecutionHistory", "DescribeStateMachineForExecution")
        reads = operation in with_data and not is_metadata
        keys = _with_key(resources.key_of(machine), ("kms:Decrypt",), _via(resources, "states")) if reads else []
        return [Permission(f"states:{operation}", execution), *keys]
    machine = parameters.get("stateMachineArn", "*")
    # A version is started with the permission for its state machine ('Authorization for versions and aliases').
    return [Permission(f"states:{operation}", ":".join(machine.split(":")[:7]))]


def _events(operation: str, parameters: Parameters, resources: Resources) -> list[Permission]:
    if operation == "PutEvents":
        return [
            Permission(
                "events:PutEvents",
                _full(resources, "events", each.get("EventBusName") or "default", "event-bus/"),
                {"events:source": (each.get("Source", ""),), "events:detail-type": (each.get("DetailType", ""),)},
            )
            for each in parameters["Entries"]
        ]
    rule = parameters.get("Rule") or parameters.get("Name")
    return [Permission(f"events:{operation}", _arn(resources, "events", f"rule/{rule}") if rule else "*")]


def _lambda(operation: str, parameters: Parameters, resources: Resources) -> list[Permission]:
    name = parameters.get("FunctionName")
    function = _full(resources, "lambda", name, "function:") if name else "*"
    if operation == "Invoke" and parameters.get("Qualifier"):
        function = f"{function}:{parameters['Qualifier']}"
    return [Permission("lambda:InvokeFunction" if operation == "Invoke" else f"lambda:{operation}", function)]


def _eks(operation: str, parameters: Parameters, resources: Resources) -> list[Permission]:
    cluster = parameters.get("clusterName") or parameters.get("name")
    group = parameters.get("nodegroupName")
    if group and operation != "CreateNodegroup":
        return [Permission(f"eks:{operation}", _arn(resources, "eks", f"nodegroup/{cluster}/{group}/{NODEGROUP_ID}"))]
    return [Permission(f"eks:{operation}", _arn(resources, "eks", f"cluster/{cluster}") if cluster else "*")]


NODEGROUP_ID = "00000000-0000-0000-0000-000000000000"
"""Stands for the id at the end of a node group's ARN, which no policy can know beforehand."""


def _cloudwatch(operation: str, parameters: Parameters, _resources: Resources) -> list[Permission]:
    namespace = parameters.get("Namespace")
    puts = operation == "PutMetricData" and namespace
    return [Permission(f"cloudwatch:{operation}", "*", {"cloudwatch:namespace": (str(namespace),)} if puts else {})]


def _ecr(operation: str, parameters: Parameters, resources: Resources) -> list[Permission]:
    name = parameters.get("repositoryName")
    return [Permission(f"ecr:{operation}", _arn(resources, "ecr", f"repository/{name}") if name else "*")]


def _ssm(operation: str, parameters: Parameters, resources: Resources) -> list[Permission]:
    if operation == "SendCommand":
        document = _full(resources, "ssm", parameters["DocumentName"], "document/")
        if parameters["DocumentName"].startswith("AWS-"):
            document = f"arn:aws:ssm:{resources.region}::document/{parameters['DocumentName']}"
        hosts = [_arn(resources, "ec2", f"instance/{each}") for each in parameters.get("InstanceIds", ())]
        return [Permission("ssm:SendCommand", each) for each in (document, *hosts)]
    name = parameters.get("Name")
    return [Permission(f"ssm:{operation}", _arn(resources, "ssm", f"parameter/{name.lstrip('/')}") if name else "*")]


def _secretsmanager(operation: str, parameters: Parameters, resources: Resources) -> list[Permission]:
    if not (secret := parameters.get("SecretId")):
        return [Permission(f"secretsmanager:{operation}", "*")]
    arn = resources.secret_arn(secret)
    keys = _with_key(resources.key_of(arn), ("kms:Decrypt",), _via(resources, "secretsmanager"))
    return [Permission(f"secretsmanager:{operation}", arn), *keys]


def _kms(operation: str, parameters: Parameters, resources: Resources) -> list[Permission]:
    key, given = parameters.get("KeyId"), parameters.get("EncryptionContext") or {}
    context = {f"kms:encryptioncontext:{name}".lower(): (str(value),) for name, value in given.items()}
    if given:
        context["kms:encryptioncontextkeys"] = tuple(given)
    return [Permission(f"kms:{operation}", resources.key_arn(key) if key else "*", context)]


def _fsx(operation: str, parameters: Parameters, resources: Resources) -> list[Permission]:
    """A task is a resource of its own (FSx for Lustre user guide, 'API permissions'); calls that list take none."""
    task = Permission(f"fsx:{operation}", _arn(resources, "fsx", "task/*"))
    file_system = parameters.get("FileSystemId")
    if operation != "CreateDataRepositoryTask" or not file_system:
        return [Permission(f"fsx:{operation}", "*")]
    return [Permission(f"fsx:{operation}", _arn(resources, "fsx", f"file-system/{file_system}")), task]


SERVICES: Mapping[str, Callable[[str, Parameters, Resources], list[Permission]]] = {
    "cloudwatch": _cloudwatch,
    "dynamodb": _dynamodb,
    "ecr": _ecr,
    "eks": _eks,
    "events": _events,
    "fsx": _fsx,
    "kms": _kms,
    "lambda": _lambda,
    "secretsmanager": _secretsmanager,
    "sns": _sns,
    "sqs": _sqs,
    "ssm": _ssm,
    "states": _states,
}
"""Mappings of the services whose actions have resources or condition keys here, by the prefix of their actions."""
