"""Runs of a grid: one spec, with some fields at several values. The ids follow from the contents, so that a grid that
was interrupted goes on when it is started again, and nothing is started twice."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainflow.client.place import RunSummary
from trainflow.errors import InvalidRunSpec
from trainflow.spec.changes import changes_of_values, field_and_value, merged, parsed_value
from trainflow.spec.document import canonical
from trainflow.spec.run_spec import RUN_HASH_LENGTH, RunSpec, parse_run_spec

MAX_RUNS = 100
"""Most runs of one grid: each costs money, and a mistyped grid grows fast."""

ID_LENGTH = RUN_HASH_LENGTH // 2
"""Hex digits after the spec's name in the id of a grid; as many more identify its runs."""

GRID_ID = re.compile(rf"[a-z][-a-z0-9]*-[0-9a-f]{{{ID_LENGTH}}}")


@dataclass(frozen=True, kw_only=True)
class GridRun:
    """One point of the grid."""

    run_id: str
    spec: RunSpec
    values: Mapping[str, Any]
    """Values of the fields that the grid varies."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A grid of runs."""

    grid_id: str
    """Beginning of the ids of its runs."""
    runs: Sequence[GridRun]
    content_id: str = ""
    """Digest of the spec and the values, without the code."""


def grid_of(document: Mapping[str, Any], over: Iterable[str], *, code_sha256: str | None = None) -> Grid:
    """The runs of a grid, every one of them a valid spec.

    Args:
        document: The spec.
        over: Fields and their values, such as `workload.arguments.lr=1e-4,3e-4`.
        code_sha256: Digest of the packed code; other code makes another grid.

    Raises:
        InvalidRunSpec: If a field lacks values or repeats one, the grid is too large, or a point of it is not a valid
            spec.
    """
    axes = _axes(over)
    if (size := math.prod(map(len, axes.values()))) > MAX_RUNS:
        raise InvalidRunSpec(f"The grid has {size} runs, but at most {MAX_RUNS} are started; give fewer values.")
    points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    documents = [merged(document, changes_of_values(values)) for values in points]
    specs = [_valid(described, values) for described, values in zip(documents, points, strict=True)]
    grid = _digest(canonical(document), json.dumps(axes, sort_keys=True), code_sha256 or "")
    grid_id = f"{specs[0].name}-{grid}"
    runs = [
        GridRun(run_id=f"{grid_id}{_digest(canonical(described))}", spec=spec, values=values)
        for described, spec, values in zip(documents, specs, points, strict=True)
    ]
    if len({run.run_id for run in runs}) < len(runs):
        raise InvalidRunSpec("Two runs of the grid would have the same id; change the spec's name.")
    content = _digest(canonical(document), json.dumps(axes, sort_keys=True))
    return Grid(grid_id=grid_id, runs=runs, content_id=content)


def members(runs: Iterable[RunSummary], grid_id: str) -> list[RunSummary]:
    """The runs of a grid, the first started one at the front; empty for a text that is not the id of a grid."""
    if GRID_ID.fullmatch(grid_id) is None:
        return []
    found = [
        run
        for run in runs
        if re.fullmatch(rf"[0-9a-f]{{{ID_LENGTH}}}", run.run_id.removeprefix(grid_id)) and run.run_id != grid_id
    ]
    return sorted(found, key=lambda run: run.started_at)


def _axes(over: Iterable[str]) -> dict[str, list[Any]]:
    axes: dict[str, list[Any]] = {}
    for text in over:
        field, values = field_and_value(text)
        found = parsed_value(field, f"[{values}]")
        written = [json.dumps(value, sort_keys=True, default=str) for value in found]
        if field == "name":
            raise InvalidRunSpec("name: a grid's runs share their name; vary another field.")
        if field in axes:
            raise InvalidRunSpec(f"{field} is given twice; name all its values at once.")
        if not found or len(set(written)) < len(written):
            raise InvalidRunSpec(f"{field}: give its values, each once, such as {field}=1,2,3.")
        axes[field] = found
    if not axes:
        raise InvalidRunSpec("Name a field and its values with --over, such as workload.arguments.lr=1e-4,3e-4.")
    return axes


def _valid(document: Any, values: Mapping[str, Any]) -> RunSpec:
    try:
        canonical(document)  # refuses what an execution's input cannot hold
        return parse_run_spec(json.loads(json.dumps(document)))
    except InvalidRunSpec as error:
        point = ", ".join(f"{field}={value}" for field, value in values.items())
        raise InvalidRunSpec(f"With {point}: {error}") from None


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:ID_LENGTH]
