"""Verb, resource and options of a request, read from its method, path and query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kubetwin.model.errors import (
    AT_LEAST_ZERO,
    ApiError,
    FieldError,
    bad_request,
    bad_value,
    forbidden_field,
    invalid,
    not_supported,
    one_of,
    too_long,
)

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_NAMESPACE_SUBRESOURCES = ("status", "finalize")
_LONGEST_MANAGER = 128
_OPTION_KINDS = {
    "create": "CreateOptions",
    "update": "UpdateOptions",
    "patch": "PatchOptions",
    "delete": "DeleteOptions",
}


@dataclass(frozen=True)
class RequestInfo:
    """A request as authorization sees it. `resource` is empty for other paths (`/version`)."""

    path: str
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def is_resource(self) -> bool:
        return bool(self.resource)


def parse_request(method: str, path: str, query: Mapping[str, str]) -> RequestInfo:
    """Split a path as apiserver's `RequestInfoFactory` does."""
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["api"] and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return RequestInfo(path, method.lower())
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
            rest = rest[2:]
    resource, name, subresource = (*rest, "", "")[:3] if len(rest) < 3 else (rest[0], rest[1], "/".join(rest[2:]))
    verb = _verb(method, name, query)
    return RequestInfo(path, verb, group, version, resource, subresource, namespace, name)


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    if method in ("GET", "HEAD"):
        if name:
            return "get"
        return "watch" if parse_boolean(query.get("watch")) else "list"
    if method == "DELETE":
        return "delete" if name else "deletecollection"
    return _VERBS.get(method, method.lower())


def parse_boolean(text: str | None) -> bool:
    """A query parameter as apimachinery reads booleans: `false` and `0` are false, all else is true, empty too."""
    return text is not None and text.lower() not in ("false", "0")


def parse_integer(text: str) -> int:
    """A query parameter that must be a whole number.

    Raises:
        ApiError: 400 with the message of Go's strconv.
    """
    try:
        return int(text)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def check_write_options(verb: str, query: Mapping[str, str], dry_run: list[str]) -> None:
    """Refuse options that do not exist, as 422 of the options' own kind."""
    faults: list[FieldError] = []
    if any(value != "All" for value in dry_run):
        faults.append(not_supported("dryRun", dry_run, ("All",)))
    supported = ("", "Ignore", "Strict", "Warn")
    if query.get("fieldValidation", "") not in supported:
        faults.append(not_supported("fieldValidation", query["fieldValidation"], supported))
    if len(query.get("fieldManager", "")) > _LONGEST_MANAGER:
        faults.insert(0, too_long("fieldManager", _LONGEST_MANAGER))
    if faults:
        raise options_error(_OPTION_KINDS[verb], faults)


def options_error(kind: str, faults: list[FieldError]) -> ApiError:
    return invalid(kind, "meta.k8s.io", "", faults)


@dataclass(frozen=True)
class ListOptions:
    """Query parameters of list and watch."""

    label_selector: str = ""
    field_selector: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    limit: int = 0
    continue_token: str = ""
    timeout_seconds: int | None = None
    bookmarks: bool = False
    send_initial_events: bool = False


def parse_list_options(query: Mapping[str, str], *, watch: bool) -> ListOptions:
    """Read and check the parameters.

    Raises:
        ApiError: 400 for an invalid number, 422 for parameters that exclude each other.
    """
    timeout = query.get("timeoutSeconds")
    options = ListOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        resource_version=query.get("resourceVersion", ""),
        resource_version_match=query.get("resourceVersionMatch", ""),
        limit=parse_integer(query.get("limit") or "0"),
        continue_token=query.get("continue", ""),
        timeout_seconds=parse_integer(timeout) if timeout else None,
        bookmarks=parse_boolean(query.get("allowWatchBookmarks")),
        send_initial_events=parse_boolean(query.get("sendInitialEvents")),
    )
    faults = _list_faults(options, watch=watch)
    if faults:
        raise options_error("ListOptions", faults)
    if options.continue_token and options.resource_version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    return options


def _list_faults(options: ListOptions, *, watch: bool) -> list[FieldError]:
    """The first fault of parameters that exclude each other."""
    match, initial, field = options.resource_version_match, options.send_initial_events, "resourceVersionMatch"
    if watch:
        if initial and match != "NotOlderThan":
            detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            return [forbidden_field(field, detail)]
        detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        return [forbidden_field(field, detail)] if match and not initial else []
    forbidden = (
        (initial, "sendInitialEvents", "sendInitialEvents is forbidden for list"),
        (match and not options.resource_version, field, f"{field} is forbidden unless resourceVersion is provided"),
        (
            match == "Exact" and options.resource_version == "0",
            field,
            f'{field} "Exact" is forbidden for resourceVersion "0"',
        ),
        (match and options.continue_token, field, f"{field} is forbidden for continue"),
    )
    faults = [forbidden_field(path, detail) for wrong, path, detail in forbidden if wrong]
    faults += one_of(field, match, ("Exact", "NotOlderThan", ""))
    if options.limit < 0:
        faults.append(bad_value("limit", options.limit, AT_LEAST_ZERO))
    return faults[:1]
