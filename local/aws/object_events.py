"""S3's events in EventBridge, as recorded on AWS. moto 5.2.5 sends other fields and reasons, none for deletions of
versions, and one for the tags of each new object.

Source: S3 user guide, 'EventBridge event message structure'; events recorded on AWS (localstack/localstack,
`test_s3_notifications_eventbridge.snapshot.json`).
"""

from __future__ import annotations

import itertools
import secrets
import time
import types
from typing import Any

from local.aws.replacements import replace

CREATED = {
    "s3:ObjectCreated:Put": "PutObject",
    "s3:ObjectCreated:Post": "POST Object",
    "s3:ObjectCreated:Copy": "CopyObject",
    "s3:ObjectCreated:CompleteMultipartUpload": "CompleteMultipartUpload",
}
"""Reason of an 'Object Created', by the name of the notification."""

OTHERS = {
    "s3:ObjectAcl:Put": "Object ACL Updated",
    "s3:ObjectTagging:Put": "Object Tags Added",
    "s3:ObjectTagging:Delete": "Object Tags Deleted",
    "s3:ObjectRestore:Post": "Object Restore Initiated",
    "s3:ObjectRestore:Completed": "Object Restore Completed",
}

_sequence = itertools.count()


def apply() -> None:
    """Send events as S3 does."""
    from moto.s3 import notifications
    from moto.s3.models import FakeDeleteMarker, S3Backend
    from moto.s3.responses import S3Response

    delete_object, get_notification = S3Backend.delete_object, S3Response.get_bucket_notification

    def send(account_id: str, bucket: Any, event_name: Any, key: Any) -> None:
        name = str(event_name.value)
        if name in CREATED:
            described = {**_object(bucket, key), "size": key.size, "sequencer": _sequencer()}
            _send(account_id, bucket, "Object Created", {"object": described, "reason": CREATED[name]})
        elif name in OTHERS and (name != "s3:ObjectTagging:Put" or _is_request("tagging")):
            described = _object(bucket, key)
            extra: dict[str, Any] = {}
            if "Restore" in name:
                described["size"], extra["source-storage-class"] = key.size, key.storage_class
            if name == "s3:ObjectRestore:Completed" and key._expiry is not None:
                extra["restore-expiry-time"] = key._expiry.strftime("%Y-%m-%dT%H:%M:%SZ")
            _send(account_id, bucket, OTHERS[name], {"object": described, **extra})

    def delete(self: Any, bucket_name: str, key_name: str, version_id: str | None = None, bypass: bool = False) -> Any:
        done, answer = delete_object(self, bucket_name, key_name, version_id=version_id, bypass=bypass)
        if done:
            bucket = self.get_bucket(bucket_name)
            version = answer.get("version-id") or version_id
            described = {"key": key_name, **({"version-id": version} if version else {}), "sequencer": _sequencer()}
            is_marker = version_id is None and bucket.is_versioned
            deletion = "Delete Marker Created" if is_marker else "Permanently Deleted"
            detail = {"object": described, "reason": "DeleteObject", "deletion-type": deletion}
            _send(self.account_id, bucket, "Object Deleted", detail)
        return done, answer

    def set_delete_marker(self: Any, bucket_name: str, key_name: str) -> Any:
        """The marker also of a key that never was (S3 user guide, 'Deleting object versions from a versioning-enabled
        bucket'); moto makes none."""
        keys = self.get_bucket(bucket_name).keys
        marker = FakeDeleteMarker(key=keys.get(key_name) or types.SimpleNamespace(name=key_name))
        keys[key_name] = marker
        return marker

    def notification(self: Any) -> Any:
        """The configuration with the element for EventBridge, which moto keeps and leaves out of its answer."""
        status, headers, body = get_notification(self)
        configuration = self.backend.get_bucket_notification_configuration(self.bucket_name)
        if configuration is None or configuration.event_bridge is None:
            return status, headers, body
        end = "</NotificationConfiguration>"
        opened = body.removesuffix("/>") + ">" if body.endswith("/>") else body.removesuffix(end)
        return status, headers, f"{opened}<EventBridgeConfiguration></EventBridgeConfiguration>{end}"

    replace(notifications, "_send_event_bridge_message", send)
    replace(S3Response, "get_bucket_notification", notification)
    replace(S3Backend, "delete_object", delete)
    replace(S3Backend, "_set_delete_marker", set_delete_marker)


def _object(bucket: Any, key: Any) -> dict[str, Any]:
    version = {"version-id": key.version_id} if bucket.is_versioned else {}
    return {"key": key.name, "etag": key.etag.replace('"', ""), **version}


def _sequencer() -> str:
    """A hexadecimal number that grows."""
    return f"{int(time.time()):010X}{next(_sequence):08X}"


def _is_request(subresource: str) -> bool:
    """Whether the request at hand is for a subresource; S3 reports tags that come with an object as its creation."""
    from flask import has_request_context, request

    return has_request_context() and subresource in request.args


def _send(account_id: str, bucket: Any, detail_type: str, detail: dict[str, Any]) -> None:
    from moto.events.models import events_backends

    configuration = bucket.notification_configuration
    if configuration is None or configuration.event_bridge is None:
        return
    event = {
        "version": "0",
        "source": "aws.s3",
        "detail-type": detail_type,
        "account": account_id,
        "region": bucket.region_name,
        "time": time.time(),
        "resources": [bucket.arn],
        "detail": {
            "version": "0",
            "bucket": {"name": bucket.name},
            "request-id": secrets.token_hex(8).upper(),
            "requester": account_id,
            **({} if detail_type == "Object Restore Completed" else {"source-ip-address": "127.0.0.1"}),
            **detail,
        },
    }
    bus = events_backends[account_id][bucket.region_name].event_buses["default"]
    for rule in list(bus.rules.values()):
        rule.send_to_targets(event)
