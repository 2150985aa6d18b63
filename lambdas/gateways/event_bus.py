"""Amazon EventBridge: the account's default event bus."""

from __future__ import annotations

from lambdas.gateways.aws import client, translated
from trainflow.errors import ServiceUnavailable


def send(detail: str, *, source: str, detail_type: str) -> None:
    """Send one event.

    Args:
        detail: JSON text.
        source: Name of the sender, which rules match.
        detail_type: Name of the kind of event.

    Raises:
        ServiceUnavailable: If EventBridge did not take it and may later.
    """
    with translated("events:PutEvents"):
        answer = client("events").put_events(Entries=[{"Source": source, "DetailType": detail_type, "Detail": detail}])
    if answer["FailedEntryCount"]:
        (entry,) = answer["Entries"]
        raise ServiceUnavailable(f"events:PutEvents answered {entry.get('ErrorCode')}: {entry.get('ErrorMessage')}.")
