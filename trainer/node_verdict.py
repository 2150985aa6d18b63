"""The verdict of a test of a gang's nodes, from the test's processes to the supervisor, which started them.

Files in a folder of this node (`variables.NODE_TEST_DIR`) carry it: an exit code says nothing, since a launcher also
ends with 1 where a device hangs, a process is killed or a library is missing, and none of these ends a training.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

BACKSTOP_SECONDS = 600.0
"""Longest duration of a test from the start of its processes, with imports and compilation. It ends no run: the test is
skipped then, on every node at about the same time."""

_VERDICT, _STARTED = "verdict.json", "started-"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Result of the test of a gang."""

    unhealthy: Mapping[int, str] = field(default_factory=dict)
    """A sentence for each unhealthy node, by its number; the gang trains if it is empty."""
    acknowledged: bool = False
    """Whether an unhealthy node has read this, so that it reports itself."""
    sentence: str = ""
    """First line of the training: figures of a healthy gang, or the reason why no node is named."""

    def to_json(self) -> str:
        """The verdict as text."""
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str | bytes) -> Verdict:
        """The verdict from its text."""
        document = json.loads(text)
        return cls(**document | {"unhealthy": {int(node): why for node, why in document["unhealthy"].items()}})


def skipped(reason: str) -> Verdict:
    """The verdict of a test that has come to no end, for a reason in words that continue a sentence."""
    return Verdict(sentence=f"The test of the nodes {reason}; the training starts without its result.")


def write(folder: Path, verdict: Verdict) -> None:
    """Write this node's verdict. The first one stays: all processes of the node write the same."""
    draft = folder / f"draft-{os.getpid()}-{threading.get_ident()}"
    draft.write_text(verdict.to_json())
    with suppress(FileExistsError):
        os.link(draft, folder / _VERDICT)
    draft.unlink()


def read(folder: Path) -> Verdict | None:
    """This node's verdict; None before there is one."""
    try:
        return Verdict.of_json((folder / _VERDICT).read_text())
    except FileNotFoundError:
        return None


def mark_started(folder: Path) -> None:
    """Say that this process of the test has started."""
    (folder / f"{_STARTED}{os.getpid()}").touch()


def started(folder: Path) -> list[int]:
    """Ids of this node's processes that have started."""
    return [int(path.name.removeprefix(_STARTED)) for path in folder.glob(f"{_STARTED}*")]
