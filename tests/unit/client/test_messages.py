"""Messages that a twin has kept are read again as they were sent."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from moto.sns.models import Topic

from local.aws import mailbox, replacements
from trainflow.client.messages import MESSAGES, kept_messages
from trainflow.client.place import PlaceUnavailable
from trainflow.client.runs import DeployedRuns


def test_a_kept_message_has_subject_and_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    monkeypatch.setattr(Topic, "publish", lambda _topic, message, **_options: sent.append(message) or "id")
    mailbox.serve(tmp_path / MESSAGES)
    try:
        for text in ('Run: demo\nWhat happened: größer als 3 \\ "x"', "From: here\n\n  indented"):
            Topic.publish(SimpleNamespace(), text, subject="Trainflow: demo FAILED")
    finally:
        replacements.put_back()
    first, second = kept_messages(tmp_path)
    assert (first.subject, first.text) == ("Trainflow: demo FAILED", sent[0])
    assert second.text == sent[1]


def test_a_run_without_messages_has_none(tmp_path: Path) -> None:
    assert kept_messages(tmp_path) == []


def test_a_deployment_keeps_no_messages_and_says_where_they_go() -> None:
    place = SimpleNamespace(name="trainflow")
    with pytest.raises(PlaceUnavailable, match=r"^trainflow .*no messages.*subscribers"):
        DeployedRuns.messages(place, "demo-1")
