"""What pods find: each name stands in one place, and what is made is what is mounted."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from trainflow.protocol import pods, result

ONCE = {pods.CLAIM, pods.SCRATCH_MOUNT, result.RESULT_FILE, *pods.MOUNTS}
SOURCES = [
    path
    for folder in ("lambdas", "local", "stacks", "trainer", "trainflow")
    for path in Path(folder).rglob("*.py")
    if not path.is_relative_to("trainflow/protocol")
]


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_code_takes_mounts_and_claims_from_the_protocol(source: Path) -> None:
    texts = [node.value for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Constant)]
    assert not ONCE & {text for text in texts if isinstance(text, str)}


def test_every_folder_is_mounted_under_its_name() -> None:
    assert pods.MOUNTS == (pods.DATA_MOUNT, pods.RUNS_MOUNT, pods.CACHE_MOUNT)
    assert [mount.removeprefix("/") for mount in pods.MOUNTS] == list(pods.FOLDERS)
    assert pods.JOBS not in pods.FOLDERS
