"""The forms of `workload.code`: a folder or a Git commit, which the client packs, and the packed archive."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainflow.protocol.s3_urls import parse_s3_url
from trainflow.spec.sentences import shortened

FOLDER = "code"
"""Prefix of packed code in the artifact bucket. Runs share it, because objects are named by their content."""

ENDING = ".tar.gz"

MOST_LEFT_OUT = 50
"""Most files that Git ignores and that a spec names: it is part of the state of every run."""

_COMMIT = re.compile(r"(?P<url>https://[^@\s]+)@(?P<commit>[0-9a-f]{40})")
_ARCHIVE = re.compile(rf"(?:.*/)?(?P<sha256>[0-9a-f]{{64}}){re.escape(ENDING)}")


@dataclass(frozen=True)
class GitCommit:
    """One commit of a repository on a web server."""

    url: str
    commit: str


def git_commit(code: str) -> GitCommit | None:
    """The commit that `https://host/repository.git@<40 hex digits>` names; None for another form."""
    found = _COMMIT.fullmatch(code)
    return GitCommit(found["url"], found["commit"]) if found else None


def packed_sha256(code: str) -> str | None:
    """Digest of packed code, which its URL ends in: `s3://bucket/code/<sha256>.tar.gz`. None for another form."""
    place = parse_s3_url(code)
    found = _ARCHIVE.fullmatch(place.key) if place else None
    return found["sha256"] if found else None


def unpacked_reason(code: str | None) -> str | None:
    """Reason why code cannot run under this name; None for packed code, and without code. A local folder can only be
    read on the machine of the spec's author."""
    if code is None or packed_sha256(code) is not None:
        return None
    return (
        f"workload.code is '{shortened(code)}', which has not been packed; start the run with `trainflow run`, or name "
        "the URL of packed code, s3://bucket/code/<sha256>.tar.gz."
    )


def packed_key(sha256: str) -> str:
    """Key of packed code in the artifact bucket."""
    return f"{FOLDER}/{sha256}{ENDING}"


def is_code(code: str) -> str:
    """Return the value if it has one of the forms.

    Raises:
        ValueError: If it has another form.
    """
    if packed_sha256(code) or git_commit(code):
        return code
    if "://" in code:
        raise ValueError(
            f"{code!r} must be a folder such as ./my-project, a commit such as https://host/repository.git@<40 hex "
            "digits>, or packed code, s3://bucket/code/<sha256>.tar.gz"
        )
    if not code or "\x00" in code:
        raise ValueError(f"{code!r} must be the path of a folder such as ./my-project or '.'")
    return code
