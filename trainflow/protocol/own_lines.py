"""Lines that the supervisor prints into a pod's log, among those of the program."""

from __future__ import annotations

from trainflow.protocol.checkpoint_line import OPENING, RESUMED
from trainflow.protocol.lost_files import LOST_FILES
from trainflow.protocol.restart_line import RESTARTED
from trainflow.protocol.stacks import STACKS
from trainflow.protocol.step_report import ALIVE

_BEGIN = '{"trainflow_'
"""Beginning of all of them, and of lines about steps and checkpoints. Almost every other line lacks it."""

_BEGINS = tuple(f'{{"{key}":' for key in (ALIVE, LOST_FILES, OPENING, RESTARTED, RESUMED, STACKS))


def is_own_line(text: str) -> bool:
    """Whether a line is the supervisor's, and says nothing about the form of the program's lines."""
    return _BEGIN in text and any(begin in text for begin in _BEGINS)
