"""FSx for Lustre: imports of the object names below a prefix of a linked bucket into the file system."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from botocore.exceptions import ClientError

from lambdas.gateways.aws import client, translated
from trainflow.deployment.data_import import Import
from trainflow.errors import StorageFailed

IMPORT = "IMPORT_METADATA_FROM_REPOSITORY"

BUSY = ("DataRepositoryTaskExecuting", "ServiceLimitExceeded")
"""Codes of errors that mean that another task has to end first."""


def start_or_poll_import(file_system_id: str, url: str, *, since: datetime) -> Import:
    """The import of the names below `url`. The first call starts it, later calls poll it.

    FSx also imports new objects automatically, but does not report when; a finished import proves that all are there.

    Args:
        file_system_id: File system with a data repository association that covers the URL.
        url: `s3://bucket/prefix/`.
        since: Earliest start of an import that counts: an older one may have missed later uploads.

    Raises:
        StorageFailed: If FSx could not import them.
    """
    tasks = [task for task in _imports(file_system_id, url) if task["CreationTime"] >= since]
    task = max(tasks, key=lambda task: task["CreationTime"]) if tasks else _ask(file_system_id, url, since)
    if task is None:
        return Import(task_id=None, names=0, done=False)
    if task["Lifecycle"] in ("FAILED", "CANCELED", "CANCELING"):
        why = task.get("FailureDetails", {}).get("Message") or f"the task is {task['Lifecycle']}"
        raise StorageFailed(f"FSx did not import the names below {url} into {file_system_id} ({task['TaskId']}): {why}")
    status = task.get("Status", {})
    names = sum(status.get(count, 0) for count in ("SucceededCount", "FailedCount"))
    return Import(task_id=task["TaskId"], names=names, done=task["Lifecycle"] == "SUCCEEDED")


def _imports(file_system_id: str, url: str) -> Iterator[Any]:
    of_file_system = [{"Name": "file-system-id", "Values": [file_system_id]}]
    answer: Any = {"NextToken": None}
    while "NextToken" in answer:
        page = {"NextToken": answer["NextToken"]} if answer["NextToken"] else {}
        with translated("fsx:DescribeDataRepositoryTasks"):
            answer = client("fsx").describe_data_repository_tasks(Filters=of_file_system, **page)
        for task in answer["DataRepositoryTasks"]:
            if task["Type"] == IMPORT and url in task.get("Paths", ()):
                yield task


def _ask(file_system_id: str, url: str, since: datetime) -> Any:
    """The new task that imports the names; None while FSx is busy with another one. Safe to repeat."""
    token = hashlib.sha256(f"{url} {since.isoformat()}".encode()).hexdigest()[:32]
    try:
        with translated("fsx:CreateDataRepositoryTask"):
            return client("fsx").create_data_repository_task(
                Type=IMPORT,
                FileSystemId=file_system_id,
                Paths=[url],
                Report={"Enabled": False},
                ClientRequestToken=token,
            )["DataRepositoryTask"]
    except ClientError as error:
        if error.response["Error"]["Code"] in BUSY:
            return None
        raise
