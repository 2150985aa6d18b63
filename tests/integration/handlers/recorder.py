"""A handler that prints what it gets, so that its log tells, and fails where the event asks for it."""

from __future__ import annotations

import json
import os
from typing import Any


def lambda_handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    print(json.dumps({"got": event, "key": os.environ["AWS_ACCESS_KEY_ID"]}), flush=True)
    if "Records" in event:
        bad = [record["messageId"] for record in event["Records"] if "bad" in record["body"]]
        return {"batchItemFailures": [{"itemIdentifier": identifier} for identifier in bad]}
    if event.get("detail", {}).get("fail"):
        raise RuntimeError("as asked")
    return {}
