"""What a run has published."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A file of a run."""

    name: str
    """Path below the run's folder."""
    key: str
    """Key in the artifact bucket."""
    size: int
    """Bytes."""
    modified_at: datetime


def artifacts_below(s3: Any, bucket: str, prefix: str) -> list[Artifact]:
    """The objects with this prefix, in the order of their names."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return [
        Artifact(
            name=found["Key"].removeprefix(prefix),
            key=found["Key"],
            size=found["Size"],
            modified_at=found["LastModified"],
        )
        for page in pages
        for found in page.get("Contents", ())
    ]
