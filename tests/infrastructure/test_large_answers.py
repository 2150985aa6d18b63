"""An answer of PollJob that is larger than a payload may be: the second engine executes the window."""

from __future__ import annotations

from typing import Any

from tests.asl.data import MAX_PAYLOAD_BYTES
from tests.asl.interpreter import Answer, Event, Interpreter
from trainflow.state_machines import definition

MINUTES = 10
"""Each state of this world is entered ten minutes after the one before it."""


class LargeAnswers:
    """PollJob answers 256 KiB; the other functions answer nothing."""

    def __init__(self) -> None:
        self._minutes = 0

    def entered_at(self, _state: str) -> str:
        """The next time."""
        self._minutes += MINUTES
        return f"2026-01-{1 + self._minutes // 1440:02}T{self._minutes // 60 % 24:02}:{self._minutes % 60:02}:00Z"

    def answer(self, _resource: str, parameters: Any) -> Answer:
        """The answer of a function."""
        size = MAX_PAYLOAD_BYTES if parameters["FunctionName"] == "${PollJob}" else 0
        return Answer(result={"Payload": "x" * size})

    def passes(self, _state: str) -> None:
        """Wait for nothing."""


def test_the_owner_is_told_of_a_poll_whose_answer_is_too_large_and_the_window_ends_by_itself() -> None:
    assert blind_window()["error"]["Error"] == "States.DataLimitExceeded"


def test_a_poll_whose_answer_is_too_large_fails_the_run_when_its_job_has_to_have_ended() -> None:
    history = window(ends_by="2026-01-01T08:00:00Z")
    assert history[-1]["type"] == "ExecutionSucceeded"
    assert history[-1]["output"]["outcome"] == "failed"
    assert history[-1]["output"]["error"]["Error"] == "States.DataLimitExceeded"


def blind_window() -> dict[str, Any]:
    """The payload of the message that the owner is sent."""
    history = window(ends_by="2027-01-01T00:00:00Z")
    assert history[-1]["output"]["outcome"] == "running"
    (payload,) = [
        event["parameters"]["Payload"]
        for event in history
        if event["type"] == "TaskScheduled" and event["parameters"]["FunctionName"] == "${Notify}"
    ]
    return dict(payload)


def window(*, ends_by: str) -> list[Event]:
    """The history of a window whose every poll fails."""
    compute = {"instance_type": "trn1.2xlarge"}
    spec = {"compute": compute, "limits": {"poll_seconds": 30}}
    given = {
        "run": {"run_id": "r", "execution_arn": "arn", "spec": spec},
        "blind_after": "2026-01-01T01:00:00Z",
        "ends_by": ends_by,
        "told_blind": False,
        **dict.fromkeys(("job", "rank0", "progress", "phase", "limit", "spending", "warned")),
    }
    interpreter = Interpreter(definition("watch_job"), execution={"Id": "arn"}, world=LargeAnswers())
    interpreter.run(given)
    return interpreter.history
