"""Names that S3 can hold, and that its clients can list."""

from __future__ import annotations

import unicodedata

from trainflow.protocol.publication import OWN_NAMES

MAX_KEY_BYTES = 1024
"""Longest key of an object in UTF-8 (Amazon S3 user guide, "Naming Amazon S3 objects")."""

NONCHARACTERS = ("\ufffe", "\uffff")
"""Characters that XML 1.0 does not have, so that an answer of S3 which lists them cannot be parsed."""


def problem_with(name: str, *, prefix: str) -> str | None:
    """The reason why a file cannot be published under its name, as a clause; None if it can.

    Args:
        name: Path below the published folder, as the file system has it: bytes that are not UTF-8 are surrogates.
        prefix: Beginning of the object's key.
    """
    try:
        key = f"{prefix}{name}".encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if any(unicodedata.category(each) == "Cc" or each in NONCHARACTERS for each in name):
        return "its name has control characters"
    if len(key) > MAX_KEY_BYTES:
        return f"its name is longer than S3's {MAX_KEY_BYTES} bytes"
    if {"", ".", ".."} & set(name.split("/")):
        return "a part of its name is empty, '.' or '..'"
    return "the workflow's own object has this name" if name in OWN_NAMES else None
