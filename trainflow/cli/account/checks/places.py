"""Checks of the nodes' zones: their offerings and reservations."""

from __future__ import annotations

from collections.abc import Iterator

from trainflow.cli.account.facts import Facts, Reservation, Unknown
from trainflow.cli.account.findings import Finding, fails, fine, surprises, unchecked
from trainflow.cli.account.needs import SYSTEM_INSTANCE_TYPES, node_types
from trainflow.configuration.deployment import Configuration
from trainflow.configuration.nodes import Nodegroup


def zones(configuration: Configuration, facts: Facts) -> Iterator[Finding]:
    """Does the account have the configured zones?"""
    network = configuration.network
    if network is None or facts.zones is None:
        return
    wanted = {"network.zone_id": network.zone_id, "network.second_zone_id": network.second_zone_id}
    why = "Subnets are made in these zones, by id."
    if isinstance(facts.zones, Unknown):
        yield unchecked("zones", "whether the zones exist", facts.zones, why=why)
        return
    for field, zone in wanted.items():
        if zone not in facts.zones:
            yield fails(
                "zones",
                f"{field}: this account has no zone {zone} in {configuration.region}",
                why=why,
                fix=f"Choose one of {', '.join(sorted(facts.zones))}.",
            )
        else:
            yield fine("zones", f"{field}: {zone}")


def offerings(configuration: Configuration, facts: Facts) -> Iterator[Finding]:
    """Does the training zone offer every instance type?"""
    network = configuration.network
    if network is None or facts.offered is None:
        return
    zone = network.zone_id
    why = "All nodes stand in network.zone_id; EC2 starts none of a type that the zone does not offer."
    if isinstance(facts.offered, Unknown):
        yield unchecked("instance types", f"whether {zone} offers the instance types", facts.offered, why=why)
        return
    for instance_type, field in node_types(configuration).items():
        where = facts.offered.get(instance_type, frozenset())
        if zone in where:
            yield fine("instance types", f"{instance_type} is offered in {zone}")
            continue
        elsewhere = f"offered in {', '.join(sorted(where))}" if where else f"offered nowhere in {configuration.region}"
        yield fails(
            "instance types",
            f"{field}: {zone} does not offer {instance_type}, which is {elsewhere}",
            why=why,
            fix="Change network.zone_id, or the instance type.",
        )
    if not any(zone in facts.offered.get(name, frozenset()) for name in SYSTEM_INSTANCE_TYPES):
        yield fails(
            "instance types",
            f"{zone} offers neither {' nor '.join(SYSTEM_INSTANCE_TYPES)}, the types of the permanent nodes",
            why="Without these nodes there is no DNS, and the cluster stack rolls back.",
            fix="Change network.zone_id.",
        )


def reservations(configuration: Configuration, facts: Facts) -> Iterator[Finding]:
    """Are the named capacity reservations and Capacity Blocks there, and right?"""
    if configuration.network is None:
        return
    for group in (*configuration.capacity.nodegroups, *configuration.queues):
        if group.reservation_id is None or group.reservation_id not in facts.reservations:
            continue
        found = facts.reservations[group.reservation_id]
        why = f"Nodes of {group.instance_type} are started in {group.reservation_id} and nowhere else."
        if isinstance(found, Unknown):
            what = f"whether {group.reservation_id} can be used"
            yield unchecked("reservations", what, found, why=why)
            continue
        faults = ["it does not exist"] if found is None else list(_faults(found, group, configuration.network.zone_id))
        if faults:
            yield fails(
                "reservations",
                f"{group.reservation_id}: {'; '.join(faults)}",
                why=why,
                fix=f"aws ec2 describe-capacity-reservations --region {configuration.region}, and correct "
                f"reservation_id or the node group of {group.instance_type}.",
            )
        elif found is not None and found.total < group.max_nodes:
            yield surprises(
                "reservations",
                f"{group.reservation_id} holds {found.total} instances, and max_nodes is {group.max_nodes}",
                why="A run that asks for more nodes than are reserved waits until it gives up.",
                fix=f"Lower max_nodes of {group.instance_type} to {found.total}, or reserve more.",
            )
        else:
            yield fine("reservations", f"{group.reservation_id} is {found.state if found else ''}")


def _faults(found: Reservation, group: Nodegroup, zone: str) -> Iterator[str]:
    # A Capacity Block is `scheduled` until it begins, and `payment-pending` before that.
    if found.state not in ("active", "scheduled", "pending", "payment-pending"):
        yield f"it is {found.state}"
    if found.instance_type != group.instance_type:
        yield f"it is of {found.instance_type}, not of {group.instance_type}"
    if found.zone_id and found.zone_id != zone:
        yield f"it is in {found.zone_id}, not in {zone}"
    if found.capacity_block != (group.mode == "capacity-block"):
        kind = "a Capacity Block" if found.capacity_block else "a capacity reservation"
        yield f"it is {kind}, and mode is '{group.mode}'"
