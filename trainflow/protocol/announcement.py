"""Announcement of rank 0 of an elastic job: its pod's name, in an object next to the run's artifacts.

The rendezvous assigns ranks at run time, so rank 0 announces itself, each time anew.
"""

from __future__ import annotations

import re

MAX_BYTES = 253
"""Longest name of a pod: an RFC 1123 subdomain."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""Name of a pod (Kubernetes documentation, "Object Names and IDs": DNS subdomain names)."""


def object_name(job: str) -> str:
    """Name of a job's announcement, below the run's artifacts."""
    return f"rank0/{job}"


def to_bytes(pod: str) -> bytes:
    """Content of the announcement.

    Raises:
        ValueError: If `pod` is not a valid name of a pod.
    """
    if not _is_name(pod):
        raise ValueError(f"{pod[:MAX_BYTES]!r} is not the name of a pod")
    return pod.encode()


def announced_pod(content: bytes | None) -> str | None:
    """The pod that an announcement names; None without an announcement, or if it is not the name of a pod.

    Every program of a run may write the object, and the name becomes part of a path of the Kubernetes API.
    """
    name = (content or b"").decode(errors="replace")
    return name if _is_name(name) else None


def _is_name(text: str) -> bool:
    return len(text) <= MAX_BYTES and _NAME.fullmatch(text) is not None
