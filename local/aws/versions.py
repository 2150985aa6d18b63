"""Versions of state machines and functions, which moto 5.2.5 makes but does not start, list, delete and number
correctly.

All patches replace private functions: check them again when moto's version is raised.
"""

from __future__ import annotations

import json
from typing import Any

from local.aws.replacements import replace


def apply_all() -> None:
    """Apply every patch of this module."""
    calls_on_versions()
    texts_published_once()
    executions_of_versions()
    numbers_of_functions()
    permissions_of_versions()


def calls_on_versions() -> None:
    """Add two calls that moto lacks: it publishes only while it creates or updates a state machine."""
    from moto.core.responses import ActionResult, EmptyResult
    from moto.stepfunctions.responses import StepFunctionResponse

    def publish_state_machine_version(self: Any) -> Any:
        machine = self.stepfunction_backend.describe_state_machine(self._get_param("stateMachineArn"))
        machine.publish(self._get_param("description"))
        published = machine.latest_version
        return ActionResult({"stateMachineVersionArn": published.arn, "creationDate": published.creation_date})

    def delete_state_machine_version(self: Any) -> Any:
        arn, _, number = self._get_param("stateMachineVersionArn").rpartition(":")
        for machine in self.stepfunction_backend.state_machines:
            if machine.arn == arn:
                machine.versions.pop(int(number), None)
        return EmptyResult()

    for operation in (
        publish_state_machine_version,
        delete_state_machine_version,
    ):
        replace(StepFunctionResponse, operation.__name__, operation)


def texts_published_once() -> None:
    """Publish a text once, also if creation and update ask for it, until its version is deleted."""
    from moto.stepfunctions.models import StateMachine

    present = StateMachine.publish

    def publish(self: Any, description: str | None) -> None:
        latest = self.latest_version
        is_kept = latest is not None and latest.version in self.versions
        if not is_kept or (latest.definition, latest.roleArn) != (self.definition, self.roleArn):
            present(self, description)

    replace(StateMachine, "publish", publish)


def executions_of_versions() -> None:
    """Count an execution of a version as one of its state machine, which lists it and whose name it carries."""
    from moto.stepfunctions.models import StateMachine, StateMachineVersion
    from moto.stepfunctions.parser.backend.execution import Execution

    made = StateMachineVersion.__init__
    begun = Execution.__init__

    def version(self: Any, source: Any, **named: Any) -> None:
        made(self, source, **named)
        self.executions, self.backend, self.sm_type = source.executions, source.backend, source.sm_type

    def execution(self: Any, *arguments: Any, **named: Any) -> None:
        begun(self, *arguments, **named)
        self.state_machine_arn = getattr(self.state_machine, "source_arn", self.state_machine_arn)

    replace(StateMachineVersion, "__init__", version)
    replace(StateMachineVersion, "_handle_name_input_idempotency", StateMachine._handle_name_input_idempotency)
    replace(Execution, "__init__", execution)


def numbers_of_functions() -> None:
    """Number versions without repetition: moto counts the existing versions, so a number repeats after a deletion."""
    from moto.awslambda.models import LambdaStorage

    publish = LambdaStorage.publish_version

    def publish_version(self: Any, name_or_arn: str, description: str = "") -> Any:
        function = self.get_function_by_name_or_arn_forbid_qualifier(name_or_arn)
        kept = list(self._functions[function.function_name]["versions"])
        published = publish(self, name_or_arn, description)
        if kept and published not in kept:
            published.set_version(1 + max(int(version.version) for version in kept))
            self._arns.update({version.function_arn: version for version in (*kept, published)})
        return published

    replace(LambdaStorage, "publish_version", publish_version)


def permissions_of_versions() -> None:
    """Write the version or alias that a permission is for into its statement, also where it stands in the function's
    name: moto reads it in a parameter of its own only."""
    from moto.awslambda.models import LambdaBackend, Permission

    add = LambdaBackend.add_permission

    def add_permission(self: Any, function_name: str, qualifier: str | None, raw: str) -> Any:
        _, _, named = self._lambdas.split_function_arn(function_name.rpartition(":function:")[2])
        return add(self, function_name, qualifier or named, raw)

    def create_from_cloudformation_json(
        cls: Any, /, _name: str, document: Any, account_id: str, region_name: str, **_: Any
    ) -> Any:
        from moto.awslambda.models import lambda_backends

        properties = document["Properties"]
        backend = lambda_backends[account_id][region_name]
        backend.add_permission(properties["FunctionName"], None, json.dumps(properties))
        return cls(region=region_name)

    replace(LambdaBackend, "add_permission", add_permission)
    replace(Permission, "create_from_cloudformation_json", classmethod(create_from_cloudformation_json))
