"""Patches that make moto 5.2.5 run the state machines as Step Functions does. Each patch has a test that fails
without it.

All of them replace private functions: check them again when moto's version is raised.
"""

from __future__ import annotations

import base64
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

from botocore.model import OperationModel

from local.aws import definitions, histories, literals, redriving, refusals, state_machine_calls, stopping
from local.aws.replacements import replace
from local.aws.request_limits import operation_model, service_model


def apply_all() -> None:
    """Apply every patch, except for those that need an argument."""
    context_times()
    service_shapes()
    json_task_results()
    presigned_requests()
    variable_references()
    comparisons_with_variables()
    timestamps()
    atomic_writes()
    object_checksums()
    default_encryption()
    catchers_back_to_their_state()
    literals.apply_all()
    definitions.refuse_invalid()
    stopping.apply_all()
    redriving.apply_all()
    refusals.apply_all()
    histories.apply()
    state_machine_calls.apply_all()


def context_times() -> None:
    """`$$.Execution.StartTime` is put into the context as a datetime, which the interpreter cannot serialise, and
    `$$.State.EnteredTime` is another moment than that of the event, in another form."""
    from moto.stepfunctions.parser.asl.component.state.state import CommonStateField
    from moto.stepfunctions.parser.backend.execution import Execution

    present, present_input = Execution.get_start_execution_details, CommonStateField._eval_state_input

    def get_start_execution_details(self: Any) -> Any:
        details = present(self)
        details.start_time = _timestamp(self.start_date)
        return details

    def eval_state_input(self: Any, env: Any) -> None:  # what follows the event and the context
        entered = env.event_manager._history_event_list[env.event_history_context.source_event_id - 1]
        env.states.context_object.context_object_data["State"]["EnteredTime"] = entered["timestamp"]
        present_input(self, env)

    replace(Execution, "get_start_execution_details", get_start_execution_details)
    replace(CommonStateField, "_eval_state_input", eval_state_input)


def service_shapes() -> None:
    """Parameters and results of integrations change case between ASL and boto3; moto's two hooks for it are empty.

    Child execution times are in milliseconds.
    """
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service import (
        StateTaskService,
    )
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service_aws_sdk import (
        StateTaskServiceAwsSdk,
    )
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service_sfn import (
        StateTaskServiceSfn,
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
        if isinstance(self, StateTaskServiceSfn):
            times = {key: value for key, value in response.items() if isinstance(value, dt.datetime)}
            response.update({key: round(value.timestamp() * 1000) for key, value in times.items()})

    replace(StateTaskService, "_normalise_parameters", normalise_parameters)

    def capitalized(name: str) -> str:  # the service leaves the rest of a name as it is, such as ChecksumCRC32
        return name[:1].upper() + name[1:]

    replace(StateTaskService, "_normalise_response", normalise_response)
    replace(StateTaskService, "_to_sfn_cased", staticmethod(capitalized))
    replace(StateTaskServiceAwsSdk, "_normalise_service_error_name", staticmethod(_error_prefix))


def _error_prefix(service: str) -> str:
    """The beginning of the errors of an SDK integration, such as S3 in `S3.NoSuchBucketException`."""
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.service import state_task_service_aws_sdk

    known = state_task_service_aws_sdk._SERVICE_ERROR_NAMES.get(service.lower())
    return str(known or service_model(service).service_id.replace(" ", ""))


def _operation(service: Any, boto_service: str | None, action: str | None) -> OperationModel | None:
    action = action or service._get_boto_service_action()
    return operation_model(boto_service or service._get_boto_service_name(), action)


def json_task_results() -> None:
    """Results keep datetimes and streams, and these make DescribeExecution and GetExecutionHistory answer 500."""
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


def object_checksums() -> None:
    """S3 keeps CRC64NVME of an object that came without a checksum, and returns the type of each (Amazon S3 user guide,
    "Checking object integrity"). moto keeps none, leaves the number of parts out of the composite one of HEAD,
    and omits the type of an object that was put in one piece.
    """
    from moto.s3.responses import S3Response

    present_get, present_head = S3Response.get_object, S3Response.head_object

    @wraps(present_get)
    def get_object(self: Any) -> Any:
        answer = present_get(self)
        return _with_checksum(self, answer, self.bucket_name, self.parse_key_name(), self.querystring, self.headers)

    @wraps(present_head)
    def head_object(self: Any, bucket_name: str, query: Any, key_name: str, headers: Any) -> Any:
        answer = present_head(self, bucket_name, query, key_name, headers)
        return _with_checksum(self, answer, bucket_name, key_name, query, headers)

    replace(S3Response, "get_object", get_object)
    replace(S3Response, "head_object", head_object)


def default_encryption() -> None:
    """Encrypt new buckets with S3's own keys, as S3 has done since 2023 (S3 user guide, 'Setting default server-side
    encryption behavior for Amazon S3 buckets'). moto encrypts none."""
    from moto.s3.models import S3Backend

    present = S3Backend.create_bucket

    @wraps(present)
    def create_bucket(*arguments: Any, **named: Any) -> Any:
        bucket = present(*arguments, **named)
        bucket.encryption = {"Rule": {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}}
        return bucket

    replace(S3Backend, "create_bucket", create_bucket)


def _with_checksum(response: Any, answer: Any, bucket: str, name: str, query: Any, asked: Any) -> Any:
    """The answer about a whole object with its checksum, if requested. S3 returns another for a range or a part."""
    status, headers = answer[0], answer[1]
    if status != 200 or asked.get("x-amz-checksum-mode") != "ENABLED" or asked.get("Range") or query.get("partNumber"):
        return answer
    key = response.backend.get_object(bucket, name, version_id=query.get("versionId", [None])[0])
    if key is not None:
        for header in [header for header in headers if header.lower().startswith("x-amz-checksum-")]:
            del headers[header]
        headers.update(_checksum_headers(key))
    return answer


def _checksum_headers(key: Any) -> dict[str, str]:
    from awscrt import checksums
    from moto.s3.utils import compute_checksum

    algorithm, kind = key.checksum_algorithm or "CRC64NVME", key.checksum_type or "FULL_OBJECT"
    value, content = key.checksum_value, key.value
    if kind == "COMPOSITE":
        value = f"{value}-{key.checksum_parts}"
    elif algorithm == "CRC32C":  # moto computes another one without the package crc32c
        value = base64.b64encode(checksums.crc32c(content).to_bytes(4, "big")).decode()
    else:
        value = compute_checksum(content, algorithm).decode()
    return {f"x-amz-checksum-{algorithm.lower()}": value, "x-amz-checksum-type": kind}


def _timestamp(moment: Any) -> Any:
    """ISO 8601 in UTC with milliseconds, as Step Functions writes times."""
    if not isinstance(moment, dt.datetime):
        return moment
    return moment.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def presigned_requests() -> None:
    """moto finds service and caller in headers; a presigned request names them in its query."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication

    present = DomainDispatcherApplication.infer_service_region_host

    def infer_service_region_host(self: Any, environ: dict[str, Any], path: str) -> Any:
        query = parse_qs(environ.get("QUERY_STRING", ""))
        if "X-Amz-Credential" in query and "HTTP_AUTHORIZATION" not in environ:
            environ["HTTP_AUTHORIZATION"] = f"AWS4-HMAC-SHA256 Credential={query['X-Amz-Credential'][0]}, Presigned=1"
            environ["HTTP_X_AMZ_SECURITY_TOKEN"] = query.get("X-Amz-Security-Token", [""])[0]
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


def catchers_back_to_their_state() -> None:
    """A state whose catcher leads back to it goes on with its own `Next`: moto takes the name for not yet replaced."""
    from moto.stepfunctions.parser.asl.component.common.catch.catcher_decl import CatcherDecl
    from moto.stepfunctions.parser.asl.component.common.catch.catcher_outcome import CatcherOutcomeCaught
    from moto.stepfunctions.parser.asl.component.state.state import CommonStateField

    catch, set_next = CatcherDecl._eval_body, CommonStateField._set_next

    def eval_body(self: Any, env: Any) -> None:
        catch(self, env)
        env.was_caught = isinstance(env.stack[-1], CatcherOutcomeCaught)

    def set_next_unless_caught(self: Any, env: Any) -> None:
        if not env.__dict__.pop("was_caught", False):
            set_next(self, env)

    replace(CatcherDecl, "_eval_body", eval_body)
    replace(CommonStateField, "_set_next", set_next_unless_caught)


def timestamps() -> None:
    """moto compares times only in whole seconds of UTC; its own `$$.State.EnteredTime` has another form.

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


def lambda_invocations(invoke: Callable[[Any, Any], tuple[str, bool, bytes]]) -> None:
    """Run functions without Docker, and answer as Lambda does: with the version, and `Unhandled` for every error.

    Args:
        invoke: Maps moto's function and the event to (payload as JSON, whether it is an error, end of the log).
    """
    from moto.awslambda.exceptions import LambdaClientError
    from moto.awslambda.models import LambdaFunction

    def invoke_function(self: Any, body: Any, request_headers: Any, response_headers: Any) -> bytes:
        text = body.decode() if isinstance(body, bytes) else body
        try:
            event = json.loads(text) if text else {}
        except ValueError as error:
            said = f"Could not parse request body into json: {error}"
            raise LambdaClientError("InvalidRequestContentException", said) from None
        payload, is_error, log_end = invoke(self, event)
        response_headers["x-amz-executed-version"] = str(self.version)
        if request_headers.get("x-amz-log-type") == "Tail":
            response_headers["x-amz-log-result"] = base64.b64encode(log_end).decode()
        if is_error:
            response_headers["x-amz-function-error"] = "Unhandled"
        is_awaited = request_headers.get("x-amz-invocation-type", "RequestResponse") == "RequestResponse"
        return payload.encode() if is_awaited else b""

    replace(LambdaFunction, "invoke", invoke_function)


SHORTEST_WAIT_SECONDS = 0.3
"""Of a scaled Wait state: a job that is polled more often only costs processor time, which its pods need."""


def scaled_waits(time_scale: float) -> None:
    """Wait states and pauses between retries take `1 / time_scale` of their time; time limits stay as they are.

    A Wait state takes 0.3 s at least, or its own time if that is shorter.
    """
    import time

    from moto.stepfunctions.parser.asl.component.common.retry import retrier_decl
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.service import state_task_service_callback
    from moto.stepfunctions.parser.asl.component.state.wait.wait_function.wait_function import WaitFunction

    def wait_interval(_self: Any, env: Any, wait_seconds: float) -> None:
        shortest = min(wait_seconds, SHORTEST_WAIT_SECONDS)
        deadline = time.monotonic() + max(wait_seconds / time_scale, shortest)
        while env.is_running() and (left := deadline - time.monotonic()) > 0:
            env.program_state_event.wait(left)

    replace(WaitFunction, "_wait_interval", wait_interval)
    replace(retrier_decl, "time", types.SimpleNamespace(sleep=lambda seconds: time.sleep(seconds / time_scale)))
    # Time until a finished child execution is noticed.
    replace(state_task_service_callback, "_DELAY_SECONDS_SYNC_CONDITION_CHECK", min(0.5, 5 / time_scale))
