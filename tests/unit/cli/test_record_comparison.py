"""Several runs side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trainflow.record.comparison import Measured, ScaledRun, differing_fields, scaling
from trainflow.record.wording import data_of_speed


def test_specs_are_compared_field_by_field() -> None:
    one = {"name": "a", "workload": {"script": "t.py", "arguments": {"lr": 1}}, "compute": {"num_nodes": 2}}
    other = {
        "name": "a",
        "workload": {"script": "t.py", "arguments": {"lr": 2, "amp": True}},
        "compute": {"num_nodes": 2},
    }
    assert differing_fields([one, other]) == {"workload.arguments.lr": [1, 2], "workload.arguments.amp": [None, True]}
    assert differing_fields([one, one]) == {}


def test_a_section_without_entries_is_the_same_as_none() -> None:
    empty: dict[str, Any] = {"workload": {"secrets": {}, "env": {}}, "resume_from": []}
    earlier: dict[str, Any] = {"workload": {"env": {"A": "1"}}, "resume_from": None}
    assert differing_fields([empty, earlier]) == {"workload.env.A": [None, "1"]}
    zeros: list[dict[str, Any]] = [{"limits": {"max_restarts": value}} for value in (0, False, None)]
    assert differing_fields(zeros) == {"limits.max_restarts": [0, False, None]}


def run(
    num_nodes: int,
    throughput: float | None,
    *,
    instance_type: str = "trn1.32xlarge",
    counted: str = "sequences",
    **spec: Any,
) -> Measured:
    described = {"name": f"bert-{num_nodes}", "compute": {"num_nodes": num_nodes}, **spec}
    return Measured(
        run_id=f"bert-{num_nodes}-{throughput}",
        spec=described,
        instance_type=instance_type,
        speeds={} if throughput is None else {counted: throughput},
    )


def test_the_efficiency_is_the_throughput_per_node_beside_that_of_the_fewest_nodes() -> None:
    def scaled(num_nodes: int, throughput: float, per_node: float, efficiency: float) -> ScaledRun:
        return ScaledRun(
            run_id=f"bert-{num_nodes}-{throughput}",
            num_nodes=num_nodes,
            throughput=throughput,
            throughput_of="samples",
            per_node=per_node,
            efficiency=efficiency,
        )

    runs = [run(num_nodes, speed, counted="samples") for num_nodes, speed in ((4, 6000.0), (1, 2000.0), (2, 4000.0))]
    assert scaling(runs) == [
        scaled(1, 2000.0, 2000.0, 1.0),
        scaled(2, 4000.0, 2000.0, 1.0),
        scaled(4, 6000.0, 1500.0, 0.75),
    ]


def test_programs_that_say_no_sequences_are_compared_by_what_all_of_them_say() -> None:
    """Steps a second would tell nothing: the global batch may grow with the nodes."""
    one = replace(run(1, 4.0, counted="steps"), speeds={"steps": 4.0, "images": 100.0, "tokens": 1000.0})
    two = replace(run(2, 4.0, counted="steps"), speeds={"steps": 4.0, "tokens": 1800.0})
    assert [(each.throughput_of, each.per_node, each.efficiency) for each in scaling([one, two])] == [
        ("tokens", 1000.0, 1.0),
        ("tokens", 900.0, 0.9),
    ]
    assert scaling([replace(each, speeds={"steps": 4.0}) for each in (one, two)]) == []


def test_the_speed_of_a_device_or_a_node_is_that_of_all_of_them() -> None:
    one, two = run(1, 1000.0, counted="tokens per process"), run(2, 900.0, counted="tokens per process")
    gangs = [replace(each, spec={"compute": {**each.spec["compute"], "processes_per_node": 8}}) for each in (one, two)]
    assert [(each.throughput_of, each.throughput, each.per_node, each.efficiency) for each in scaling(gangs)] == [
        ("tokens", 8000.0, 8000.0, 1.0),
        ("tokens", 14400.0, 7200.0, 0.9),
    ]
    nodes = [run(2, 400.0, counted="images per node"), run(4, 300.0, counted="images per node")]
    assert [(each.throughput, each.efficiency) for each in scaling(nodes)] == [(800.0, 1.0), (1200.0, 0.75)]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("tokens_per_second", "tokens"),
        ("train/images_per_sec", "images"),
        ("tokens_per_second_per_device", "tokens per process"),
        ("samples/s/gpu", "samples per process"),
        ("tokens_per_sec_per_node", "tokens per node"),
        ("tokens_per_second_per_chip", None),
        ("steps_per_second", None),
        ("loss", None),
    ],
)
def test_a_speed_is_known_by_the_name_of_its_figure(name: str, data: str | None) -> None:
    assert data_of_speed(name) == data


def test_of_repeated_runs_on_the_fewest_nodes_the_median_counts() -> None:
    found = scaling([run(1, 900.0), run(1, 1000.0), run(1, 2000.0), run(2, 2000.0)])
    assert [one.efficiency for one in found] == [0.9, 1.0, 2.0, 1.0]


@pytest.mark.parametrize(
    "runs",
    [
        [],
        [run(1, 100.0)],
        [run(2, 100.0), run(2, 101.0)],
        [run(1, 100.0), run(2, None)],
        [run(1, 100.0), run(2, 0.0)],
        [run(1, 100.0), run(2, 200.0, instance_type="trn2.48xlarge")],
        [run(1, 100.0), run(2, 200.0, counted="samples")],
        [run(1, 100.0), run(2, 200.0, workload={"arguments": {"micro_batch_size": 8}})],
        [run(1, 100.0), Measured(run_id="odd", spec={"compute": {"num_nodes": "2"}}, speeds={"sequences": 200.0})],
    ],
)
def test_other_runs_are_no_scaling_study(runs: list[Measured]) -> None:
    assert scaling(runs) == []
