"""Refuses a role whose trust policy does not name the service that is to use it, where the services refuse it: when the
function, the state machine or the schedule is made. Uses are judged as well, by `Guard.require_trust`.

All patches replace private functions: check them again when moto's version is raised.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from local.aws.access.guard import AccessDenied, Guard
from local.aws.replacements import replace
from local.aws.services import LAMBDA, SCHEDULER, STEP_FUNCTIONS


def install(guard: Guard) -> None:
    """Judge the roles of what is made. A role that does not exist trusts no service."""
    from moto.awslambda.exceptions import InvalidParameterValueException
    from moto.awslambda.models import LambdaBackend
    from moto.scheduler.exceptions import ValidationException
    from moto.scheduler.models import EventBridgeSchedulerBackend
    from moto.stepfunctions.exceptions import AWSError
    from moto.stepfunctions.parser.models import StepFunctionsParserBackend

    class AccessDeniedException(AWSError):  # type: ignore[misc]
        TYPE, STATUS = "AccessDeniedException", 400

    function, machine = LambdaBackend.create_function, StepFunctionsParserBackend.create_state_machine
    update, schedule = StepFunctionsParserBackend.update_state_machine, EventBridgeSchedulerBackend.create_schedule

    def is_trusted(service: str, role_arn: str) -> bool:
        try:
            guard.require_trust(service, role_arn)
        except AccessDenied:
            return False
        return True

    def require_of_machine(role_arn: str | None) -> None:
        if role_arn and not is_trusted(STEP_FUNCTIONS, role_arn):
            raise AccessDeniedException(
                f"Neither the global service principal {STEP_FUNCTIONS}, nor the regional one is authorized to assume "
                "the provided role."
            )

    @wraps(function)
    def create_function(self: Any, spec: Any) -> Any:
        if not is_trusted(LAMBDA, spec["Role"]):
            raise InvalidParameterValueException("The role defined for the function cannot be assumed by Lambda.")
        return function(self, spec)

    @wraps(machine)
    def create_state_machine(self: Any, name: str, definition: str, roleArn: str, **named: Any) -> Any:
        require_of_machine(roleArn)
        return machine(self, name=name, definition=definition, roleArn=roleArn, **named)

    @wraps(update)
    def update_state_machine(self: Any, arn: str, **named: Any) -> Any:
        require_of_machine(named.get("role_arn"))
        return update(self, arn, **named)

    @wraps(schedule)
    def create_schedule(self: Any, **named: Any) -> Any:
        if not is_trusted(SCHEDULER, named["target"]["RoleArn"]):
            raise ValidationException(
                "The execution role you provide must allow AWS EventBridge Scheduler to assume the role."
            )
        return schedule(self, **named)

    replace(LambdaBackend, "create_function", create_function)
    replace(StepFunctionsParserBackend, "create_state_machine", create_state_machine)
    replace(StepFunctionsParserBackend, "update_state_machine", update_state_machine)
    replace(EventBridgeSchedulerBackend, "create_schedule", create_schedule)
