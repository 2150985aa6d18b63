"""A handler that does what the event tells it to."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any


class GraphsMelted(Exception):
    """An error of the handler's own."""


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    match event.get("do"):
        case "raise":
            raise GraphsMelted("too hot")
        case "sleep":
            time.sleep(event.get("seconds", 60))
            if event.get("then") == "Raise":
                raise GraphsMelted("too late")
        case "exit":
            os._exit(3)
        case "allocate":
            return {"bytes": len(bytearray(1 << 30))}
        case "write":
            with os.fdopen(os.open(event["path"], os.O_WRONLY | os.O_CREAT), "w") as file:
                file.write("written")
        case "scratch":
            with tempfile.TemporaryFile(dir=event["path"]) as file:
                file.write(b"written")
        case "make":
            Path(event["path"]).mkdir()
        case "letters":
            return {"letters": event["of"] * event["number"]}
    print("handled", event)
    return {
        "pid": os.getpid(),
        "variable": os.environ.get("VARIABLE"),
        "home": os.environ.get("HOME"),
        "function": context.function_name,
        "milliseconds_left": context.get_remaining_time_in_millis(),
        "echo": event,
    }
