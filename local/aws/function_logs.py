"""Logs of functions in CloudWatch Logs, as Lambda puts them there: an event for each line, in the function's group.

Workers write files. A request to a group reads what its file has gained, so that a run costs nothing for logs that
nobody reads. moto 5.2.5 writes logs of Docker containers only, keeps no group that a function names, and knows a group
neither by its ARN nor its streams by a prefix. The patches replace methods of moto: check them when its version is
raised.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from local.aws.replacements import replace

STREAM = "twin"
"""Name of the stream, which handlers find in their context, too."""


class FunctionLogs:
    """Files of functions' logs by the name of the group that shows them."""

    def __init__(self) -> None:
        self._files: dict[str, Path] = {}
        self._read_bytes: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, group: str, file: Path) -> None:
        """Let a group show what a file gains from now on; the file may not exist yet."""
        with self._lock:
            if group not in self._files:
                self._read_bytes[group] = file.stat().st_size if file.exists() else 0
                self._files[group] = file

    def read(self, backend: Any, group: str) -> None:
        """Put the lines that the group's file has gained into the group.

        Args:
            backend: moto's backend of CloudWatch Logs.
            group: Name of a group; one without a file stays as it is.
        """
        if group not in self._files:
            return
        with self._lock:
            events = self._new_events(group)
            if events:
                backend.ensure_log_group(group)
                backend.ensure_log_stream(group, STREAM)
                backend.groups[group].put_log_events(STREAM, events)

    def _new_events(self, group: str) -> list[dict[str, Any]]:
        path = self._files[group]
        if not path.exists():
            return []
        with path.open("rb") as file:
            file.seek(self._read_bytes[group])
            content = file.read()
            written = datetime.fromtimestamp(path.stat().st_mtime).astimezone()
        content = content[: content.rfind(b"\n") + 1]  # the rest of a line comes later
        self._read_bytes[group] += len(content)
        return _events(content.decode(errors="replace").splitlines(), written)


def _events(lines: list[str], written: datetime) -> list[dict[str, Any]]:
    """An event for each line. One without a time has that of the next line with a time, or the file's."""
    events: list[dict[str, Any]] = []
    time = written
    for line in reversed(lines):
        time = _time(line) or time
        if line:
            events.append({"timestamp": int(time.timestamp() * 1000), "message": line})
    return events[::-1]


def _time(line: str) -> datetime | None:
    """The time in a line of the logger's; None for another line."""
    try:
        return datetime.fromisoformat(json.loads(line)["timestamp"].replace(",", "."))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def apply(logs: FunctionLogs) -> None:
    """Show the logs of functions in the groups that they name, and answer requests to groups as the service does."""
    _groups_of_functions()
    _requests_for_groups(logs)


def _groups_of_functions() -> None:
    """A function's `LoggingConfig` names its group (CloudFormation reference, AWS::Lambda::Function)."""
    from moto.awslambda.models import LambdaFunction

    create, update = LambdaFunction.__init__, LambdaFunction.update_configuration
    configuration = LambdaFunction.get_configuration

    def name_group(function: Any, properties: Mapping[str, Any]) -> None:
        settings = properties.get("LoggingConfig") or {}
        function.logs_group_name = settings.get("LogGroup") or function.logs_group_name

    def initialize(self: Any, account_id: str, spec: dict[str, Any], *rest: Any, **named: Any) -> None:
        create(self, account_id, spec, *rest, **named)
        name_group(self, spec)

    def update_configuration(self: Any, config_updates: dict[str, Any]) -> Any:
        name_group(self, config_updates)
        return update(self, config_updates)

    def get_configuration(self: Any, *arguments: Any, **named: Any) -> Any:
        answer = configuration(self, *arguments, **named)
        return {"LoggingConfig": {"LogFormat": "Text", "LogGroup": self.logs_group_name}, **answer}

    replace(LambdaFunction, "__init__", initialize)
    replace(LambdaFunction, "update_configuration", update_configuration)
    replace(LambdaFunction, "get_configuration", get_configuration)


def _requests_for_groups(logs: FunctionLogs) -> None:
    """Requests for streams and events. FilterLogEvents always interleaves streams, and takes a group's ARN and the
    beginning of streams' names (CloudWatch Logs API reference)."""
    from moto.logs.exceptions import InvalidParameterException
    from moto.logs.models import LogsBackend
    from moto.logs.responses import LogsResponse

    find = LogsBackend._find_log_group

    def find_log_group(self: Any, log_group_id: str | None = None, log_group_name: str | None = None) -> Any:
        name = log_group_name or _name(log_group_id)
        logs.read(self, name)
        return find(self, log_group_name=name)

    def filter_log_events(self: Any) -> str:
        name, identifier = self._get_param("logGroupName"), self._get_param("logGroupIdentifier")
        if (name is None) == (identifier is None):
            raise InvalidParameterException("Specify either logGroupName or logGroupIdentifier.")
        streams, prefix = self._get_param("logStreamNames") or [], self._get_param("logStreamNamePrefix")
        if streams and prefix:
            raise InvalidParameterException("Specify either logStreamNames or logStreamNamePrefix.")
        group = self.logs_backend._find_log_group(log_group_name=name or _name(identifier))
        if prefix:
            streams = [each for each in group.streams if each.startswith(prefix)] or [prefix]
        limits = map(self._get_param, ("startTime", "endTime", "limit", "nextToken", "filterPattern"))
        events, token, searched = self.logs_backend.filter_log_events(group.name, streams, *limits, True)
        answer = {"events": events, "searchedLogStreams": searched, "nextToken": token}
        return json.dumps({field: value for field, value in answer.items() if value is not None})

    replace(LogsBackend, "_find_log_group", find_log_group)
    replace(LogsResponse, "filter_log_events", filter_log_events)


def _name(identifier: str | None) -> str:
    """Name of a group, from its name or its ARN."""
    return (identifier or "").partition(":log-group:")[2].removesuffix(":*") or identifier or ""
