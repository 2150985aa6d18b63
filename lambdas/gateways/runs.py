"""Amazon DynamoDB: the run table."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Any

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from pydantic import BaseModel

from lambdas.gateways.aws import client, translated
from trainflow.errors import JobConflict
from trainflow.workflow.run_record import RunStatus
from trainflow.workflow.run_table import (
    EXPIRES_AT,
    KEY,
    SURVEY_KEY,
    LastSurvey,
    RunRow,
    ScheduleRow,
    expiry_of_notice,
    notice_key,
    schedule_key,
)

SAME_EXECUTION_OR_ENDED = "execution_arn = :arn OR #status <> :running"
"""Condition for the replacement of an existing row."""

SENDING_UNTIL = "sending_until"
"""Attribute of a notice whose message is being sent: time when another call may send it. A notice without it has been
sent."""

_to_item = TypeSerializer().serialize
_from_item = TypeDeserializer().deserialize


class NoticeState(Enum):
    """Result of a call's attempt to claim a message."""

    CLAIMED = "claimed"
    """The call sends it."""
    BEING_SENT = "being sent"
    """Another call is sending it, or has crashed while it did so."""
    TOLD = "told"
    """It has been sent."""


class RunTable:
    """Rows of runs and schedules, notices, and the state of the fleet survey."""

    def __init__(self, name: str) -> None:
        self._name = name

    def begin(self, row: RunRow) -> None:
        """Create the row of a run that begins. Safe to repeat, also after the run has ended.

        A name may be used again: Step Functions deletes executions after 90 days, the table deletes rows after a year.

        Raises:
            JobConflict: If another execution that still runs has the same run id: run ids are in lower case.
        """
        older = f"attribute_not_exists({KEY}) OR (started_at < :started_at AND ({SAME_EXECUTION_OR_ENDED}))"
        known = row.model_dump(mode="json")
        values = {
            ":started_at": _to_item(known["started_at"]),
            ":arn": _to_item(row.execution_arn),
            ":running": _to_item(RunStatus.RUNNING.value),
        }
        there = self._put(_item(row), condition=older, values=values, names={"#status": "status"})
        if there is not None and there["execution_arn"] != row.execution_arn:
            raise JobConflict(
                f"The run id '{row.run_id}' belongs to {there['execution_arn']}, which has not ended: names that "
                "differ in capitals only have the same run id."
            )

    def finish(self, run_id: str, *, status: RunStatus, ended_at: datetime, error_name: str | None = None) -> None:
        """Record the end of a run. A refused run does not have a row, and this creates none."""
        changes = {"status": status.value, "ended_at": ended_at.isoformat(), "error_name": error_name}
        self._update(
            run_id,
            "SET " + ", ".join(f"#{name} = :{name}" for name in changes),
            condition=f"attribute_exists({KEY})",
            names={f"#{name}": name for name in changes},
            values={f":{name}": _to_item(value) for name, value in changes.items()},
        )

    def end(
        self, run_id: str, *, execution_arn: str, status: RunStatus, ended_at: datetime, error_name: str | None
    ) -> None:
        """Record the end of an execution whose row says that it runs. Any other row stays as it is."""
        self._update(
            run_id,
            "SET #status = :status, ended_at = :ended_at, error_name = :error_name",
            condition="execution_arn = :arn AND #status = :running",
            names={"#status": "status"},
            values={
                ":status": _to_item(status.value),
                ":ended_at": _to_item(ended_at.isoformat()),
                ":error_name": _to_item(error_name),
                ":arn": _to_item(execution_arn),
                ":running": _to_item(RunStatus.RUNNING.value),
            },
        )

    def reopen(self, run_id: str, *, execution_arn: str) -> None:
        """Record that a run whose end is in the table goes on, because its execution was redriven."""
        self._update(
            run_id,
            "SET #status = :running REMOVE ended_at, error_name",
            condition="execution_arn = :arn",
            names={"#status": "status"},
            values={":running": _to_item(RunStatus.RUNNING.value), ":arn": _to_item(execution_arn)},
        )

    def was_told(self, execution_arn: str, about: str) -> bool:
        """Whether the message about an event of an execution has been sent."""
        return _is_told(self._get(notice_key(execution_arn, about)))

    # Decision 67: a message is claimed, sent and marked, so that a crash or a second call sends it once.
    def claim_notice(self, source: str, about: str, *, now: datetime, until: datetime) -> NoticeState:
        """Take over the sending of a message, unless it has been sent or another call is sending it. Safe to repeat.

        Args:
            source: What the message is about: an execution's ARN, or the sort of a request.
            about: The event.
            now: Current time.
            until: When another call may take it over, because this one must have ended.
        """
        condition = f"attribute_not_exists({KEY}) OR {SENDING_UNTIL} < :now"
        expression = f"SET {EXPIRES_AT} = :expires_at, {SENDING_UNTIL} = :until"
        values = {
            ":expires_at": _to_item(expiry_of_notice(now)),
            ":until": _to_item(until.isoformat()),
            ":now": _to_item(now.isoformat()),
        }
        if self._update(notice_key(source, about), expression, condition=condition, names={}, values=values):
            return NoticeState.CLAIMED
        return NoticeState.TOLD if self.was_told(source, about) else NoticeState.BEING_SENT

    def release_notice(self, source: str, about: str) -> None:
        """Let another call send a message that could not be sent."""
        self._update(
            notice_key(source, about),
            f"SET {SENDING_UNTIL} = :never",
            condition=f"attribute_exists({SENDING_UNTIL})",
            names={},
            values={":never": _to_item("")},
        )

    def tell(self, source: str, about: str, *, now: datetime) -> None:
        """Note that the message about an event has been sent."""
        with translated("dynamodb:UpdateItem"):
            client("dynamodb").update_item(
                TableName=self._name,
                Key={KEY: _to_item(notice_key(source, about))},
                UpdateExpression=f"SET {EXPIRES_AT} = :expires_at REMOVE {SENDING_UNTIL}",
                ExpressionAttributeValues={":expires_at": _to_item(expiry_of_notice(now))},
            )

    def find(self, run_id: str) -> RunRow | None:
        """The row of a run, by a consistent read; None for a run that failed validation."""
        found = self._get(run_id)
        return RunRow.model_validate(found) if found else None

    def schedule(self, name: str) -> ScheduleRow | None:
        """The row of a schedule, by a consistent read; None before its first run."""
        found = self._get(schedule_key(name))
        found.pop(KEY, None)
        return ScheduleRow.model_validate(found) if found else None

    def store_schedule(self, row: ScheduleRow, *, previous: ScheduleRow | None) -> bool:
        """Store a schedule's row.

        Returns:
            Whether it was stored; False if another one has been stored since `previous`.
        """
        version = previous.version if previous else 0
        item = _item(row.model_copy(update={"version": version + 1})) | {KEY: _to_item(schedule_key(row.schedule))}
        if previous is None:
            return self._put(item, condition=f"attribute_not_exists({KEY})", values={}) is None
        values, names = {":before": _to_item(version)}, {"#version": "version"}
        return self._put(item, condition="#version = :before", values=values, names=names) is None

    def last_survey(self) -> LastSurvey | None:
        """State left by the newest survey; None before the first."""
        found = self._get(SURVEY_KEY)
        return LastSurvey.model_validate(found) if found else None

    def remember(self, survey: LastSurvey, *, previous: LastSurvey | None) -> bool:
        """Store the state of a survey for the next one.

        Returns:
            Whether it was stored; False if another survey has been stored since `previous`.
        """
        item = {KEY: _to_item(SURVEY_KEY), **_item(survey)}
        if previous is None:
            return self._put(item, condition=f"attribute_not_exists({KEY})", values={}) is None
        before = previous.model_dump(mode="json")["surveyed_at"]
        return self._put(item, condition="surveyed_at = :before", values={":before": _to_item(before)}) is None

    def _get(self, key: str) -> dict[str, Any]:
        with translated("dynamodb:GetItem"):
            answer = client("dynamodb").get_item(TableName=self._name, Key={KEY: _to_item(key)}, ConsistentRead=True)
        fields = _fields(answer.get("Item", {}))
        return {name: value for name, value in fields.items() if (name, value) != (KEY, SURVEY_KEY)}

    def _update(
        self, key: str, expression: str, *, condition: str, names: dict[str, str], values: dict[str, Any]
    ) -> bool:
        """Change an item where it meets a condition.

        Returns:
            Whether it was changed; otherwise nothing is, and no item is created.
        """
        table, optional = client("dynamodb"), {"ExpressionAttributeNames": names} if names else {}
        try:
            with translated("dynamodb:UpdateItem"):
                table.update_item(
                    TableName=self._name,
                    Key={KEY: _to_item(key)},
                    UpdateExpression=expression,
                    ConditionExpression=condition,
                    ExpressionAttributeValues=values,
                    **optional,
                )
        except table.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def _put(
        self, item: dict[str, Any], *, condition: str, values: dict[str, Any], names: dict[str, str] | None = None
    ) -> dict[str, Any] | None:
        """Put an item under a condition.

        Returns:
            None if it was put; otherwise the existing item, which does not meet the condition.
        """
        table = client("dynamodb")
        optional: dict[str, Any] = {"ExpressionAttributeValues": values} if values else {}
        if names:
            optional["ExpressionAttributeNames"] = names
        try:
            with translated("dynamodb:PutItem"):
                table.put_item(
                    TableName=self._name,
                    Item=item,
                    ConditionExpression=condition,
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                    **optional,
                )
        except table.exceptions.ConditionalCheckFailedException as failed:
            return _fields(failed.response.get("Item", {}))
        return None


def _is_told(notice: dict[str, Any]) -> bool:
    return bool(notice) and SENDING_UNTIL not in notice


def _fields(item: dict[str, Any]) -> dict[str, Any]:
    return {name: _from_item(value) for name, value in item.items()}


def _item(fact: BaseModel) -> dict[str, Any]:
    return {name: _to_item(value) for name, value in fact.model_dump(mode="json").items()}
