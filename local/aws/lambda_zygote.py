"""Forks the twin's Lambda workers on request; a process that has imported their libraries.

Importing boto3, the Kubernetes client and Powertools takes over a second of CPU; forked, a worker is ready in
milliseconds, as one that SnapStart restores. Each worker serves one function, as on Lambda: its own environment
variables, memory limit and log. It exchanges JSON lines over a Unix socket: first its properties, then one event per
line.

Run as `python -m local.aws.lambda_zygote SOCKET`; ends when its standard input does, so it never outlives the
process of its twins.
"""

from __future__ import annotations

import errno
import gc
import importlib
import json
import os
import pkgutil
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, TextIO

import boto3

LIBRARIES = (
    "aws_lambda_powertools",
    "aws_lambda_powertools.utilities.batch",
    "aws_xray_sdk.core",  # 0.2 s, and the tracer imports it even where it is off
    "trainflow.record.build",
    "trainflow.report",
    "trainflow.workflow.run_ended",
)
"""Modules that handlers import themselves and that take long."""

HANDLERS = "lambdas.handlers."
"""Beginning of the names of handler modules: each is imported in its worker, in its own environment."""

SERVICES = (
    *("s3", "eks", "sts", "cloudwatch", "sns", "dynamodb", "stepfunctions"),
    *("autoscaling", "ec2", "ecr", "events", "service-quotas", "sqs"),
)
"""Services whose models boto3's default session reads once, here; every worker would otherwise need 50 to 400 ms for
each."""


INVENTED = {"region_name": "us-east-1", "aws_access_key_id": "zygote", "aws_secret_access_key": "zygote"}


class Context:
    """Lambda's context object, as far as handlers and Powertools read it."""

    log_group_name: str
    log_stream_name = "twin"
    function_version = "$LATEST"

    def __init__(self, function: dict[str, Any], request_id: str) -> None:
        self.function_name: str = function["name"]
        self.invoked_function_arn: str = function["arn"]
        self.memory_limit_in_mb = str(function["memory_mib"])
        self.log_group_name = f"/aws/lambda/{self.function_name}"
        self.aws_request_id = request_id
        self._deadline = time.monotonic() + function["timeout_seconds"]

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the runtime kills the invocation."""
        return max(0, int((self._deadline - time.monotonic()) * 1000))


def _rooms_of_functions() -> Iterator[str]:
    """Names of the modules that handlers are made of: a worker has them at once, where importing them took 0.1 to 0.4 s
    of CPU in each."""
    for module in pkgutil.walk_packages(importlib.import_module("lambdas").__path__, "lambdas."):
        if not f"{module.name}.".startswith(HANDLERS):
            yield module.name


def serve(path: str) -> None:
    """Fork one worker for each connection to the socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the twin, which then closes our input
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for workers
    for module in (*LIBRARIES, *_rooms_of_functions()):
        importlib.import_module(module)
    for service in SERVICES:
        # The session would keep credentials that it finds here, and every function would sign with them.
        boto3.client(service, **INVENTED)  # type: ignore[call-overload]
    gc.collect()
    gc.freeze()  # a collection in a worker would copy the pages of all that it shares with the others
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        while True:
            readable, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in readable:
                return
            connection, _ = listener.accept()
            # Decision 3: a forked worker has its libraries already, and is as separate as a Lambda environment.
            if os.fork() == 0:
                listener.close()
                _work(connection)
                os._exit(0)
            connection.close()


def _work(connection: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    requests, answers = connection.makefile("r"), connection.makefile("w")
    function = json.loads(requests.readline())
    _become(function)
    _send(answers, {"pid": os.getpid()})
    module, _, attribute = function["handler"].rpartition(".")
    handler = None
    for line in requests:
        request = json.loads(line)
        try:
            # Importing is part of the first invocation: what fails there is that invocation's error.
            handler = handler or _handler(module, attribute)
            result = handler(request["event"], Context(function, request["request_id"]))
            _send(answers, {"payload": _marshalled(result)})
        except MemoryError:
            # Lambda kills a function beyond its memory, and reports Runtime.ExitError.
            os._exit(1)
        except BaseException as error:  # noqa: BLE001  (as Lambda does: whatever it was, the caller gets its name)
            _send(answers, {"error": _described(error, request["request_id"])})


class RuntimeFailure(Exception):
    """An error of Lambda's runtime itself, with the name that Lambda gives it."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def _handler(module: str, attribute: str) -> Callable[[Any, Context], Any]:
    """The function of a module.

    Raises:
        RuntimeFailure: If it cannot be imported, or the module lacks the function.
    """
    try:
        imported = importlib.import_module(module)
    except ImportError as error:
        raise RuntimeFailure("Runtime.ImportModuleError", f"Unable to import module '{module}': {error}") from error
    if not hasattr(imported, attribute):
        raise RuntimeFailure("Runtime.HandlerNotFound", f"Handler '{attribute}' missing on module '{module}'")
    handler: Callable[[Any, Context], Any] = getattr(imported, attribute)
    return handler


def _marshalled(result: Any) -> str:
    """A result as JSON; bytes as they are, as Lambda's runtime for Python answers.

    Raises:
        RuntimeFailure: If it cannot be written as JSON.
    """
    try:
        return result.decode() if isinstance(result, bytes) else json.dumps(result)
    except (TypeError, ValueError) as error:
        raise RuntimeFailure("Runtime.MarshalError", f"Unable to marshal response: {error}") from error


def _become(function: dict[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(function["environment"])
    if "LAMBDA_TASK_ROOT" in os.environ:  # an archive of its own; the twin's handlers are importable here
        sys.path.insert(0, os.environ["LAMBDA_TASK_ROOT"])
    log = os.open(function["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    limit = function["memory_mib"] * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    sys.addaudithook(_refuse_writes)


WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
WRITABLE = tuple(os.path.realpath(folder) for folder in ("/tmp", "/dev"))  # noqa: S108  (Lambda's own folder)
PROGRAM = tuple(os.path.realpath(folder) for folder in (f"{__file__}/../../..", sys.prefix))
"""Folders of the function's code and of its libraries, which are read-only wherever they lie: below /tmp, too."""


def _lies_in(path: str, folders: tuple[str, ...]) -> bool:
    """Whether a path is one of the folders, as of a file without a name (O_TMPFILE), or lies below one."""
    return f"{path}/".startswith(tuple(f"{folder}/" for folder in folders))


def _refuse_writes(event: str, arguments: tuple[Any, ...]) -> None:
    """Let Python write below /tmp only, and not to a program there, as a function's read-only file system does
    (Lambda developer guide, 'Lambda execution environment'). What libraries in C open is not seen.

    Raises:
        OSError: For a file or folder elsewhere.
    """
    if event == "os.mkdir" or (event == "open" and arguments[2] & WRITES):
        if isinstance(arguments[0], int):  # a file that is open already
            return
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if not _lies_in(path, WRITABLE) or _lies_in(path, PROGRAM):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)


def _described(error: BaseException, request_id: str) -> dict[str, Any]:
    return {
        "errorMessage": str(error),
        "errorType": error.name if isinstance(error, RuntimeFailure) else type(error).__name__,
        "requestId": request_id,
        "stackTrace": traceback.format_tb(error.__traceback__),
    }


def _send(answers: TextIO, document: dict[str, Any]) -> None:
    answers.write(json.dumps(document) + "\n")
    answers.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
