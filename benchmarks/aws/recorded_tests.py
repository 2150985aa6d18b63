"""pytest plugin that writes how the answers of an endpoint differ from those that LocalStack's tests recorded on AWS.

It is loaded in the Python environment of those tests, so it imports nothing of this repository. All recorded paths are
compared, also those that the tests skip for LocalStack.
"""

from __future__ import annotations

import json
import os
import re
import sys
import types
from collections.abc import Generator, Iterator
from typing import Any

import localstack_snapshot.pytest.snapshot as snapshots
import pytest
from localstack_snapshot.snapshots import SnapshotAssertionError

OUTPUT = "RECORDED_TESTS_OUTPUT"
"""Variable with the name of the output file. Each test adds one line of JSON."""

SKIPPED = "RECORDED_TESTS_SKIPPED"
"""Variable with a regular expression that finds the tests that do not apply."""

snapshots.is_aws = lambda: True  # for AWS, the tests skip no path

version = types.ModuleType("localstack.version")  # which only LocalStack's own build writes
version.__version__ = version.version = "0"  # type: ignore[attr-defined]
sys.modules[version.__name__] = version


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that do not apply: some wait for minutes."""
    for item in items:
        if re.search(os.environ[SKIPPED], item.nodeid, re.IGNORECASE):
            item.add_marker(pytest.mark.skip(reason="does not apply"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Write the outcome of a test, or of a setup that has failed or skips it."""
    report = yield
    if report.when == "call" or (report.when == "setup" and report.outcome != "passed"):
        marks = sorted({mark.name for mark in item.iter_markers()})
        raised = call.excinfo.value if call.excinfo else None
        line = {"test": item.nodeid, "marks": marks, "outcome": report.outcome, "when": report.when}
        if isinstance(raised, SnapshotAssertionError):
            line["differences"] = [one for result in raised.result if not result for one in differences(result)]
        elif raised is not None:
            line["error"] = f"{type(raised).__name__}: {raised}"[:2000]
        with open(os.environ[OUTPUT], "a", encoding="utf-8") as file:  # noqa: PTH123
            file.write(json.dumps(line, default=str) + "\n")
    return report


def differences(result: Any) -> Iterator[dict[str, Any]]:
    """Each place where an answer is not as recorded."""
    for kind, found in result.result.items():
        for one in found:
            path = "/".join(map(str, [result.key, *one.path(output_format="list")]))
            same = _read(one.t1) == _read(one.t2)  # JSON texts with other spaces
            yield {"path": path, "kind": kind, "recorded": _text(one.t1), "answered": _text(one.t2), "same_json": same}


def _read(value: Any) -> Any:
    """A value without the headers of integrated services; a JSON text as its value."""
    if isinstance(value, dict):
        return {name: each for name, each in value.items() if name not in ("SdkHttpMetadata", "SdkResponseMetadata")}
    try:
        return json.loads(value)
    except (TypeError, ValueError):
        return value


def _text(value: Any) -> str:
    return json.dumps(value, default=str)[:500]
