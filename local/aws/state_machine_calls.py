"""Calls of Step Functions that moto 5.2.5 answers otherwise than the service: names, error codes, descriptions, lists.

Sources: Step Functions API reference; answers recorded on AWS (`tests/assets/aws/step_functions.yaml`). All patches
replace private functions: check them again when moto's version is raised.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from typing import Any

from local.aws.replacements import replace
from local.aws.request_limits import operation_model, violation

MAX_INPUT_BYTES = 262_144
"""Input of an execution, as UTF-8 (Step Functions developer guide, 'Quotas')."""

INPUT_REFUSED = "Invalid State Machine Execution Input"


def apply_all() -> None:
    """Apply every patch of this module."""
    _refusals()
    _starts()
    _creations()
    _descriptions()
    _lists()


def _refusals() -> None:
    """Refuse requests beyond the limits of the service's model, and give every error its code. The errors of
    moto's interpreter lack one, and an unknown call is a fault of the server."""
    from moto.core.exceptions import AWSError
    from moto.core.responses import BaseResponse
    from moto.stepfunctions.exceptions import InvalidArn, ValidationException
    from moto.stepfunctions.parser import api
    from moto.stepfunctions.responses import StepFunctionResponse

    present = BaseResponse.call_action

    def call_action(self: Any) -> Any:
        if not isinstance(self, StepFunctionResponse):
            return present(self)
        model = operation_model("stepfunctions", str(self._get_action()))
        parameters = json.loads(self.raw_body or "{}")  # an object: the guard has refused any other form
        refusal = violation(model.input_shape, parameters) if model else None
        if refusal is None and self._get_action() == "ListExecutions":
            is_complete = parameters.get("stateMachineArn") or parameters.get("mapRunArn")
            refusal = None if is_complete else "Either the ARN of a state machine or that of a Map Run is required."
        if refusal is not None:
            return _answered(self, ValidationException(refusal))
        if foreign := _first_foreign_arn(parameters):
            return _answered(self, InvalidArn(f"Invalid Arn: 'Invalid ARN prefix: {foreign}'"))
        return present(self)

    replace(BaseResponse, "call_action", call_action)  # where the guard of all services is put around it
    errors: list[Any] = [each for each in vars(api).values() if isinstance(each, type) and issubclass(each, AWSError)]
    for error in errors:
        if error is not AWSError:
            replace(error, "TYPE", error.code)  # which moto's interpreter sets, and its answers do not read


def _first_foreign_arn(parameters: Mapping[str, Any]) -> str | None:
    """The first parameter that should be an ARN and is another text."""
    arns = (str(value) for name, value in parameters.items() if name.endswith("Arn") and name != "roleArn")
    return next((arn for arn in arns if not arn.startswith("arn:")), None)


def _answered(response: Any, error: Any) -> Any:
    """The answer of an error of moto, as `call_action` makes it."""
    headers = {**response.response_headers, **dict(error.get_headers()), "status": str(error.code)}
    return error.code, *response._enrich_response(headers, error.description)


_BAD_IN_NAMES = re.compile(r"[\s<>{}\[\]?*\"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Characters that a name may not contain (API reference, 'StartExecution')."""


def _starts() -> None:
    """StartExecution takes inputs of 256 KiB, names that ARNs can hold, and makes a name where it is given none."""
    from moto.stepfunctions.exceptions import InvalidExecutionInput, InvalidName, ValidationException
    from moto.stepfunctions.parser.models import StepFunctionsParserBackend

    present = StepFunctionsParserBackend.start_execution

    def start_execution(
        self: Any, state_machine_arn: str, name: str | None = None, execution_input: str | None = None, *rest: Any
    ) -> Any:
        if name is not None and _BAD_IN_NAMES.search(name):
            raise InvalidName(f"Invalid Name: '{name}'")
        text = "{}" if execution_input is None else execution_input
        if len(text.encode()) > MAX_INPUT_BYTES:
            raise ValidationException(
                "1 validation error detected: Value at 'input' failed to satisfy constraint: "
                f"Member must have length less than or equal to {MAX_INPUT_BYTES}"
            )
        try:
            json.loads(text)
        except ValueError as error:
            raise InvalidExecutionInput(f"{INPUT_REFUSED}: '{error}'") from None
        return present(self, state_machine_arn, name or str(uuid.uuid4()), text, *rest)

    replace(StepFunctionsParserBackend, "start_execution", start_execution)


def _creations() -> None:
    """CreateStateMachine is repeatable with the same text and role, and refuses another one under a taken name. The
    service compares definitions as texts."""
    from moto.core.exceptions import AWSError
    from moto.stepfunctions.exceptions import StateMachineDoesNotExist
    from moto.stepfunctions.parser.models import StepFunctionsParserBackend

    create, update = StepFunctionsParserBackend.create_state_machine, StepFunctionsParserBackend.update_state_machine

    def create_state_machine(self: Any, name: str, definition: str, roleArn: str, **rest: Any) -> Any:
        known = next((each for each in self.state_machines if each.name == name), None)
        kind = rest.get("sm_type") or "STANDARD"
        if known is not None and (known.definition, known.roleArn, known.type) != (definition, roleArn, kind):
            said = f"State Machine Already Exists: '{known.arn}'"
            raise AWSError(said, "StateMachineAlreadyExists")
        return create(self, name=name, definition=definition, roleArn=roleArn, **rest)

    def update_state_machine(self: Any, arn: str, *arguments: Any, **named: Any) -> Any:
        if all(each.arn != arn for each in self.state_machines):
            raise StateMachineDoesNotExist(f"State Machine Does Not Exist: '{arn}'")
        return update(self, arn, *arguments, **named)

    replace(StepFunctionsParserBackend, "create_state_machine", create_state_machine)
    replace(StepFunctionsParserBackend, "update_state_machine", update_state_machine)


def version_fields(execution: Any) -> dict[str, Any]:
    """The version that an execution was started with, as answers name it; nothing for one without a version."""
    arn = execution.state_machine.arn
    return {"stateMachineVersionArn": arn} if hasattr(execution.state_machine, "source_arn") else {}


def _descriptions() -> None:
    """DescribeExecution names the version, says that data is included, and has the end of every ended execution. The
    description of an execution's state machine has its settings and the references of its variables."""
    from moto.core.responses import ActionResult
    from moto.stepfunctions.parser.asl.static_analyser.variable_references_static_analyser import (
        VariableReferencesStaticAnalyser,
    )
    from moto.stepfunctions.responses import StepFunctionResponse

    present = StepFunctionResponse.describe_execution
    present_machine = StepFunctionResponse.describe_state_machine

    def describe_execution(self: Any) -> Any:
        answer = present(self)
        execution = self.stepfunction_backend.describe_execution(self._get_param("executionArn"))
        ended = {"stopDate": execution.stop_date} if execution.stop_date else {}
        if "output" in answer.result:
            ended["output"] = json.dumps(execution.output, separators=(",", ":"), ensure_ascii=False)
        return ActionResult({**answer.result, "inputDetails": {"included": True}, **version_fields(execution), **ended})

    def describe_state_machine_for_execution(self: Any) -> Any:
        machine = self.stepfunction_backend.describe_execution(self._get_param("executionArn")).state_machine
        references = VariableReferencesStaticAnalyser.process_and_get(definition=machine.definition)
        return ActionResult(
            {
                "stateMachineArn": getattr(machine, "source_arn", machine.arn),
                "name": machine.name,
                "definition": machine.definition,
                "roleArn": machine.roleArn,
                "updateDate": machine.update_date,
                "loggingConfiguration": {"includeExecutionData": False, **machine.loggingConfiguration},
                "tracingConfiguration": machine.tracingConfiguration,
                "encryptionConfiguration": machine.encryptionConfiguration,
                **({"variableReferences": references} if references else {}),
            }
        )

    def describe_state_machine(self: Any) -> Any:
        described = present_machine(self).result
        logging = {"includeExecutionData": False, **described["loggingConfiguration"]}
        return ActionResult({**described, "loggingConfiguration": logging})

    replace(StepFunctionResponse, "describe_execution", describe_execution)
    replace(StepFunctionResponse, "describe_state_machine", describe_state_machine)
    replace(StepFunctionResponse, "describe_state_machine_for_execution", describe_state_machine_for_execution)


def _lists() -> None:
    """ListExecutions of a version lists its own executions, each with its version and its end; ListStateMachineVersions
    answers in pages."""
    from moto.core.responses import ActionResult
    from moto.stepfunctions.parser.models import StepFunctionsParserBackend
    from moto.stepfunctions.responses import StepFunctionResponse
    from moto.stepfunctions.utils import PAGINATION_MODEL
    from moto.utilities.paginator import paginate

    by_date = {"list_state_machine_versions": PAGINATION_MODEL["list_state_machines"]}

    @paginate(pagination_model=PAGINATION_MODEL)  # type: ignore[untyped-decorator]
    def list_executions(self: Any, state_machine_arn: str, status_filter: str | None = None) -> list[Any]:
        machine = self.describe_state_machine(state_machine_arn)
        is_version = hasattr(machine, "source_arn")
        found = [
            each
            for each in machine.executions
            if status_filter in (None, each.status) and (not is_version or each.state_machine.arn == state_machine_arn)
        ]
        return sorted(found, key=lambda each: each.start_date, reverse=True)

    @paginate(pagination_model=by_date)  # type: ignore[untyped-decorator]
    def list_state_machine_versions(self: Any, arn: str) -> list[Any]:
        versions = self.describe_state_machine(arn).versions
        return [versions[number] for number in sorted(versions, reverse=True)]

    def answer_executions(self: Any) -> Any:
        found, token = self.stepfunction_backend.list_executions(
            self._get_param("stateMachineArn"), status_filter=self._get_param("statusFilter"), **_page(self)
        )
        return ActionResult({"executions": [_listed(each) for each in found], "nextToken": token})

    def answer_versions(self: Any) -> Any:
        arn = self._get_param("stateMachineArn")
        found, token = list_state_machine_versions(self.stepfunction_backend, arn, **_page(self))
        versions = [{"stateMachineVersionArn": each.arn, "creationDate": each.creation_date} for each in found]
        return ActionResult({"stateMachineVersions": versions, "nextToken": token})

    replace(StepFunctionsParserBackend, "list_executions", list_executions)
    replace(StepFunctionResponse, "list_executions", answer_executions)
    replace(StepFunctionResponse, "list_state_machine_versions", answer_versions)


def _page(response: Any) -> dict[str, Any]:
    """The page that a request asks for."""
    return {
        "max_results": response._get_int_param("maxResults") or None,  # 0 stands for the default
        "next_token": response._get_param("nextToken"),
    }


def _listed(execution: Any) -> dict[str, Any]:
    ended = {"stopDate": execution.stop_date} if execution.stop_date else {}
    return {
        "executionArn": execution.execution_arn,
        "name": execution.name,
        "startDate": execution.start_date,
        "stateMachineArn": execution.state_machine_arn,
        "status": execution.status,
        **version_fields(execution),
        **ended,
    }
