"""A function that writes two lines: one as it comes, and one as the logger writes it."""

import json
from typing import Any


def lambda_handler(event: str, _context: Any) -> None:
    print(event)
    print(json.dumps({"message": event, "timestamp": "2026-11-28 07:00:00,250+0000"}))
