"""EventBridge in the twin: S3's and Step Functions' events, and rules that deliver them to their targets.

moto 5.2.5 knows rules and matches patterns, but delivers events to queues only, with one id and no ISO time; a disabled
rule and a rule with a schedule get every event; and Step Functions sends no event when an execution ends. All patches
replace private functions: check them again when moto's version is raised.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from local.aws import event_inputs, event_patterns
from local.aws.redriving import redrive_fields
from local.aws.replacements import replace
from local.aws.state_machine_calls import version_fields
from local.aws.stopping import once
from local.aws.targets import Target, Targets

Event = dict[str, Any]

STATUS_CHANGE = "Step Functions Execution Status Change"


def deliver_to(targets: Targets) -> None:
    """Deliver events that match a rule to the rule's targets."""
    from moto.events.models import Rule

    def send_to_targets(self: Any, original_event: Event, transform_input: bool = True) -> None:
        if self.state != "ENABLED" or not self.event_pattern.get_pattern():
            return
        event = _as_delivered(original_event)
        if event_patterns.matches(self.event_pattern.dump(), event):
            for target in self.targets:
                text = event_inputs.input_text(target, event, rule_name=self.name, rule_arn=self.arn)
                if text is not None:
                    targets.send(_target(target, rule_arn=self.arn), text)

    replace(Rule, "send_to_targets", send_to_targets)


def _as_delivered(event: Event) -> Event:
    """An event in the form that targets receive: with an id, which PutEvents has answered, the time in ISO 8601, and
    no field of moto's."""
    is_put = "ingestion-time" in event
    delivered = {**event, "id": event["id"] if is_put else str(uuid.uuid4())}
    delivered.pop("ingestion-time", None)
    if not isinstance(event["time"], str):
        delivered["time"] = datetime.fromtimestamp(event["time"], UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return delivered


def _target(target: Mapping[str, Any], *, rule_arn: str) -> Target:
    return Target(
        arn=target["Arn"],
        sender=rule_arn,
        role_arn=target.get("RoleArn"),
        retries=target.get("RetryPolicy", {}).get("MaximumRetryAttempts", 2),
        dead_letter_arn=target.get("DeadLetterConfig", {}).get("Arn"),
    )


def status_changes(targets: Targets) -> None:
    """Send events to the default bus when executions begin, are redriven and end; a stopped execution also stops its
    child executions."""
    from moto.stepfunctions.parser.backend.execution import BaseExecutionWorkerCommunication, Execution

    start, redrive = Execution.start, Execution.redrive  # redriving.py adds the second
    terminated = BaseExecutionWorkerCommunication.terminated

    def started(self: Any) -> None:
        start(self)
        _send_status_change(self)

    def redriven(self: Any) -> None:
        redrive(self)
        _send_status_change(self)

    def ended(self: Any) -> None:
        # The event is sent before the new status is visible, so that a caller that reads the status and drains the
        # targets finds the event.
        with targets.held():
            terminated(self)
            _keep_reason_of_stop(self.execution)
            if self.execution.status in ("ABORTED", "TIMED_OUT"):
                _stop_children(self.execution)
            _send_status_change(self.execution)

    replace(Execution, "start", started)
    replace(Execution, "redrive", redriven)
    replace(BaseExecutionWorkerCommunication, "terminated", once(ended))


def _keep_reason_of_stop(execution: Any) -> None:
    """The error and cause that StopExecution was given; moto 5.2.5 does not add them to the execution."""
    from moto.stepfunctions.parser.asl.eval.program_state import ProgramStopped

    state = execution.exec_worker.env.program_state()
    if isinstance(state, ProgramStopped):
        execution.error, execution.cause = state.error, state.cause


def _send_status_change(execution: Any) -> None:
    from moto.events.models import events_backends

    redrive = redrive_fields(execution)
    redrive["redriveDate"] = _milliseconds(redrive["redriveDate"])
    event: Event = {
        "version": "0",
        "source": "aws.states",
        "detail-type": STATUS_CHANGE,
        "account": execution.account_id,
        "region": execution.region_name,
        "time": (execution.stop_date or execution.start_date).timestamp(),
        "resources": [execution.execution_arn],
        "detail": {
            "executionArn": execution.execution_arn,
            "stateMachineArn": execution.state_machine_arn,
            "stateMachineVersionArn": version_fields(execution).get("stateMachineVersionArn"),
            "stateMachineAliasArn": None,
            "name": execution.name,
            "status": execution.status,
            "startDate": _milliseconds(execution.start_date),
            "stopDate": _milliseconds(execution.stop_date),
            **_data(execution),
            **redrive,
        },
    }
    bus = events_backends[execution.account_id][execution.region_name].event_buses["default"]
    for rule in list(bus.rules.values()):
        rule.send_to_targets(event)


def _data(execution: Any) -> Event:
    """Input and output in an event; left out where a customer's key protects them."""
    if execution.state_machine.encryptionConfiguration["type"] == "CUSTOMER_MANAGED_KMS_KEY":
        return {"inputDetails": {"included": False}, "outputDetails": {"included": False}}
    output = None if execution.output is None else json.dumps(execution.output, separators=(",", ":"))
    return {
        "input": execution.execution_input,
        "inputDetails": {"included": True},
        "output": output,
        "outputDetails": None if output is None else {"included": True},
        "error": execution.error,
        "cause": execution.cause,
    }


def _milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1000)


def _stop_children(parent: Any) -> None:
    """An aborted task that awaits an execution stops it (Step Functions developer guide, 'Run a Job (.sync)')."""
    from moto.stepfunctions.parser.models import stepfunctions_parser_backends

    backend = stepfunctions_parser_backends[parent.account_id][parent.region_name]
    for machine in list(backend.state_machines):
        for execution in list(machine.executions):
            document = execution.input_data
            started_by = document.get(STARTED_BY) if isinstance(document, dict) else None
            if started_by == parent.execution_arn and execution.status == "RUNNING":
                execution.stop(stop_date=datetime.now(UTC), error=None, cause="The parent execution was stopped.")


STARTED_BY = "AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID"
"""Field in a child's input that names the parent execution, as the service recommends."""
