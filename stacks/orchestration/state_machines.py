"""The state machines: the texts of the repository, with the ARNs of versions in the places kept for them.

A definition names versions of functions, and that of `training` names a version of `watch_job`: an execution goes on
with what it began with, whatever is deployed meanwhile (docs/decisions/0022-runs-keep-deployed-versions.md).

Standard workflows, because a run takes days; the log has every event, but none of the data, which the history keeps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import aws_cdk as cdk
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from stacks.orchestration.permissions import USE_OF_KEY, Grant, allow, as_it_is, role, service
from stacks.shared.acknowledgements import Reason
from trainflow.state_machines import definition_json

if TYPE_CHECKING:
    from stacks.orchestration.functions import Surroundings, TrainflowFunction

LOG_PREFIX = "/aws/vendedlogs/states"
"""Log groups below it do not each take up room in the account's one resource policy for log delivery."""


class StateMachines(Construct):
    """The run, and the window of a run that watches a job."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        surroundings: Surroundings,
        functions: Mapping[str, TrainflowFunction],
    ) -> None:
        super().__init__(scope, construct_id)
        self._surroundings, self._functions = surroundings, functions
        self.watch_job = self._make("WatchJob", file="watch_job", child=None)
        self.training = self._make("Training", file="training", child=self.watch_job)

    def _make(self, construct_id: str, *, file: str, child: sfn.StateMachine | None) -> sfn.StateMachine:
        shared, name = self._surroundings, f"{self._surroundings.deployment}-{file.replace('_', '-')}"
        text = definition_json(file)
        called = {function: self._functions[function] for function in _called(text)}
        versions = {function: made.version.function_arn for function, made in called.items()}
        grants = [
            allow(
                "lambda:InvokeFunction",
                on=[f"{made.function.function_arn}:*" for made in called.values()],
                pattern_because=Reason.RUNS_CHOOSE,
            ),
            allow(*USE_OF_KEY, on=shared.key.key_arn),
            *(self._may_run(child) if child else ()),
        ]
        execution_role = role(
            self,
            f"{construct_id}Role",
            service=service(self, "states.amazonaws.com"),
            grants=grants,
            policies=[shared.policies.trace, shared.policies.deliver_logs],
        )
        return sfn.StateMachine(
            self,
            construct_id,
            state_machine_name=name,
            state_machine_type=sfn.StateMachineType.STANDARD,
            definition_body=sfn.DefinitionBody.from_string(text),
            definition_substitutions={**versions, **({"WatchJob": self._version_arn(child)} if child else {})},
            role=as_it_is(execution_role),
            logs=sfn.LogOptions(
                destination=self._make_log_group(f"{construct_id}Logs", name=name),
                level=sfn.LogLevel.ALL,
                include_execution_data=False,
            ),
            tracing_enabled=True,
            encryption_configuration=sfn.CustomerManagedEncryptionConfiguration(shared.key),
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )

    def _version_arn(self, machine: sfn.StateMachine) -> str:
        """The ARN of the text that is deployed now; a new text is a new version, and older ones stay."""
        made = cast(sfn.CfnStateMachine, machine.node.default_child)
        version = sfn.CfnStateMachineVersion(
            machine,
            "Version",
            state_machine_arn=machine.state_machine_arn,
            state_machine_revision_id=made.attr_state_machine_revision_id,
        )
        version.apply_removal_policy(cdk.RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
        return version.ref

    def _may_run(self, child: sfn.StateMachine) -> list[Grant]:
        """Permissions for `startExecution.sync` (AWS Step Functions developer guide, 'Start workflow executions').

        A version is started with the permission to start its state machine: IAM is asked about the ARN without the
        version (the same guide, 'Authorization for versions and aliases').
        """
        completion = cdk.Stack.of(self).format_arn(
            service="events",
            resource="rule",
            resource_name="StepFunctionsGetEventsForStepFunctionsExecutionRule",
        )
        return [
            allow("states:StartExecution", on=child.state_machine_arn),
            allow(
                "states:DescribeExecution",
                "states:StopExecution",
                on=executions_of(cdk.Stack.of(self), f"{self._surroundings.deployment}-watch-job"),
                pattern_because=Reason.RUNS_CHOOSE,
            ),
            allow("events:PutTargets", "events:PutRule", "events:DescribeRule", on=completion),
        ]

    def _make_log_group(self, construct_id: str, *, name: str) -> logs.LogGroup:
        # A part of the stack's own id: a retained group does not stand in the way of the next deployment.
        stack_id = cdk.Fn.select(2, cdk.Fn.split("/", cdk.Stack.of(self).stack_id))
        return logs.LogGroup(
            self,
            construct_id,
            log_group_name=f"{LOG_PREFIX}/{name}-{cdk.Fn.select(0, cdk.Fn.split('-', stack_id))}",
            encryption_key=self._surroundings.key,
            retention=self._surroundings.log_days,
            removal_policy=self._surroundings.on_destroy,
        )


def executions_of(stack: cdk.Stack, state_machine: str) -> str:
    """The ARN of every execution of a state machine, by its name."""
    return stack.format_arn(
        service="states",
        resource="execution",
        resource_name=f"{state_machine}:*",
        arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
    )


def _called(definition: str) -> list[str]:
    """The functions that a definition calls, by the placeholders for their ARNs."""
    return sorted(set(re.findall(r'"FunctionName": "\$\{(\w+)\}"', definition)))
