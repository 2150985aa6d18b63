"""The measurements of the trainer: what they compare has to be the same work."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from benchmarks import scaling, scaling_plot, staging
from benchmarks.contestants import Taken
from benchmarks.scaling import Throughput
from benchmarks.staging import Measured
from benchmarks.trainer import Pair, Steps, interleaved, summary


def test_both_are_timed_in_turns_and_the_warm_up_does_not_count() -> None:
    told: list[str] = []
    pair = interleaved(lambda: told.append("seed"), lambda: told.append("ours"), times=2, warm_up=1)
    assert told == ["seed", "ours"] * 3
    assert (len(pair.seed), len(pair.ours)) == (2, 2)


def test_ratios_are_of_medians() -> None:
    pair = Pair(seed=[3.0, 1.0, 2.0], ours=[1.0, 9.0, 0.5])
    steps = Steps(
        timed={
            "tutorial": [taken(6.0), taken(9.0), taken(6.0)],
            "good_eager": [taken(4.0)],
            "good_compiled": [taken(3.0)],
            "ours": [taken(2.0, waited=0.1, operations=10.0), taken(2.0, waited=0.1, operations=10.0)],
            "gemm": [taken(1.0, operations=8.0)],
        },
        compared={"ours": [taken(0, loss=2.0)], "tutorial": [taken(0, loss=2.25)], "good_eager": [taken(0, loss=2.0)]},
    )
    result = summary({"x": steps}, {"loader": pair}, Pair([2.0], [1.0]))
    assert result.ratios == {
        "step_x": 3.0,
        "good_x": 1.5,
        "gemm_peak_x": 0.625,
        "data_wait_share_x": 0.05,
        "loader": 2.0,
        "import_cpu_seconds": 1.0,
        "import_without_to_with_transformers": 0.5,
    }
    assert result.details["largest_difference_of_losses"] == {"x": 0.25}


def taken(seconds: float, *, loss: float = 0.0, waited: float = 0.0, operations: float = 0.0) -> Taken:
    return Taken(loss, cpu_seconds=seconds, seconds=seconds, waited=waited, operations=operations)


def test_staging_is_compared_by_when_the_data_is_on_the_disk() -> None:
    took = {staging.OURS: [2.0, 9.0, 1.0], staging.AWS: [5.0], staging.S5CMD: [3.0], staging.COPY: [1.6]}
    measured = {
        way: Measured(command=[0.1] * len(seconds), on_disk=seconds, bytes_written=[2100, 2000, 2200], peak_mib=[9, 7])
        for way, seconds in took.items()
    }
    result = staging.summary(measured, 2000, {"cores": 2})
    assert result.ratios == {"aws_cp_tar": 2.5, "s5cmd_tar": 1.5, "over_copy": 1.25, "disk_bytes": 1.05}
    assert result.seconds[staging.OURS]["on_disk_each"] == [2.0, 9.0, 1.0]
    assert result.details["peak_mib"][staging.OURS] == 9


@pytest.mark.parametrize(
    ("cores", "expected"), [(1, [1, 2, 4]), (2, [1, 2, 4]), (6, [1, 2, 4]), (16, [1, 2, 4, 8, 16])]
)
def test_ranks_are_powers_of_two_up_to_the_cores(cores: int, expected: list[int]) -> None:
    assert scaling.sizes(cores) == expected


def test_strong_scaling_divides_one_global_batch() -> None:
    assert [size * scaling.micro_batches("strong", size, largest=4) for size in (1, 2, 4)] == [8, 8, 8]
    assert [scaling.micro_batches("weak", size, largest=4) for size in (1, 2, 4)] == [2, 2, 2]


def rows() -> list[Throughput]:
    return [
        *(Throughput("weak", size, speed) for size, speed in ((1, 100.0), (2, 190.0), (4, 200.0))),
        *(Throughput("strong", size, speed) for size, speed in ((1, 80.0), (2, 120.0), (4, 160.0))),
    ]


def test_efficiency_is_the_share_of_as_many_single_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    result = scaling.summary(rows(), {})
    assert result.ratios == {
        "weak_1": 1.0,
        "weak_2": 0.95,
        "weak_4": 0.5,
        "strong_1": 1.0,
        "strong_2": 0.75,
        "strong_4": 0.5,
    }
    scaling.show(rows(), cores=2)
    told = capsys.readouterr()
    assert told.out == ""
    assert "95%" in told.err
    assert told.err.count(" 4* ") == 2


def test_the_plot_is_a_picture_with_a_line_a_kind() -> None:
    picture = ElementTree.fromstring(
        scaling_plot.svg({kind: scaling.efficiencies(rows(), kind) for kind in scaling.KINDS})
    )
    lines = picture.findall("{http://www.w3.org/2000/svg}polyline")
    first, last = (tuple(map(float, point.split(","))) for point in (lines[0].get("points") or "").split()[::2])
    assert len(lines) == 2
    assert last[1] > first[1], "less efficiency is drawn lower"
