"""Placeholders in a workload's command, arguments and environment, such as `{data_dir}`.

A placeholder is a lower-case word in braces. `{{word}}` stands for the text `{word}`. Braces around anything else, and
braces behind a dollar sign, are text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

DATA_DIR = "data_dir"
RUN_DIR = "run_dir"
CACHE_DIR = "cache_dir"
RUN_ID = "run_id"
RANK = "rank"
CHECKPOINT = "checkpoint"
"""Path of a checkpoint, only in `checkpoint.resume`."""

WORKING_FOLDER = "workspace"
"""Working folder of the first node's training below the run's folder, and of the published files."""

STEP = "{step}"
"""Number of a checkpoint's step, only in `checkpoint.path`. It matches any number and is never filled in."""

PLACEHOLDERS = {
    DATA_DIR: "folder of the staged data set",
    RUN_DIR: "folder of the run; everything in it is published",
    CACHE_DIR: "folder of the run for files that may be lost; not published",
    RUN_ID: "id of the run",
    RANK: "rank of the process, or of the node with launcher 'none'",
}
"""Every placeholder with its meaning. The launcher fills in `rank` on each node, the workflow fills in all others."""

_PLACEHOLDER = re.compile(r"\{\{(?P<text>[a-z_]+)\}\}|(?<!\$)\{(?P<name>[a-z_]+)\}")


def placeholders_in(texts: Iterable[str]) -> list[str]:
    """Names of the placeholders in some texts, each once, in their order."""
    found = (match["name"] for text in texts for match in _PLACEHOLDER.finditer(text) if match["name"])
    return list(dict.fromkeys(found))


def filled_by_workflow(text: str, values: Mapping[str, str], *, by_launcher: bool) -> str:
    """Fill in all placeholders except `{rank}`.

    Args:
        text: Text of a spec.
        values: Values by the placeholder's name.
        by_launcher: Whether a launcher fills in `{rank}` later; then `{{rank}}` stays doubled for it.

    Raises:
        KeyError: If the value of a placeholder is missing.
    """

    def replacement(match: re.Match[str]) -> str:
        if by_launcher and RANK in (match["text"], match["name"]):
            return match[0]
        return f"{{{match['text']}}}" if match["text"] else values[match["name"]]

    return _PLACEHOLDER.sub(replacement, text)


def filled_by_launcher(text: str, *, rank: int) -> str:
    """The text that `filled_by_workflow` left, with `{rank}` filled in."""

    def replacement(match: re.Match[str]) -> str:
        if match["text"] == RANK:
            return f"{{{RANK}}}"
        return str(rank) if match["name"] == RANK else match[0]

    return _PLACEHOLDER.sub(replacement, text)
