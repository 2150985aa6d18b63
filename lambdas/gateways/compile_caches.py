"""Amazon DynamoDB: the runs that compile caches, and the caches that are ready. Every change is conditional, so of two
concurrent changes one succeeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

from lambdas.gateways.aws import client, translated
from trainflow.workflow.compile_cache import EXPIRES_AT, KEY, CacheRecord, CacheState, expiry

FREE = f"attribute_not_exists({KEY})"
SAME_LEASE = "#state = :compiling AND run_id = :run_id AND since = :since"
COMPILED_BY = "#state = :compiling AND run_id = :run_id"
READY_FROM = "#state = :ready AND run_id = :run_id"

_to_item = TypeSerializer().serialize
_from_item = TypeDeserializer().deserialize


class CompileCaches:
    """The cache table, with one item per key."""

    def __init__(self, table: str) -> None:
        self._table = table

    def find(self, key: str) -> CacheRecord | None:
        """The record of a cache, by a consistent read; None if it is not in the table."""
        with translated("dynamodb:GetItem"):
            answer = client("dynamodb").get_item(TableName=self._table, Key=_key(key), ConsistentRead=True)
        return _record(answer["Item"]) if "Item" in answer else None

    def lease(self, lease: CacheRecord, *, instead_of: CacheRecord | None) -> bool:
        """Take the lease of a cache that is free, or whose owner has ended.

        Args:
            lease: The new one.
            instead_of: The stale lease as it was read; None for a cache without a lease.

        Returns:
            Whether the lease was taken; False if another run was faster.
        """
        item = {name: _to_item(value) for name, value in lease.model_dump(mode="json").items()}
        if instead_of is None:
            return self._change("PutItem", Item=item, ConditionExpression=FREE)
        since = instead_of.model_dump(mode="json")["since"]
        values = {":compiling": CacheState.COMPILING.value, ":run_id": instead_of.run_id, ":since": since}
        return self._change("PutItem", Item=item, ConditionExpression=SAME_LEASE, **_names_and(values))

    def seal(self, key: str, run_id: str, *, graphs: int, now: datetime) -> bool:
        """Declare a cache ready. Safe to repeat.

        Returns:
            Whether the run held the lease; False if the item was deleted or another run has taken the lease over.
        """
        values = {
            ":compiling": CacheState.COMPILING.value,
            ":ready": CacheState.READY.value,
            ":run_id": run_id,
            ":graphs": graphs,
            ":now": now.isoformat(),
            ":expires_at": expiry(now),
        }
        return self._change(
            "UpdateItem",
            Key=_key(key),
            UpdateExpression=f"SET #state = :ready, graphs = :graphs, ready_at = :now, {EXPIRES_AT} = :expires_at",
            ConditionExpression="run_id = :run_id AND #state IN (:compiling, :ready)",
            **_names_and(values),
        )

    def touch(self, ready: CacheRecord, *, now: datetime) -> bool:
        """Extend the expiry of a cache that is being used.

        Returns:
            Whether the cache is still the one that was found ready.
        """
        values = {":ready": CacheState.READY.value, ":run_id": ready.run_id, ":expires_at": expiry(now)}
        return self._change(
            "UpdateItem",
            Key=_key(ready.cache_key),
            UpdateExpression=f"SET {EXPIRES_AT} = :expires_at",
            ConditionExpression=READY_FROM,
            **_names_and(values),
        )

    def forget(self, key: str, run_id: str) -> bool:
        """Delete the item of a ready cache whose folder is missing, unless another run has compiled the cache again.

        Returns:
            Whether the item was deleted.
        """
        values = {":ready": CacheState.READY.value, ":run_id": run_id}
        return self._change("DeleteItem", Key=_key(key), ConditionExpression=READY_FROM, **_names_and(values))

    def release(self, run_id: str) -> list[str]:
        """Release the leases of a run. Safe to repeat; caches that it has made ready stay.

        Returns:
            Keys of the released leases.
        """
        values = {":compiling": CacheState.COMPILING.value, ":run_id": run_id}
        held = [record.cache_key for record in self._scan(COMPILED_BY, _names_and(values))]
        conditions = {"ConditionExpression": COMPILED_BY, **_names_and(values)}
        return [key for key in held if self._change("DeleteItem", Key=_key(key), **conditions)]

    def leases(self) -> list[CacheRecord]:
        """The caches that runs are compiling."""
        return list(self._scan("#state = :compiling", _names_and({":compiling": CacheState.COMPILING.value})))

    def _scan(self, condition: str, values: Mapping[str, Any]) -> Iterator[CacheRecord]:
        """The records that meet a condition. There is one small item per key, so the whole table is a page or two."""
        with translated("dynamodb:Scan"):
            pages = client("dynamodb").get_paginator("scan")
            for page in pages.paginate(
                TableName=self._table, FilterExpression=condition, ConsistentRead=True, **values
            ):
                yield from map(_record, page["Items"])

    def _change(self, operation: str, **arguments: Any) -> bool:
        """Change an item under a condition; returns whether the condition held."""
        dynamodb = client("dynamodb")
        call = {"PutItem": dynamodb.put_item, "UpdateItem": dynamodb.update_item, "DeleteItem": dynamodb.delete_item}
        try:
            with translated(f"dynamodb:{operation}"):
                call[operation](TableName=self._table, **arguments)
        except dynamodb.exceptions.ConditionalCheckFailedException:
            return False
        return True


def _key(key: str) -> dict[str, Any]:
    return {KEY: _to_item(key)}


def _names_and(values: Mapping[str, Any]) -> dict[str, Any]:
    """Expression names and values: `state` is a reserved word."""
    items = {name: _to_item(value) for name, value in values.items()}
    return {"ExpressionAttributeNames": {"#state": "state"}, "ExpressionAttributeValues": items}


def _record(item: Mapping[str, Any]) -> CacheRecord:
    return CacheRecord.model_validate({name: _from_item(value) for name, value in item.items()})
