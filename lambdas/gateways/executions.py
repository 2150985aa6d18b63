"""AWS Step Functions: starting the training workflow."""

from __future__ import annotations

from dataclasses import dataclass

from lambdas.gateways.aws import client, translated
from lambdas.models.run_record import RunStatus


@dataclass(frozen=True, kw_only=True)
class Started:
    """An execution that runs or has run."""

    arn: str
    is_new: bool
    """False if there was one of this name before."""


def start(state_machine_arn: str, *, name: str, document: str) -> Started:
    """Start an execution, or find the one of this name that was started before.

    Args:
        state_machine_arn: The training workflow.
        name: The execution's name, which is the run's.
        document: Its input, in JSON.
    """
    sfn = client("stepfunctions")
    try:
        with translated("states:StartExecution"):
            answer = sfn.start_execution(stateMachineArn=state_machine_arn, name=name, input=document)
    except sfn.exceptions.ExecutionAlreadyExists:
        return Started(arn=_execution_arn(state_machine_arn, name), is_new=False)
    return Started(arn=answer["executionArn"], is_new=True)


def status(execution_arn: str) -> RunStatus:
    """What an execution is doing, or how it ended."""
    with translated("states:DescribeExecution"):
        # Input and output may be encrypted with a key that is none of this function's business.
        found = client("stepfunctions").describe_execution(executionArn=execution_arn, includedData="METADATA_ONLY")
    return RunStatus.RUNNING if found["status"] == "PENDING_REDRIVE" else RunStatus(found["status"])


def status_if_known(execution_arn: str) -> RunStatus | None:
    """The same; None of an execution that Step Functions does not know, any more: it forgets them 90 days after."""
    try:
        return status(execution_arn)
    except client("stepfunctions").exceptions.ExecutionDoesNotExist:
        return None


def is_running(execution_arn: str) -> bool:
    """Whether an execution goes on; one that Step Functions does not know (any more) does not."""
    return status_if_known(execution_arn) is RunStatus.RUNNING


def _execution_arn(state_machine_arn: str, name: str) -> str:
    return f"{state_machine_arn.replace(':stateMachine:', ':execution:', 1)}:{name}"
