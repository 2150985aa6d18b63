"""Finding and deleting what ended runs have left, for the survey and for `trainflow sweep`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from botocore.exceptions import BotoCoreError, ClientError

from lambdas.backends.run_objects import RunObjects
from lambdas.gateways import executions
from lambdas.gateways.compile_caches import CompileCaches
from lambdas.gateways.runs import RunTable
from lambdas.handlers import backends
from lambdas.handlers.environment import read
from lambdas.handlers.releasing import release_nodes
from lambdas.handlers.task import logger
from lambdas.logic.leftovers import Owner, leftovers
from trainflow.deployment.environment import CacheEnvironment, RegionEnvironment
from trainflow.errors import TrainflowError
from trainflow.workflow.leftovers import LEASE, Held, HeldObject, LeftoverState, RunLeftovers, SweepReport

UNREACHABLE = (TrainflowError, BotoCoreError, ClientError)
"""Errors of a service that cannot be asked, or does not let this function ask."""


class _Leases:
    """The compile caches that runs hold a lease of. Implements `RunObjects`."""

    def __init__(self) -> None:
        self._caches = CompileCaches(read(CacheEnvironment).cache_table)

    def held(self) -> list[Held]:
        """One lease for each cache that is being compiled."""
        return [
            Held(thing=HeldObject(kind=LEASE, name=lease.cache_key), run_id=lease.run_id)
            for lease in self._caches.leases()
        ]

    def delete(self, held: Held) -> None:
        """Release the leases of the run."""
        self._caches.release(held.run_id)


@dataclass(frozen=True)
class Found:
    """Objects of all runs, and those of runs that are not running."""

    held: Sequence[tuple[RunObjects, Held]]
    runs: Sequence[RunLeftovers]
    owners: Mapping[str, Owner]
    """The runs that hold something, by id."""
    trouble: Sequence[str]
    """Systems whose objects could not be listed."""

    @property
    def left(self) -> frozenset[str]:
        """Runs whose things are deleted."""
        return frozenset(run.run_id for run in self.runs if run.state is LeftoverState.LEFT)


def find(table: RunTable, *, now: datetime) -> Found:
    """Everything that runs hold, judged by whether the runs go on. Deletes nothing."""
    held: list[tuple[RunObjects, Held]] = []
    trouble = []
    for source in (*backends.run_objects(), _Leases()):
        try:
            held += [(source, each) for each in source.held()]
        except UNREACHABLE as error:
            logger.exception("what runs hold could not be listed")
            trouble.append(str(error))
    things = [each for _, each in held]
    owners = {run_id: _owner(table, run_id) for run_id in dict.fromkeys(each.run_id for each in things)}
    runs = leftovers(things, owners, now=now, region=read(RegionEnvironment).aws_region)
    return Found(held, runs, owners, trouble)


def delete(found: Found) -> SweepReport:
    """Delete what ended runs have left, and release the nodes that stayed because of it. Safe to repeat."""
    failed = list(_failures(found))
    released, not_released = _release(found)
    for run in found.runs:
        if run.state is LeftoverState.LEFT:
            logger.info("deleted what an ended run had left", extra={"leftovers": run.model_dump(mode="json")})
    return SweepReport(
        deleted=True,
        runs=tuple(found.runs),
        nodes_released=released,
        trouble=(*found.trouble, *failed, *not_released),
    )


def listed(found: Found) -> SweepReport:
    """The report of a sweep that deletes nothing."""
    return SweepReport(deleted=False, runs=tuple(found.runs), trouble=tuple(found.trouble))


def _failures(found: Found) -> Iterator[str]:
    for source, each in found.held:
        if each.run_id not in found.left:
            continue
        try:
            source.delete(each)
        except UNREACHABLE as error:
            logger.exception("what an ended run has left could not be deleted", extra={"held": each.thing.name})
            yield f"The {each.thing.kind} '{each.thing.name}' of {each.run_id} could not be deleted: {error}"


def _release(found: Found) -> tuple[dict[str, int], list[str]]:
    """The nodes that were released, by type; and what could not be. Types that another run claims keep theirs."""
    released, trouble = Counter[str](), []
    for run_id in sorted(found.left):
        row = found.owners[run_id].row
        if row is None:
            continue  # what belongs to no known run is never left
        for instance_type in (row.instance_type, *row.fallback):
            try:
                released[instance_type] += release_nodes(backends.connect(row.backend), [instance_type])
            except UNREACHABLE as error:
                logger.exception("nodes of an ended run could not be released", extra={"run_id": run_id})
                trouble.append(f"The nodes of {run_id}, {instance_type}, could not be released: {error}")
    return {name: number for name, number in released.items() if number}, trouble


def _owner(table: RunTable, run_id: str) -> Owner:
    row = table.find(run_id)
    if row is None:
        return Owner(row=None)
    try:
        return Owner(row=row, execution=executions.describe(row.execution_arn))
    except UNREACHABLE:
        logger.exception("Step Functions could not be asked for a run", extra={"run_id": run_id})
        return Owner(row=row, seen=False)
