"""ConfigMaps and Secrets."""

from __future__ import annotations

import base64

from kubetwin.model.errors import FieldError, Object, bad_value, forbidden_field, required, too_long
from kubetwin.model.names import config_key
from kubetwin.resources.resource import AGE, NAME, Column, Resource

_CONFIG_MAP = "io.k8s.api.core.v1.ConfigMap"
_KEYS_OF_TYPES = {
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_ACCOUNT = "kubernetes.io/service-account.name"

MAX_BYTES = 1024 * 1024
"""Most bytes that the values of a ConfigMap or a Secret may have together."""


def _validate_keys(obj: Object) -> list[FieldError]:
    faults = [
        bad_value(f"{part}[{key}]", key, fault)
        for part in ("data", "binaryData")
        for key in obj.get(part) or {}
        if (fault := config_key(key))
    ]
    twice = set(obj.get("data") or {}) & set(obj.get("binaryData") or {})
    faults += [bad_value(f"data[{key}]", key, "duplicate of key present in binaryData") for key in sorted(twice)]
    texts, encoded = (obj.get("data") or {}).values(), (obj.get("binaryData") or {}).values()
    if obj["kind"] == "Secret":
        texts, encoded = (), texts
    size = sum(len(text.encode()) for text in texts) + sum(len(base64.b64decode(text)) for text in encoded)
    if size > MAX_BYTES:
        faults.append(too_long("data" if obj["kind"] == "Secret" else "[]", MAX_BYTES))
    return faults


def _validate_update(new: Object, old: Object) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    detail = "field is immutable when `immutable` is set"
    faults = [] if new.get("immutable") else [forbidden_field("immutable", detail)]
    return faults + [
        forbidden_field(part, detail)
        for part in ("data", "binaryData")
        if (new.get(part) or {}) != (old.get(part) or {})
    ]


def _default_secret(secret: Object) -> None:
    secret.setdefault("type", "Opaque")
    written = secret.pop("stringData", None) or {}  # is never stored: write-only
    if written:
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in written.items()}
        secret["data"] = {**(secret.get("data") or {}), **encoded}


def _validate_secret(secret: Object) -> list[FieldError]:
    needed = _KEYS_OF_TYPES.get(secret["type"], ())
    data = secret.get("data") or {}
    missing = [required(f"data[{key}]") for key in needed if key not in data]
    if secret["type"] == "kubernetes.io/basic-auth" and not {"username", "password"} & set(data):
        missing = [required("data[username]"), required("data[password]")]
    if secret["type"] == "kubernetes.io/service-account-token":
        account = (secret["metadata"].get("annotations") or {}).get(_ACCOUNT)
        missing = [] if account else [required(f"metadata.annotations[{_ACCOUNT}]")]
    return [*_validate_keys(secret), *missing]


def _validate_secret_update(new: Object, old: Object) -> list[FieldError]:
    changed = new.get("type") != old.get("type")
    faults = [bad_value("type", new.get("type"), "field is immutable")] if changed else []
    return faults + _validate_update(new, old)


def _keys(obj: Object) -> int:
    return len(obj.get("data") or {}) + len(obj.get("binaryData") or {})


RESOURCES = (
    Resource(
        kind="ConfigMap",
        plural="configmaps",
        type_name=_CONFIG_MAP,
        short_names=("cm",),
        storage_hash="qFsyl6wFWjQ=",
        validate=_validate_keys,
        validate_update=_validate_update,
        columns=(NAME, Column("Data", _keys, described_by=(_CONFIG_MAP, "data")), AGE),
    ),
    Resource(
        kind="Secret",
        plural="secrets",
        type_name="io.k8s.api.core.v1.Secret",
        storage_hash="S6u1pOWzb84=",
        fields=("type",),
        default=_default_secret,
        validate=_validate_secret,
        validate_update=_validate_secret_update,
        columns=(NAME, Column("Type", lambda obj: obj.get("type", "")), Column("Data", _keys), AGE),
    ),
)
