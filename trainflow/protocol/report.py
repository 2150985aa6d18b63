"""Functions for training programs that report to Trainflow. They need only the standard library.

    from trainflow.protocol import report

    report.step(step, loss=loss, learning_rate=rate, accuracy=accuracy) report.checkpoint(step, "checkpoints/step-40")
    report.result(last_loss=loss)

A program that does not want to depend on the package may copy this file. Outside of Trainflow `step` and `checkpoint`
only print, and `result` does nothing. All may be called in every process: only rank 0 reports.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import sys
import time

METRICS = "trainflow_metrics"
"""Key of the JSON object that a report line is."""

CHECKPOINT = "trainflow_checkpoint"
"""Key of the JSON object of a line about a checkpoint."""

RESULT_FILE = "TRAINFLOW_RESULT_FILE"
"""Environment variable with the path of the file for the result."""

MAX_RESULT_BYTES = 4096
"""Longest result: Kubernetes keeps no more of a termination message."""


def step(step: int, *, loss: float | None = None, **metrics: float | None) -> None:
    """Print the line that reports a step.

    Args:
        step: Number of the optimizer's step; numbers ascend.
        loss: The step's mean loss. Tensors of one element are read by their `item`, which waits for the device.
        metrics: Any other figures: `learning_rate`, `epoch`, `grad_norm`, `tokens_per_second` and
            `sequences_per_second` (over all ranks) have a meaning, others are shown under their own names. None, NaN
            and infinite figures are left out; a loss that is not finite is reported as `"nan"` or `"inf"`.
    """
    if _is_rank0():
        figures = {name: _figure(value) for name, value in {"loss": loss, **metrics}.items()}
        known: dict[str, object] = {
            name: value for name, value in figures.items() if value is not None and math.isfinite(value)
        }
        if figures["loss"] is not None:
            known.setdefault("loss", str(figures["loss"]))
        _print({METRICS: {"step": int(step), **known, "logged_at": round(time.time(), 3)}})


def checkpoint(step: int, path: str | os.PathLike[str] | None = None) -> None:
    """Print the line about a complete checkpoint, for the run's record and report.

    Args:
        step: Number of the last completed step.
        path: Its file or folder, whose size is reported.
    """
    if _is_rank0():
        size = None if path is None else _size(pathlib.Path(path))
        _print({CHECKPOINT: {"step": int(step), **({} if size is None else {"bytes": size})}})


def result(**values: object) -> None:
    """Leave the result of the program, which the run's record shows: at most 4,096 bytes as JSON.

    Raises:
        ValueError: If the values are larger, or JSON cannot hold them.
    """
    path = os.environ.get(RESULT_FILE)
    if not path or not _is_rank0():
        return
    try:
        content = json.dumps({"result": values}, allow_nan=False).encode()
    except TypeError as error:
        raise ValueError(f"The result cannot be written as JSON ({error}); give text and numbers.") from None
    if len(content) > MAX_RESULT_BYTES:
        raise ValueError(f"The result has {len(content)} bytes; at most {MAX_RESULT_BYTES} are kept.")
    pathlib.Path(path).write_bytes(content)


def _print(line: object) -> None:
    """Print a line in one write: a print makes several with PYTHONUNBUFFERED, and processes share the stream."""
    sys.stdout.write(f"{json.dumps(line)}\n")
    sys.stdout.flush()


def _size(path: pathlib.Path) -> int | None:
    """Bytes of a file, or of all files below a folder; None for what cannot be read."""
    try:
        files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
        return sum(file.stat().st_size for file in files)
    except OSError:
        return None


def _is_rank0() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _figure(value: object) -> float | None:
    item = getattr(value, "item", None)
    number = item() if callable(item) else value
    return None if number is None else float(number)  # type: ignore[arg-type]
