"""Replacement for a mount namespace and for cluster DNS: values are rewritten before a process sees them.

A pod's process lives in the host's own file system and network. So a container's environment values,
command and arguments have their mount paths replaced by host folders, and the names of pods behind a
headless Service by the loopback address. Only clear paths and names are changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

LOOPBACK = "127.0.0.1"
"""Address of every pod of a process node."""

_JSON_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*=")
_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_SERVICE_LABEL = r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"
# A name is matched as a whole: not inside a longer word, a file path (`/runs/a.txt`) or an e-mail address. `//` is
# the start of a URL's host.
_POD_NAME = re.compile(
    rf"(?<![\w.@/-])(?P<url>(?:[a-z][a-z0-9+.-]*:)?//)?"
    rf"(?P<host>{_LABEL})\.(?P<service>{_SERVICE_LABEL})"
    rf"(?:\.(?P<namespace>{_LABEL})(?:\.svc(?:\.cluster\.local\.?)?)?)?(?![\w.@-])"
)
_REPLICA_NAME = re.compile(
    r"(?<![\w.@/-])((?:[a-z][a-z0-9+.-]*:)?//)?([a-z](?:[-a-z0-9]{0,60}[a-z0-9])?-\d+)"
    rf"(?:\.({_LABEL})\.svc(?:\.cluster\.local\.?)?)?(?![\w.@-])"
)
"""Pattern of the name of one replica's Service (`job-master-0`, or its full name), matched as a whole."""


# docs/decisions/0004-twin-rewrites-paths-in-pods.md has the reasons.
class PathRewriter:
    """Replaces container paths by host paths.

    A value is changed where it equals a container path or continues it with `/`: as a whole, behind
    `--flag=`, and in each part of a list separated by `:`. In a JSON object or list, this holds for each text in it.

    Args:
        paths: Host path of each mount path. Where mounts are nested, the longest one wins.
    """

    def __init__(self, paths: Mapping[str, str]) -> None:
        cleaned = {_without_trailing_slash(mount): host for mount, host in paths.items()}
        self._paths = sorted(cleaned.items(), key=lambda item: len(item[0]), reverse=True)

    def path(self, path: str) -> str:
        """The host path of one container path; the path itself if no mount holds it."""
        for mount, host in self._paths:
            if path == mount or path.startswith(mount + "/"):
                return host + path[len(mount) :]
        return path

    def value(self, text: str) -> str:
        """The text with every container path in it replaced."""
        return _JSON_TEXT.sub(self._in_json, text) if _is_json(text) else self._plain(text)

    def _in_json(self, match: re.Match[str]) -> str:
        text = json.loads(match[0])
        changed = self._plain(text)
        return match[0] if changed == text else json.dumps(changed)

    def _plain(self, text: str) -> str:
        flag = _FLAG.match(text)
        start = flag.end() if flag else 0
        return text[:start] + ":".join(self.path(part) for part in text[start:].split(":"))


class NameRewriter:
    """Replaces the DNS names of pods by the loopback address.

    A pod is called `<hostname>.<subdomain>[.<namespace>[.svc[.cluster.local]]]`, where the subdomain is a headless
    Service that selects the pod.

    Args:
        namespace: Namespace of the pod whose values are rewritten.
        names_a_pod: Whether cluster DNS knows the name: host, subdomain and namespace. Called at most once for each
            name.
        names_one_pod: Whether it is the Service of one replica, so that its name by itself is a pod's name (the
            training operator's `<job>-master-0`).
    """

    def __init__(
        self,
        namespace: str,
        names_a_pod: Callable[[str, str, str], bool],
        names_one_pod: Callable[[str, str], bool] = lambda _name, _namespace: False,
    ) -> None:
        self._namespace = namespace
        self._names_a_pod = names_a_pod
        self._names_one_pod = names_one_pod
        self._known: dict[tuple[str, str, str], bool] = {}
        self._replicas: dict[tuple[str, str], bool] = {}

    def value(self, text: str) -> str:
        """The text with every pod name in it replaced."""
        return _REPLICA_NAME.sub(self._substitute_replica, _POD_NAME.sub(self._substitute, text))

    def _substitute_replica(self, match: re.Match[str]) -> str:
        key = (match[2], match[3] or self._namespace)
        if key not in self._replicas:
            self._replicas[key] = self._names_one_pod(*key)
        return (match[1] or "") + LOOPBACK if self._replicas[key] else match[0]

    def _substitute(self, match: re.Match[str]) -> str:
        key = (match["host"], match["service"], match["namespace"] or self._namespace)
        if key not in self._known:
            self._known[key] = self._names_a_pod(*key)
        return (match["url"] or "") + LOOPBACK if self._known[key] else match[0]


def _is_json(text: str) -> bool:
    """Whether a text is a JSON object or list."""
    if not text.startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _without_trailing_slash(path: str) -> str:
    return path.rstrip("/") or "/"
