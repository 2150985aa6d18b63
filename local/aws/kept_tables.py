"""Stores tables as files when the twin ends: they describe the shared file system, and are valid as long as it
exists."""

from __future__ import annotations

import json
from pathlib import Path

from local.aws.server import AwsServer


def load(aws: AwsServer, table: str, file: Path) -> None:
    """Load the items of a file into a table, if the file exists."""
    if file.exists():
        for item in json.loads(file.read_text()):
            aws.client("dynamodb").put_item(TableName=table, Item=item)


def save(aws: AwsServer, table: str, file: Path) -> None:
    """Write a table's items to a file, in DynamoDB's own JSON."""
    pages = aws.client("dynamodb").get_paginator("scan").paginate(TableName=table)
    file.write_text(json.dumps([item for page in pages for item in page["Items"]], indent=2))
