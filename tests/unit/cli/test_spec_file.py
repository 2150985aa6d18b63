"""Run specs in files, and what overrides make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainflow.cli.spec_file import merged, read_spec
from trainflow.errors import InvalidRunSpec

SPECS = sorted(Path("runs").glob("*.yaml"))
SCALED_DOWN = sorted(Path("runs/overrides").glob("*.yaml"))


@pytest.mark.parametrize(
    ("document", "override", "expected"),
    [
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, {"a": {"b": 3, "c": 2}}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}),
        ({"a": 1}, {"a": None, "x": None}, {}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": "b"}, {"a": {"c": 1, "d": None}}, {"a": {"c": 1}}),
        ({}, {"a": {"b": {"c": None, "d": 1}}}, {"a": {"b": {"d": 1}}}),
    ],
)
def test_an_override_is_a_merge_patch(document: Any, override: Any, expected: Any) -> None:
    before = repr(document)
    assert merged(document, override) == expected
    assert repr(document) == before, "the document itself stays"


@pytest.mark.parametrize("override", [None, [], "compute", 3])
def test_an_override_that_is_no_mapping_is_refused(tmp_path: Path, override: Any) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(repr(override) if override is not None else "")
    with pytest.raises(InvalidRunSpec, match=r"x\.yaml: must be a mapping of the fields that differ"):
        read_spec(SPECS[0], [path])


def test_later_overrides_go_over_earlier_ones_and_both_are_named_when_the_result_is_no_spec(tmp_path: Path) -> None:
    one, other = tmp_path / "one.yaml", tmp_path / "other.yaml"
    one.write_text("compute: {num_nodes: 3}\nlimits: {stall_minutes: 5}")
    other.write_text("compute: {num_nodes: 0}")
    assert read_spec(SPECS[0], [one]).compute.num_nodes == 3
    with pytest.raises(
        InvalidRunSpec, match=r"with .*one\.yaml with .*other\.yaml: compute\.num_nodes: must be at least"
    ):
        read_spec(SPECS[0], [one, other])


def test_every_seed_has_an_override_that_scales_it_down() -> None:
    assert [path.name for path in SCALED_DOWN] == [path.name for path in SPECS if path.name != "demo.yaml"]


@pytest.mark.parametrize("path", SCALED_DOWN, ids=lambda path: path.stem)
def test_a_scaled_down_spec_keeps_its_backend_and_its_nodes_and_trains_on_few_processes(path: Path) -> None:
    real = read_spec(path.parent.parent / path.name)
    small = read_spec(path.parent.parent / path.name, [path])
    assert small.compute.backend == real.compute.backend
    assert small.compute.instance_type == real.compute.instance_type
    assert small.compute.world_size <= 4
    assert small.workload.arguments["device"] == "cpu"
    assert small.name == real.name
