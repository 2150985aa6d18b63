"""Commands about a run inside of texts for people: made so that they can be pasted."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

RUN = "RUN"
"""Stands for the run's id in texts that are written before the run."""


def pasted(text: str, run_id: str, words: Sequence[str] = ()) -> str:
    """The text with the run's id, and with complete commands.

    Args:
        text: Such as "Read its log: `trainflow logs RUN`."
        run_id: The run.
        words: Options that name its place, such as `--local --out FOLDER`.
    """
    # A message that was written without a place has the run's id already.
    command = re.compile(
        rf"trainflow (?P<command>[a-z][a-z-]*) (?:{RUN}|{re.escape(run_id)})(?![\w-]| --(?:local|place))"
    )
    complete = command.sub(lambda found: shlex.join(["trainflow", found["command"], run_id, *words]), text)
    return re.sub(rf"\b{RUN}\b", run_id, complete)
