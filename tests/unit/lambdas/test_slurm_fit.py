"""A gang that Slurm could never run is refused before anything starts."""

from __future__ import annotations

import pytest

from lambdas.backends.slurm.fit import partition_findings
from lambdas.logic.preflight.findings import Finding, Note, Problem
from tests.fakes.runs import spec_with
from tests.wording import wording
from trainflow.deployment.slurm import Partition, default_partition
from trainflow.spec.run_spec import parse_run_spec


def found(partition: Partition | None, **fields: object) -> list[Finding]:
    spec = spec_with(workload__image=None, compute__backend="slurm", **{"compute__queue": "trn1", **fields})
    return list(partition_findings(parse_run_spec(spec), partition))


def test_a_gang_that_fits_its_partition_has_nothing_in_its_way() -> None:
    assert found(Partition(name="trn1", num_nodes=2, max_minutes=72 * 60)) == []


def test_a_partition_that_does_not_exist_is_named() -> None:
    assert found(None) == [
        Problem(wording("slurm_fit.a_partition_that_does_not_exist_is_named", "compute.queue", "'trn1'", "`sinfo`")),
    ]


@pytest.mark.parametrize(
    "partition",
    [Partition(name="trn1", num_nodes=16), Partition(name="trn1", num_nodes=99, max_nodes_per_job=16)],
)
def test_more_nodes_than_the_partition_may_give_are_refused(partition: Partition) -> None:
    assert found(partition, compute__num_nodes=17) == [
        Problem(
            wording(
                "slurm_fit.more_nodes_than_the_partition_may_give_are_refused",
                "compute.num_nodes",
                "17",
                "'trn1'",
                "16",
            )
        )
    ]


def test_all_problems_are_reported_at_once() -> None:
    problems = found(Partition(name="trn1", num_nodes=1, max_minutes=90, is_up=False), limits__max_duration_hours=2)
    assert [type(each) for each in problems] == [Problem, Problem, Problem]
    assert problems[2] == Problem(
        wording(
            "slurm_fit.all_problems_are_reported_at_once", "limits.max_duration_hours", "'trn1'", "1.5", "compute.queue"
        )
    )


def test_a_spec_that_names_no_queue_is_measured_by_the_default_partition() -> None:
    default = Partition(name="main", num_nodes=1, is_up=False)
    assert found(default, compute__queue=None) == [
        Problem(
            wording(
                "slurm_fit.a_spec_that_names_no_queue_is_measured_by_the_default_partition.1",
                "compute.queue",
                "'main'",
                "`scontrol`",
            )
        ),
        Problem(
            wording(
                "slurm_fit.a_spec_that_names_no_queue_is_measured_by_the_default_partition.2",
                "compute.num_nodes",
                "'main'",
                "compute.queue",
            )
        ),
    ]


def test_what_was_not_checked_is_noted() -> None:
    assert found(None, compute__queue=None) == [
        Note(wording("slurm_fit.what_was_not_checked_is_noted", "compute.queue"))
    ]


def test_a_gang_may_be_as_large_and_run_as_long_as_its_partition_allows() -> None:
    partition = Partition(name="trn1", num_nodes=9, max_nodes_per_job=2, max_minutes=90)
    assert found(partition, limits__max_duration_hours=1.5) == []
    assert len(found(partition, limits__max_duration_hours=1.51)) == 1


def test_a_partition_that_is_down_is_named_as_the_spec_names_it() -> None:
    assert found(Partition(name="trn1", num_nodes=2, is_up=False)) == [
        Problem(
            wording(
                "slurm_fit.a_partition_that_is_down_is_named_as_the_spec_names_it",
                "compute.queue",
                "'trn1'",
                "`scontrol`",
            )
        )
    ]


@pytest.mark.parametrize(("flags", "name"), [((False, True), "b"), ((False, False), None), ((False,), "a"), ((), None)])
def test_the_default_partition_is_the_flagged_or_the_only_one(flags: tuple[bool, ...], name: str | None) -> None:
    known = [Partition(name=name, num_nodes=1, is_default=flag) for name, flag in zip("ab", flags, strict=False)]
    chosen = default_partition(known)
    assert (chosen and chosen.name) == name
