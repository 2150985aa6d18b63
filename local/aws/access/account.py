"""The policies that the twin's account has: of roles and of resources, read where moto keeps them.

Deployments put them there, by CloudFormation or by `template`. Documents are parsed once; a changed document is another
text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID

from local.aws.access.evaluation import Caller, Policy

ACCOUNT = DEFAULT_ACCOUNT_ID
PARTITION = "aws"


@lru_cache(maxsize=1024)
def parsed(text: str) -> Policy:
    """The policy that a document's text stands for."""
    policy: Policy = json.loads(text)
    return policy


def _as_text(document: Any) -> str | None:
    if not document:
        return None
    if isinstance(document, str | bytes):
        return document if isinstance(document, str) else document.decode()
    return json.dumps(document, sort_keys=True)


class Account:
    """The account in one Region; implements `needed_permissions.Resources`."""

    def __init__(self, region: str) -> None:
        self.account, self.region = ACCOUNT, region

    def session_of(self, access_key: str) -> tuple[Caller, str] | None:
        """The caller of the assumed role that an access key belongs to, and its token; None for other keys."""
        from moto.sts.models import sts_backends

        found = sts_backends[ACCOUNT][PARTITION].get_assumed_role_from_access_key(access_key)
        if found is None:
            return None
        role = self._role(found.role_arn)
        tags = tuple(sorted((tag["Key"], tag["Value"]) for tag in role.tags or ())) if role else ()
        caller = Caller("role", found.role_arn, found.session_name, unique_id=found.user_id, tags=tags)
        return caller, found.session_token

    def secret_of(self, access_key: str) -> str | None:
        """The secret of the access key of an assumed role; None for other keys."""
        from moto.sts.models import sts_backends

        found = sts_backends[ACCOUNT][PARTITION].get_assumed_role_from_access_key(access_key)
        return found.secret_access_key if found else None

    def policies_of(self, role_arn: str) -> tuple[str, ...]:
        """Texts of the inline and managed policies of a role; none if it does not exist."""
        return tuple(text for each in self._policy_documents(role_arn) if (text := _as_text(each)) is not None)

    def trust_of(self, role_arn: str) -> str | None:
        """Text of the trust policy of a role; None if it does not exist."""
        role = self._role(role_arn)
        return _as_text(role.assume_role_policy_document) if role else None

    def _role(self, arn: str) -> Any:
        from moto.iam.models import iam_backends

        name = arn.rsplit("/", 1)[-1]
        return next((each for each in list(iam_backends[ACCOUNT][PARTITION].roles.values()) if each.name == name), None)

    def _policy_documents(self, role_arn: str) -> Iterator[Any]:
        role = self._role(role_arn)
        if role is None:
            return
        yield from list(role.policies.values())
        for managed in list(role.managed_policies.values()):
            yield next(version.document for version in managed.versions if version.is_default)

    def policy_on(self, arn: str) -> str | None:
        """Text of the policy of a resource; None without a policy."""
        service, name = _service_and_name(arn)
        match service:
            case "s3":
                bucket = self._bucket(name.partition("/")[0])
                return _as_text(bucket.policy) if bucket else None
            case "kms":
                key = self._key(arn)
                return _as_text(key.policy) if key else None
            case "sqs":
                queue = self._queue(name)
                return _as_text(queue.policy) if queue else None
            case "sns":
                topic = self._topic(arn)
                return _as_text(topic.policy) if topic else None
            case "lambda":
                return self._policy_of_function(arn)
        return None

    def key_of(self, arn: str) -> str | None:
        """ARN of the customer's key that encrypts a resource, by the settings of the resource."""
        service, name = _service_and_name(arn)
        key: str | None = None
        match service:
            case "s3":
                bucket = self._bucket(name)
                rule = (bucket.encryption or {}).get("Rule", {}) if bucket else {}
                key = rule.get("ApplyServerSideEncryptionByDefault", {}).get("KMSMasterKeyID")
            case "dynamodb":
                from moto.dynamodb.models import dynamodb_backends

                table = dynamodb_backends[ACCOUNT][self.region].tables.get(name.rpartition("/")[2])
                settings = (table.sse_specification if table else None) or {}
                key = settings.get("KMSMasterKeyId") if settings.get("Enabled") else None
            case "sqs":
                queue = self._queue(name)
                key = queue.kms_master_key_id if queue else None
            case "sns":
                topic = self._topic(arn)
                key = topic.kms_master_key_id if topic else None
            case "states":
                key = self._key_of_machine(arn)
            case "secretsmanager":
                secret = self._secret(arn)
                key = secret.kms_key_id if secret else None
        return self.key_arn(key) if key else None

    def key_of_object(self, bucket: str, key: str) -> str | None:
        """ARN of the key that encrypts an object; None for S3's own encryption, and for a missing object."""
        found = self._bucket(bucket)
        item = found.keys.get(key) if found else None
        key_id = getattr(item, "kms_key_id", None)  # the marker of a deleted object has none
        return self.key_arn(key_id) if key_id else None

    def has_object(self, bucket: str, key: str) -> bool:
        """Whether there is an object; also for a bucket that does not exist, which has an error of its own."""
        from moto.s3.models import FakeDeleteMarker

        found = self._bucket(bucket)
        item = found.keys.get(key) if found else None
        return found is None or (item is not None and not isinstance(item, FakeDeleteMarker))

    def key_arn(self, key: str) -> str:
        """ARN of a key, for its id, alias or ARN; one that does not exist has an ARN all the same."""
        found = self._key(key)
        return found.arn if found else _as_arn(key, self.region)

    def key_state(self, key: str) -> str | None:
        """State of a key such as `Enabled` or `Disabled`; None for a missing key."""
        found = self._key(key)
        if found is None:
            return None
        return str(found.key_state) if found.enabled or found.key_state != "Enabled" else "Disabled"

    def table_key(self, table: str) -> str:
        """Name of a table's partition key; empty for a missing table."""
        from moto.dynamodb.models import dynamodb_backends

        found = dynamodb_backends[ACCOUNT][self.region].tables.get(table)
        return str(found.hash_key_attr) if found else ""

    def secret_arn(self, secret: str) -> str:
        """ARN of a secret, for its name or ARN; one that does not exist has an ARN all the same."""
        found = self._secret(secret)
        if found is None and secret.startswith("arn:"):
            return secret
        return str(found.arn) if found else f"arn:aws:secretsmanager:{self.region}:{ACCOUNT}:secret:{secret}"

    def _bucket(self, name: str) -> Any:
        from moto.s3.models import s3_backends

        return s3_backends[ACCOUNT][PARTITION].buckets.get(name)

    def _key(self, key: str) -> Any:
        from moto.kms.models import kms_backends

        region = "".join(key.split(":")[3:4]) if key.startswith("arn:") else ""  # an ARN may be cut short
        backend = kms_backends[ACCOUNT][region or self.region]
        key_id = backend.any_id_to_key_id(key) if not key.endswith("alias/") else key
        return backend.keys.get(key_id)

    def _queue(self, name: str) -> Any:
        from moto.sqs.models import sqs_backends

        return sqs_backends[ACCOUNT][self.region].queues.get(name)

    def _topic(self, arn: str) -> Any:
        from moto.sns.models import sns_backends

        return sns_backends[ACCOUNT][self.region].topics.get(arn)

    def _secret(self, secret: str) -> Any:
        from moto.secretsmanager.models import secretsmanager_backends

        secrets = secretsmanager_backends[ACCOUNT][self.region].secrets
        return secrets.get(secret)

    def _key_of_machine(self, arn: str) -> str | None:
        from moto.stepfunctions.parser.models import stepfunctions_parser_backends

        machines = stepfunctions_parser_backends[ACCOUNT][self.region].state_machines
        found = next((each for each in list(machines) if each.arn == arn), None)
        settings: dict[str, Any] = (found.encryptionConfiguration if found else None) or {}
        return settings.get("kmsKeyId")

    def _policy_of_function(self, arn: str) -> str | None:
        """The policy of what an ARN leads to: each version and alias has one of its own."""
        from moto.awslambda.models import lambda_backends
        from moto.core.exceptions import ServiceException
        from werkzeug.exceptions import HTTPException

        _, _, _, _, _, _, name, *qualifier = arn.split(":")
        try:
            found = lambda_backends[ACCOUNT][self.region].get_function(name, *qualifier)
        except (ServiceException, HTTPException):  # no such function, version or alias
            return None
        # moto keeps the statements of all versions and aliases together.
        statements = [statement for statement in found.policy.statements if statement["Resource"] == arn]
        return _as_text({"Statement": statements}) if statements else None


def _as_arn(key: str, region: str) -> str:
    if key.startswith("arn:"):
        return key
    name = key if key.startswith("alias/") else f"key/{key}"
    return f"arn:aws:kms:{region}:{ACCOUNT}:{name}"


def _service_and_name(arn: str) -> tuple[str, str]:
    """Service and last part of an ARN; no service for any other text."""
    parts = arn.split(":", 5)
    return parts[2] if parts[0] == "arn" and len(parts) == 6 else "", parts[-1]
