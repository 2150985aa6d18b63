"""The rules for names, label keys and label values, with the API server's messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address
from typing import Any

from kubetwin.model.errors import FieldError, bad_value, duplicate, required

NameRule = Callable[[str], str | None]

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_QUALIFIED})?"
_HTTP_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"


def namespaced_name(obj: Mapping[str, Any]) -> tuple[str, str]:
    """The namespace of an object ("" without one) and its name."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _words(text: str, pattern: str, *examples: str) -> str:
    quoted = " or ".join(f"'{example}', " for example in examples).rstrip(", ")
    return f"{text} (e.g. {quoted}, regex used for validation is '{pattern}')"


def dns_label(name: str) -> str | None:
    """RFC 1123 label: why `name` is not one, or None."""
    if len(name) > 63:
        return "must be no more than 63 bytes"
    if re.fullmatch(_LABEL, name):
        return None
    text = (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
        "and must start and end with an alphanumeric character"
    )
    return _words(text, _LABEL, "my-name", "123-abc")


def dns_subdomain(name: str) -> str | None:
    """RFC 1123 subdomain: why `name` is not one, or None."""
    if len(name) > 253:
        return "must be no more than 253 bytes"
    if re.fullmatch(_SUBDOMAIN, name):
        return None
    text = (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
        "and must start and end with an alphanumeric character"
    )
    return _words(text, _SUBDOMAIN, "example.com")


def path_segment(name: str) -> str | None:
    """The loose rule of roles and bindings: any text that can be one segment of a URL's path."""
    if name in (".", ".."):
        return f"may not be '{name}'"
    for part in ("/", "%"):
        if part in name:
            return f"may not contain '{part}'"
    return None


def port_name(name: str) -> str | None:
    """Fault of `name` as the name of a port, or None."""
    if len(name) > 15:
        return "must be no more than 15 characters"
    if not re.fullmatch("[-a-z0-9]*", name):
        return "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
    if not re.search("[a-z]", name):
        return "must contain at least one letter (a-z)"
    if "--" in name:
        return "must not contain consecutive hyphens"
    return "must not begin or end with a hyphen" if name.strip("-") != name else None


def ip_address_fault(address: str) -> str | None:
    """Fault of `address` as an IP address, or None."""
    try:
        ip_address(address)
    except ValueError:
        return "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
    return None


def domain_prefixed_path(path: str) -> str | None:
    """Fault of `path` as a DNS name, a slash and a path (`example.com/controller`), or None."""
    domain, slash, rest = path.partition("/")
    if not slash or not domain or not rest:
        return 'must be a domain-prefixed path (such as "acme.io/foo")'
    if fault := dns_subdomain(domain):
        return fault
    return None if re.fullmatch(_HTTP_PATH, rest) else _words("Invalid path", _HTTP_PATH)


def fault_of_prefix(rule: NameRule, prefix: str) -> str | None:
    """Fault of all names that begin with `prefix` under a rule, or None; the prefix may end with a dash."""
    return rule(f"{prefix[:-1]}a" if len(prefix) > 1 and prefix.endswith("-") else prefix)


def config_key(key: str) -> str | None:
    if re.fullmatch(_CONFIG_KEY, key):
        return None
    text = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
    return _words(text, _CONFIG_KEY, "key.name", "KEY_NAME", "key-name")


def qualified_name(key: str) -> str | None:
    """A label or annotation key: an optional DNS prefix and a name."""
    prefix, slash, name = key.rpartition("/")
    if slash and dns_subdomain(prefix):
        return f"prefix part {dns_subdomain(prefix)}"
    if len(name) > 63:
        return "name part must be no more than 63 bytes"
    if re.fullmatch(_QUALIFIED, name):
        return None
    text = (
        "name part must consist of alphanumeric characters, '-', '_' or '.', "
        "and must start and end with an alphanumeric character"
    )
    return _words(text, _QUALIFIED, "MyName", "my.name", "123-abc")


def label_value(value: str) -> str | None:
    if len(value) > 63:
        return "must be no more than 63 bytes"
    if re.fullmatch(_LABEL_VALUE, value):
        return None
    text = (
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
        "and must start and end with an alphanumeric character"
    )
    return _words(text, _LABEL_VALUE, "MyValue", "my_value", "12345")


def follows(rule: NameRule, path: str, value: str) -> list[FieldError]:
    """A fault if a value does not follow a rule."""
    fault = rule(value)
    return [bad_value(path, value, fault)] if fault else []


def validate_entry_name(name: str, seen: set[str], path: str) -> Iterator[FieldError]:
    """Faults of the name of an entry of a list, which has to be unique.

    Args:
        name: Empty if it is missing.
        seen: Names of the entries before; this one is added.
        path: Place of the entry.
    """
    if not name:
        yield required(f"{path}.name")
    elif fault := dns_label(name):
        yield bad_value(f"{path}.name", name, fault)
    elif name in seen:
        yield duplicate(f"{path}.name", name)
    seen.add(name)


def validate_labels(labels: Mapping[str, Any] | None, path: str) -> list[FieldError]:
    return [
        fault
        for key, value in (labels or {}).items()
        for fault in (*follows(qualified_name, path, key), *follows(label_value, path, value))
    ]
