"""Rows of figures in CSV files and in files of JSON lines, read as they grow.

Libraries write such files under many names: Lightning's `metrics.csv` (step), Keras' CSVLogger and timm's `summary.csv`
(epoch), Stable-Baselines3's `progress.csv` (total_timesteps), detectron2's `metrics.json` (iteration), MMEngine's
`scalars.json` (step), NeMo AutoModel's `training.jsonl` (step). Programs also write data sets in these formats. So a
file counts only if its rows name a step, or an epoch, and a figure of a training.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from pathlib import Path

from trainflow.protocol.metric_aliases import number, whole

Row = Mapping[str, float]

JSON_ENDINGS = (".jsonl", ".ndjson", ".json")

STEP_NAMES = (
    *("global_step", "_step", "step", "total_steps", "steps", "train_step", "training_step", "iteration", "iter", "it"),
    *("iterations", "iters", "num_updates", "n_updates", "update", "updates", "total_timesteps", "timesteps", "batch"),
    *("epoch", "epochs"),
)
"""Names of a column with the number of a step, without their path, the best first."""

_OF_TRAINING = re.compile(
    r"loss|reward|return|perplexity|ppl|nll|elbo|acc|error|score|bleu|rouge|\blr\b|learning_rate|mAP|iou|\bf1\b|auc",
    re.IGNORECASE,
)

MOST_BYTES_AT_ONCE = 8 << 20
"""Bytes of a file that one poll reads; later polls read the rest."""

LONGEST_HEADER = 64 << 10


class TableFile:
    """One file, read from where it was left; from its beginning if it was written anew.

    Args:
        path: The file.
        skip: Bytes at its beginning that are not read, as they are of an earlier program.
    """

    def __init__(self, path: Path, *, skip: int = 0) -> None:
        self._path, self._offset = path, skip
        self._is_json = path.suffix.lower() in JSON_ENDINGS
        self._header: bytes | None = None

    def new_rows(self) -> Iterator[Row]:
        """The figures of the lines that are complete by now.

        Raises:
            OSError: If the file cannot be read.
        """
        with self._path.open("rb") as file:
            header = b"" if self._is_json else file.readline(LONGEST_HEADER)
            if not self._is_json and not header.endswith(b"\n"):
                return
            size = file.seek(0, 2)
            if size < self._offset or self._header not in (None, header):
                self._offset = 0
            self._header = header
            file.seek(max(self._offset, len(header)))
            content = file.read(MOST_BYTES_AT_ONCE)
            end = content.rfind(b"\n") + 1
            self._offset = file.tell() - len(content) + end
        lines = content[:end].decode("utf-8-sig", errors="replace").splitlines()
        yield from _json_rows(lines) if self._is_json else _csv_rows(header.decode("utf-8-sig", "replace"), lines)


class TableSteps:
    """Steps of one file; see `StepFiles`."""

    def __init__(self, file: TableFile) -> None:
        self._file = file
        self._last = -1

    def new_steps(self, *, final: bool) -> Iterator[Row]:
        """The rows with a step behind the last one; rows of one step that were written together are one."""
        del final  # a complete line is a complete step
        named = (step for row in self._file.new_rows() if (step := _step(row)) is not None)
        for last, rows in groupby(named, key=lambda step: step["step"]):
            if last > self._last:
                self._last = int(last)
                yield {name: value for row in rows for name, value in row.items()}


def _step(row: Row) -> Row | None:
    """The row with its step under this name; None if it is not of a training."""
    if not any(_OF_TRAINING.search(name) for name in row):
        return None
    short = {name.rpartition("/")[2].strip().lower(): name for name in reversed(list(row))}
    for name in STEP_NAMES:
        step = whole(row.get(short.get(name, "")))
        if step is not None:
            rest = {key: value for key, value in row.items() if key != short[name] or name.startswith("epoch")}
            return {**rest, "step": step}
    return None


def _csv_rows(header: str, lines: list[str]) -> Iterator[Row]:
    separator = max(",;\t", key=header.count)
    names = [name.strip() for name in next(csv.reader([header], delimiter=separator), [])]
    with suppress(csv.Error):  # a cell may be as long as a book
        for cells in csv.reader(lines, delimiter=separator):
            pairs = zip(names, cells, strict=False)
            yield {name: figure for name, cell in pairs if (figure := number(cell)) is not None}


def _json_rows(lines: list[str]) -> Iterator[Row]:
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            inner = [pair for value in row.values() if isinstance(value, dict) for pair in value.items()]
            yield {name: figure for name, value in (*inner, *row.items()) if (figure := number(value)) is not None}
