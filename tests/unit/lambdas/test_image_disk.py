"""The nodes on which images are pulled have the disk for them, and a run whose image does not fit is refused."""

from __future__ import annotations

import pytest

from lambdas.logic.preflight.account import image_room_findings
from lambdas.logic.preflight.findings import Problem
from stacks.capacity.launch_template import ACCELERATED_DISK_GIB, DISK_GIB
from stacks.cluster.permanent_nodes import ROOT_GIB
from tests.fakes.runs import spec_with
from trainflow.nodes.image_disk import BUILT_IMAGES_GB, EVICTED_BELOW, SYSTEM_BYTES, bytes_for, disk_gib
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.preflight import Unknown

GB, GIB = 10**9, 2**30
WORKLOAD = parse_run_spec(spec_with()).workload


def built(*kinds: str) -> list[float]:
    return [BUILT_IMAGES_GB[kind] * GB for kind in kinds]


@pytest.mark.parametrize(
    ("gib", "images"),
    [
        # The probe runs in the program's image, and a second attempt of the first day brings a second one.
        (ROOT_GIB, built("neuron", "neuron", "cpu", "tools")),
        (DISK_GIB, built("cpu", "cpu", "tools")),
        (ACCELERATED_DISK_GIB, built("neuron", "neuron", "neuron", "tools")),
    ],
    ids=["permanent", "cpu", "accelerated"],
)
def test_a_node_has_the_disk_for_the_images_that_it_pulls(gib: int, images: list[float]) -> None:
    assert disk_gib(images) <= gib


def test_two_versions_of_the_largest_image_did_not_fit_a_disk_of_50_gib() -> None:
    assert disk_gib(built("neuron", "tools")) > 50


def test_the_image_that_is_pulled_is_there_compressed_and_unpacked() -> None:
    assert bytes_for([]) == SYSTEM_BYTES
    assert bytes_for([GIB, 2 * GIB]) == SYSTEM_BYTES + 3 * 3 * GIB + 2 * GIB
    assert disk_gib([]) == -(-SYSTEM_BYTES // ((1 - EVICTED_BELOW) * GIB))


def test_a_run_whose_image_no_node_for_small_programs_can_hold_is_refused() -> None:
    (found,) = image_room_findings(WORKLOAD, 10 * GIB, [40 * GIB, 45 * GIB])
    assert found == Problem(
        f"workload.image is '{WORKLOAD.image}', which takes about 50 GiB with the system while a node unpacks it, and "
        "the nodes for small programs have 45 GiB; give these nodes larger disks, or make the image smaller."
    )


@pytest.mark.parametrize(
    ("size", "disks"),
    [
        (10 * GIB, [50 * GIB, 20 * GIB]),
        (10 * GIB, []),
        (None, [GIB]),
        (0, [GIB]),
        (Unknown("ecr:DescribeImages answered AccessDenied"), [GIB]),
        (10 * GIB, Unknown("forbidden")),
    ],
)
def test_what_fits_or_is_not_known_is_no_finding(size: int | Unknown | None, disks: list[int] | Unknown) -> None:
    assert list(image_room_findings(WORKLOAD, size, disks)) == []
