"""Where rank 0 of an elastic job is: its pod's name, in an object beside the run's artifacts.

Ranks are dealt out at run time there, so rank 0 announces itself, each time anew.
"""

from __future__ import annotations

MAX_BYTES = 253
"""Longest name of a pod: an RFC 1123 subdomain."""


def object_name(job: str) -> str:
    """Name of a job's announcement, below the run's artifacts."""
    return f"rank0/{job}"


def to_bytes(pod: str) -> bytes:
    """What rank 0 writes."""
    return pod.encode()


def announced_pod(content: bytes | None) -> str | None:
    """The pod that an announcement names; None if there is no announcement, or an empty one."""
    return (content or b"").decode(errors="replace").strip() or None
