"""Judges every request at the twin's endpoint as IAM and KMS do, records it, and refuses what is not allowed.

The endpoint is the one place where all callers meet: functions, programs in pods in any language, the state machines'
tasks, clients of users. Their credentials name the caller. moto 5.2.5 has an access control of its own, without
resources, conditions or policies of resources; this module takes its place at the same two points, private functions of
moto: check them again when moto's version is raised.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote
from xml.etree import ElementTree

from local.aws.access import key_errors
from local.aws.access.account import ACCOUNT, Account, parsed
from local.aws.access.evaluation import Caller, Decision, Permission, decide
from local.aws.access.needed_permissions import (
    TLS,
    S3Request,
    deletion_permissions,
    request_permissions,
    s3_permissions,
)
from local.aws.error_answers import error_answer
from local.aws.replacements import replace
from local.aws.request_forms import INVALID_PARAMETERS, UNREADABLE, form_error, given_parameters, parameter_error
from local.aws.request_limits import operation_model

OWNER = Caller("owner")
ANONYMOUS = Caller("anonymous")

UNKNOWN_KEY = "InvalidClientTokenId"

UNKNOWN_OPERATION = "UnknownOperationException"

UNKNOWN_KEY_CODES = {
    "ec2": ("AuthFailure", 401),
    "json": ("UnrecognizedClientException", 400),
    "query": (UNKNOWN_KEY, 403),
    "query-json": (UNKNOWN_KEY, 403),
    "rest-json": ("UnrecognizedClientException", 403),
}
"""Error and status for an access key that does not exist, by protocol (API references, 'Common errors')."""

PREFIXES = {"monitoring": "cloudwatch"}
"""Prefixes of IAM actions that differ from the service name in the signatures of requests."""

_CREDENTIAL = re.compile(r"Credential=(?P<key>[^/]+)/[^/]+/[^/]+/(?P<service>[^/]+)/")


class Refused(Exception):
    """A request that is answered with an error before its service gets it."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class AccessDenied(Refused):
    """A request that IAM or KMS refuses."""

    def __init__(self, message: str, code: str = "AccessDenied") -> None:
        super().__init__(message, code)


@dataclass(frozen=True)
class Call:
    """A permission that a caller has needed, one way or another."""

    caller: str
    """ARN of the role, name of the service, or an unknown access key."""
    action: str
    resource: str
    context: tuple[tuple[str, tuple[str, ...]], ...]
    allowed: bool


# Decision 49: with the templates' policies, a missing permission fails here and not first on AWS.
class Guard:
    """Judges requests and remembers them."""

    def __init__(self, region: str, *, owner_key: str, owner_secret: str) -> None:
        """
        Args:
            region: Region of the account's resources.
            owner_key: Id of the access key of the account's owner.
            owner_secret: Its secret.
        """
        self.account = Account(region)
        self._owner_key, self._owner_secret = owner_key, owner_secret
        self._calls: Counter[Call] = Counter()
        self._lock = threading.Lock()
        self._callers: dict[str, tuple[Caller, str]] = {}

    @property
    def calls(self) -> dict[Call, int]:
        """Number of requests that needed each permission; the account's owner, who may do everything, is left out."""
        with self._lock:
            return dict(self._calls)

    def write(self, file: Path) -> None:
        """Write the calls as JSON, one a line."""
        lines = [
            json.dumps({**vars(call), "context": dict(call.context), "count": n}) for call, n in self.calls.items()
        ]
        file.write_text("".join(f"{line}\n" for line in sorted(lines)))

    def caller(self, headers: Mapping[str, str]) -> Caller:
        """The principal whose credentials have signed a request; a role's count with their session token only."""
        found = _CREDENTIAL.search(headers.get("Authorization", ""))
        if found is None:
            return ANONYMOUS
        key = found["key"]
        if key not in self._callers:
            session = self.account.session_of(key)
            if session is None and key != self._owner_key:
                return Caller("unknown", key)
            self._callers[key] = session or (OWNER, "")
        caller, token = self._callers[key]
        return caller if not token or headers.get("X-Amz-Security-Token") == token else Caller("unknown", key)

    def secret_of(self, key: str) -> str | None:
        """The secret that belongs to an access key; None for a key that the twin has not given out."""
        return self._owner_secret if key == self._owner_key else self.account.secret_of(key)

    def require(self, caller: Caller, permissions: Iterable[Permission], *, is_recorded: bool = True) -> None:
        """Return if a caller has all of some permissions.

        Args:
            caller: The caller.
            permissions: The permissions.
            is_recorded: Whether the calls are remembered: not those of a permission that a caller can do without.

        Raises:
            AccessDenied: If it lacks one; the message says which, as AWS says it. Also if its access key is unknown.
        """
        if caller.kind == "unknown":
            for permission in permissions:
                self._record(caller, permission, allowed=False)
            raise AccessDenied("The security token included in the request is invalid.", UNKNOWN_KEY)
        for permission in permissions:
            if permission.action in USES_OF_KEYS:
                self._require_usable(permission)
            decision = self._judge(caller, permission)
            if caller.kind != "owner" and is_recorded:
                self._record(caller, permission, allowed=decision.allowed)
            if not decision.allowed:
                on = "" if permission.resource == "*" else f" on resource: {permission.resource}"
                said = f"User: {caller.label} is not authorized to perform: {permission.action}{on} {decision.reason}"
                via = permission.context.get("kms:viaservice", ())
                raise AccessDenied(f"{key_errors.prefix_of(via)}{said}", key_errors.errors_of(via).denied)

    def require_trust(self, service: str, role_arn: str, *, tags: Mapping[str, str] | None = None) -> None:
        """Return if a role's trust policy lets a service assume the role, with the session tags that it gives.

        Args:
            service: The service's principal, such as `lambda.amazonaws.com`.
            role_arn: The role.
            tags: Tags of the session; None for a service without session tags.

        Raises:
            AccessDenied: If it does not, or if the role does not exist.
        """
        context = {f"aws:requesttag/{key}".lower(): (value,) for key, value in (tags or {}).items()}
        trust = self.account.trust_of(role_arn)
        for action in ("sts:AssumeRole", *(("sts:TagSession",) if tags else ())):
            permission = Permission(action, role_arn, context)
            decision = decide(
                Caller("service", service),
                permission,
                identity=(),
                resource=parsed(trust) if trust else None,
                account=ACCOUNT,
            )
            if not decision.allowed:
                raise AccessDenied(f"{service} is not authorized to perform: {action} on resource: {role_arn}")

    def _record(self, caller: Caller, permission: Permission, *, allowed: bool) -> None:
        call = Call(
            caller.name, permission.action, permission.resource, tuple(sorted(permission.context.items())), allowed
        )
        with self._lock:
            self._calls[call] += 1

    def _judge(self, caller: Caller, permission: Permission) -> Decision:
        identity = self.account.policies_of(caller.name) if caller.kind == "role" else ()
        policy = self.account.policy_on(permission.resource)
        here = {"aws:requestedregion": (self.account.region,), **permission.context}
        if any(TIME.search(text) for text in (*identity, policy or "")):
            now = datetime.now(UTC)
            here |= {"aws:currenttime": (now.isoformat(),), "aws:epochtime": (str(int(now.timestamp())),)}
        context = tuple(sorted(here.items()))
        return _judged(caller, permission.action, permission.resource, context, identity, policy)

    def _require_usable(self, permission: Permission) -> None:
        """Refuse a key that does not exist, is disabled or waits for its deletion (KMS API reference, errors)."""
        state, via = self.account.key_state(permission.resource), permission.context.get("kms:viaservice", ())
        if state == "Enabled":
            return
        said = "does not exist" if state is None else f"is {state.lower() if state == 'Disabled' else state}"
        message = f"{key_errors.prefix_of(via)}Key '{permission.resource}' {said}."
        raise AccessDenied(message, key_errors.errors_of(via).of_state(state))


TIME = re.compile("aws:(CurrentTime|EpochTime)", re.IGNORECASE)
"""Condition keys that every request has another value of; decisions by other policies are kept."""

USES_OF_KEYS = frozenset({"kms:Encrypt", "kms:Decrypt", "kms:GenerateDataKey", "kms:GenerateDataKeyWithoutPlaintext"})


@lru_cache(maxsize=65536)
def _judged(
    caller: Caller,
    action: str,
    resource: str,
    context: tuple[tuple[str, tuple[str, ...]], ...],
    identity: tuple[str, ...],
    policy: str | None,
) -> Decision:
    """The decision about a permission; kept, because runs need the same few permissions again and again."""
    return decide(
        caller,
        Permission(action, resource, dict(context)),
        identity=[parsed(text) for text in identity],
        resource=parsed(policy) if policy else None,
        account=ACCOUNT,
        is_key=":key/" in resource,
    )


def install(guard: Guard) -> None:
    """Judge the requests at moto's endpoint."""
    from moto.core.responses import BaseResponse
    from moto.iam.access_control import PermissionResult
    from moto.s3.exceptions import S3ClientError
    from moto.s3.models import FakeBucket
    from moto.s3.responses import S3Response

    answer = BaseResponse.call_action

    def call_action(self: Any) -> Any:
        caller = guard.caller(self.headers)
        try:
            if caller == ANONYMOUS:
                raise AccessDenied("The request has no credentials.")
            if not hasattr(self, "form_error"):  # of a service whose fields moto does not read before
                self.form_error = _form_error(self)
            if self.form_error is not None:
                guard.require(caller, [])  # an unknown key is refused as such, whatever the request
                raise self.form_error
            guard.require(caller, _needed_permissions(self, guard.account))
            return answer(self)
        except Refused as refused:
            return _refusal(self, refused)
        except NotImplementedError:
            return _refusal(self, Refused(f"The twin does not answer {self._get_action()}.", UNKNOWN_OPERATION))

    read, read_fields = BaseResponse._dispatch, BaseResponse.parse_parameters

    def parse_parameters(self: Any, request: Any) -> None:
        self.form_error, self.params = _form_error(self), {}
        if self.form_error is None:
            try:
                read_fields(self, request)
            except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
                self.form_error = Refused("The fields of the request have another form than its operation.", UNREADABLE)

    def dispatch(self: Any, request: Any, full_url: str | None = None, headers: Any = None) -> Any:
        try:
            return read(self, request, full_url, headers)
        except UnicodeDecodeError:  # moto has not read the headers yet
            return 400, {"content-type": "application/json"}, json.dumps({"__type": UNREADABLE})

    def authorize_s3(self: Any, bucket_name: str | None = None, key_name: str | None = None) -> None:
        caller = guard.caller(self.headers)
        owner = self.headers.get("x-amz-expected-bucket-owner")
        if owner is not None and owner != ACCOUNT:
            raise S3ClientError("AccessDenied", "Access Denied")
        if caller == ANONYMOUS:  # moto checks access control lists and policies of such requests for objects
            if bucket_name and not key_name and not _is_listed_for_everyone(self.backend.get_bucket(bucket_name)):
                raise S3ClientError("AccessDenied", "Access Denied")
            return
        try:
            guard.require(caller, _object_permissions(self, bucket_name, key_name, guard.account))
            if self.data["Action"] == "GetObject" and not guard.account.has_object(bucket_name or "", key_name or ""):
                # S3 reports a missing object only to those who may list the keys (S3 API reference, GetObject,
                # 'Permissions'). The request has no prefix, so a policy with a condition on it does not allow that.
                listed = Permission("s3:ListBucket", f"arn:aws:s3:::{bucket_name}", TLS)
                guard.require(caller, [listed], is_recorded=False)
        except AccessDenied as denied:
            if denied.code == UNKNOWN_KEY:
                said = "The AWS Access Key Id you provided does not exist in our records."
                raise S3ClientError("InvalidAccessKeyId", said) from denied
            raise S3ClientError(denied.code, str(denied)) from denied

    def permission_of_everyone(self: Any, action: str, resource: str) -> Any:
        if self.policy is None:
            return PermissionResult.NEUTRAL
        decision = _judged(ANONYMOUS, action, resource, tuple(TLS.items()), (), self.policy.decode())
        if decision.allowed:
            return PermissionResult.PERMITTED
        return PermissionResult.DENIED if decision.is_explicit else PermissionResult.NEUTRAL

    replace(BaseResponse, "_dispatch", dispatch)
    replace(BaseResponse, "parse_parameters", parse_parameters)
    replace(BaseResponse, "call_action", call_action)
    replace(FakeBucket, "get_permission", permission_of_everyone)
    replace(S3Response, "_authenticate_and_authorize_s3_action", authorize_s3)


def _is_listed_for_everyone(bucket: Any) -> bool:
    from moto.iam.access_control import PermissionResult

    allowed = bucket.get_permission("s3:ListBucket", f"arn:aws:s3:::{bucket.name}")
    if allowed is PermissionResult.DENIED:
        return False
    return allowed is PermissionResult.PERMITTED or bool(bucket.acl and bucket.acl.public_read)


def _form_error(response: Any) -> Refused | None:
    """The refusal of a request that lacks the types or required fields of its operation; None for any other."""
    if not _is_json(response):
        return _parameter_error(response)
    operation = str(response._get_action())
    model = operation_model(response.boto3_service_name, operation)
    if model is None:
        return Refused(f"There is no operation {operation}.", UNKNOWN_OPERATION)
    error = form_error(model.input_shape, response.raw_body or b"")
    return Refused(error[1], error[0]) if error else None


def _parameter_error(response: Any) -> Refused | None:
    """The refusal of parameters in a query, a path or a document; None for any other."""
    from moto.core.parse import PROTOCOL_PARSERS
    from moto.core.responses import get_service_model

    service = response.boto3_service_name
    model = operation_model(service, str(response._get_action())) if service in INVALID_PARAMETERS else None
    if model is None:
        return None
    request = response.normalized_request
    published = get_service_model(service)
    protocol = response.determine_response_protocol(published)
    try:
        given = PROTOCOL_PARSERS[protocol](published.operation_model(model.name)).parse(
            {
                "method": request.method,
                "values": request.values,
                "headers": request.headers,
                "body": request.data,
                "url_path": request.path,
                "url_params": {name: unquote(value) for name, value in (response.uri_match or {}).items()},
            }
        )
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return Refused("The fields of the request have another form than its operation.", INVALID_PARAMETERS[service])
    error = parameter_error(service, model, given)
    return Refused(error[1], error[0]) if error else None


def _is_json(response: Any) -> bool:
    return str(response.headers.get("Content-Type", "")).startswith("application/x-amz-json")


def _refusal(response: Any, denied: Refused) -> tuple[int, dict[str, Any], str]:
    """The answer in the protocol of the service: JSON or XML."""
    from moto.core.responses import get_service_model

    protocol = response.determine_response_protocol(get_service_model(response.boto3_service_name))
    code = denied.code
    status = 400 if protocol in ("json", "query-json") or code != "AccessDenied" else 403
    if code == UNKNOWN_KEY:
        code, status = UNKNOWN_KEY_CODES.get(protocol, (code, 403))
    if code == "AccessDenied":
        code = {"ec2": "UnauthorizedOperation"}.get(protocol, f"{code}Exception" if "json" in protocol else code)
    form = "json" if "json" in protocol else "ec2" if protocol == "ec2" else "query"
    _, headers, body = error_answer(form, status, code, str(denied))
    if form == "json" and code in key_errors.QUERY_CODES:
        headers.append(("x-amzn-query-error", f"{key_errors.QUERY_CODES[code]};Sender"))
    return status, {"status": str(status), **{name.lower(): value for name, value in headers}}, body


def _needed_permissions(response: Any, account: Account) -> list[Permission]:
    """The permissions of a request that moto has read."""
    found = _CREDENTIAL.search(response.headers.get("Authorization", ""))
    if found is None:
        return []
    service = PREFIXES.get(found["service"], found["service"])
    operation = response._get_action()
    return request_permissions(service, str(operation), _parameters(response), account) if operation else []


def _parameters(response: Any) -> Mapping[str, Any]:
    """Parameters of an operation: parsed by moto, or those of the path, the body's JSON and the query."""
    given = given_parameters(response)
    path = {name: unquote(value) for name, value in (response.uri_match or {}).items() if isinstance(value, str)}
    if _is_json(response):  # fields that the operation lacks have any form
        model = operation_model(response.boto3_service_name, str(response._get_action()))
        known = getattr(model and model.input_shape, "members", {})
        given = {name: value for name, value in given.items() if name in known and value is not None}
    return given | path


def _object_permissions(response: Any, bucket: str | None, key: str | None, account: Account) -> list[Permission]:
    query = {name: values[0] for name, values in parse_qs(response.parsed_url.query, keep_blank_values=True).items()}
    action = response.data["Action"]
    request = S3Request(
        action=action,
        method=response.method,
        bucket=bucket or "",
        key=key or "",
        query=query,
        headers={name.lower(): value for name, value in response.headers.items()},
    )
    if action == "DeleteObject" and not key:
        named = ElementTree.fromstring(response.raw_body).iter()  # noqa: S314  (from this machine's own clients)
        return deletion_permissions(
            request.bucket, [each.text or "" for each in named if each.tag.rpartition("}")[2] == "Key"]
        )
    return s3_permissions(request, account, object_key=account.key_of_object)
