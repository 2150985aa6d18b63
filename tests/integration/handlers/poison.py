"""A handler whose process a message can hang, end or fill; it prints which messages it has answered."""

from __future__ import annotations

import ctypes
import json
import os
import time
from pathlib import Path
from typing import Any


def lambda_handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    for record in event["Records"]:
        _act(**json.loads(record["body"]))
        print(json.dumps({"got": record["body"]}), flush=True)
    return {"batchItemFailures": []}


def _act(do: str, until: str = "") -> None:
    match do:
        case "hang":
            while not Path(until).exists():
                time.sleep(0.05)
            raise RuntimeError("released")
        case "segfault":
            ctypes.string_at(0)
        case "exit":
            os._exit(3)
        case "fill":
            bytearray(4 << 30)
        case "recurse":
            _act("recurse")
        case "raise":
            raise BaseException("anything")
