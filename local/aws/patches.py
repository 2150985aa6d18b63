"""Patches with which moto 5.2.5 runs the state machines as Step Functions does. Each patch has a test that fails
without it.

All of them replace private functions: check them again when moto's version is raised.
"""

from __future__ import annotations

import copy
import datetime as dt
import json
import re
import threading
import types
from collections.abc import Callable
from functools import cache, wraps
from typing import Any
from urllib.parse import parse_qs

import botocore.session
from botocore import xform_name
from botocore.model import OperationModel

from local.aws import stopping
from local.aws.replacements import replace


def apply_all() -> None:
    """Apply every patch, except for those that need an argument."""
    context_start_time()
    service_shapes()
    json_task_results()
    presigned_requests()
    variable_references()
    comparisons_with_variables()
    timestamps()
    atomic_writes()
    stopping.apply_all()


def context_start_time() -> None:
    """`$$.Execution.StartTime` is put into the context as a datetime, which the interpreter cannot serialise."""
    from moto.stepfunctions.parser.backend.execution import Execution

    present = Execution.get_start_execution_details

    def get_start_execution_details(self: Any) -> Any:
        details = present(self)
        details.start_time = _timestamp(self.start_date)
        return details

    replace(Execution, "get_start_execution_details", get_start_execution_details)


def service_shapes() -> None:
    """Parameters and results of integrations change case between ASL and boto3; moto's two hooks for it are empty."""
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service import (
        StateTaskService,
    )

    def normalise_parameters(
        self: Any, parameters: Any, boto_service_name: str | None = None, service_action_name: str | None = None
    ) -> None:
        operation = _operation(self, boto_service_name, service_action_name)
        if operation is not None and operation.input_shape is not None:
            self._to_boto_request(parameters, operation.input_shape)

    def normalise_response(
        self: Any, response: Any, boto_service_name: str | None = None, service_action_name: str | None = None
    ) -> None:
        operation = _operation(self, boto_service_name, service_action_name)
        if operation is not None and operation.output_shape is not None:
            self._from_boto_response(response, operation.output_shape)

    replace(StateTaskService, "_normalise_parameters", normalise_parameters)
    replace(StateTaskService, "_normalise_response", normalise_response)


def _operation(service: Any, boto_service: str | None, action: str | None) -> OperationModel | None:
    operations = _operations(boto_service or service._get_boto_service_name())
    return operations.get(action or service._get_boto_service_action())


@cache
def _operations(service: str) -> dict[str, OperationModel]:
    model = botocore.session.get_session().get_service_model(service)
    return {xform_name(name): model.operation_model(name) for name in model.operation_names}


def json_task_results() -> None:
    """Results keep datetimes and streams, with which DescribeExecution and GetExecutionHistory answer 500."""
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service import (
        StateTaskService,
    )

    present = StateTaskService._after_eval_execution

    def after_eval_execution(self: Any, env: Any, **arguments: Any) -> None:
        env.stack.append(json.loads(json.dumps(env.stack.pop(), default=_as_json)))
        present(self, env=env, **arguments)

    replace(StateTaskService, "_after_eval_execution", after_eval_execution)


def _as_json(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return _timestamp(value)
    if hasattr(value, "read"):
        return value.read().decode()
    return str(value)


def _timestamp(moment: Any) -> Any:
    """ISO 8601 in UTC with milliseconds, as Step Functions writes times."""
    if not isinstance(moment, dt.datetime):
        return moment
    return moment.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def presigned_requests() -> None:
    """moto tells service and caller from the Authorization header; a presigned request names them in its query."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication

    present = DomainDispatcherApplication.infer_service_region_host

    def infer_service_region_host(self: Any, environ: dict[str, Any], path: str) -> Any:
        credential = parse_qs(environ.get("QUERY_STRING", "")).get("X-Amz-Credential")
        if credential and "HTTP_AUTHORIZATION" not in environ:
            environ["HTTP_AUTHORIZATION"] = f"AWS4-HMAC-SHA256 Credential={credential[0]}, Presigned=1"
        return present(self, environ, path)

    replace(DomainDispatcherApplication, "infer_service_region_host", infer_service_region_host)


def variable_references() -> None:
    """moto hands `$name.field` to a JSONata evaluator that it does not have, although the language is JSONPath.

    Parsing a path takes longer than a Lambda's whole answer, and each poll asks for the same ones, so they are cached.
    """
    from moto.stepfunctions.parser.asl.component.common.query_language import QueryLanguageMode
    from moto.stepfunctions.parser.asl.component.common.string.string_expression import StringVariableSample
    from moto.stepfunctions.parser.asl.utils import json_path

    present = StringVariableSample._eval_body

    def eval_body(self: Any, env: Any) -> None:
        if self.query_language_mode is not QueryLanguageMode.JSONPath:
            present(self, env)
            return
        name, rest = _VARIABLE.fullmatch(self.expression).groups()  # type: ignore[union-attr]
        env.stack.append(copy.deepcopy(json_path.extract_json(f"${rest}", env.variable_store.get(name))))

    replace(StringVariableSample, "_eval_body", eval_body)
    replace(json_path, "parse", cache(json_path.parse))


_VARIABLE = re.compile(r"\$(\w+)(.*)")


def comparisons_with_variables() -> None:
    """moto compares the wrong way round where a comparison such as `NumericLessThanPath` names a variable."""
    from moto.stepfunctions.parser.asl.component.state.choice.comparison.comparison_func import (
        ComparisonFuncStringVariableSample,
        ComparisonFuncValue,
    )

    def eval_body(self: Any, env: Any) -> None:
        self.string_variable_sample.eval(env=env)
        env.stack[-2:] = reversed(env.stack[-2:])  # the operator takes the left side from the top
        ComparisonFuncValue._eval_body(self, env)
        del env.stack[-2]

    replace(ComparisonFuncStringVariableSample, "_eval_body", eval_body)


def timestamps() -> None:
    """moto compares times in whole seconds of UTC alone; its own `$$.State.EnteredTime` is none of them.

    The language takes every time of RFC 3339 with a capital T, and a Z or an offset (Amazon States Language, 'Choice
    State').
    """
    from moto.stepfunctions.parser.asl.component.state.choice.comparison.operator.implementations.is_operator import (
        IsTimestamp,
    )

    def string_to_timestamp(text: Any) -> dt.datetime | None:
        if not isinstance(text, str) or not _RFC3339.fullmatch(text):
            return None
        try:
            return dt.datetime.fromisoformat(text)
        except ValueError:
            return None

    replace(IsTimestamp, "string_to_timestamp", staticmethod(string_to_timestamp))


_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)


def atomic_writes() -> None:
    """Make a conditional write atomic: moto checks the condition and then writes, so of two writes at once, both may
    pass."""
    from moto.dynamodb.models import DynamoDBBackend

    writing = threading.RLock()
    for name in ("put_item", "update_item", "delete_item"):
        replace(DynamoDBBackend, name, _one_at_a_time(getattr(DynamoDBBackend, name), writing))


def _one_at_a_time(function: Callable[..., Any], lock: threading.RLock) -> Callable[..., Any]:
    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        with lock:
            return function(*arguments, **named)

    return call


def lambda_invocations(invoke: Callable[[Any, Any], tuple[str, bool, str]]) -> None:
    """moto runs Lambdas in Docker; every caller ends in this one method.

    Args:
        invoke: Maps moto's function and the event to (payload as JSON, whether it is an error, log text).
    """
    from moto.awslambda.models import LambdaFunction

    def invoke_lambda(self: Any, event: Any = None) -> tuple[str, bool, str]:
        return invoke(self, event)

    replace(LambdaFunction, "_invoke_lambda", invoke_lambda)


def scaled_waits(time_scale: float) -> None:
    """Wait states and pauses between retries take `1 / time_scale` of their time; time limits stay as they are."""
    import time

    from moto.stepfunctions.parser.asl.component.common.retry import retrier_decl
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.service import state_task_service_callback
    from moto.stepfunctions.parser.asl.component.state.wait.wait_function.wait_function import WaitFunction

    def wait_interval(_self: Any, env: Any, wait_seconds: float) -> None:
        deadline = time.monotonic() + wait_seconds / time_scale
        while env.is_running() and (left := deadline - time.monotonic()) > 0:
            env.program_state_event.wait(left)

    replace(WaitFunction, "_wait_interval", wait_interval)
    replace(retrier_decl, "time", types.SimpleNamespace(sleep=lambda seconds: time.sleep(seconds / time_scale)))
    # Time until a finished child execution is noticed.
    replace(state_task_service_callback, "_DELAY_SECONDS_SYNC_CONDITION_CHECK", min(0.5, 5 / time_scale))
