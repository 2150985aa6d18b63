"""Lambda without Docker: warm worker processes, time and memory limits, errors named as Lambda names them."""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from local import runtime_folder
from local.aws import function_logs, patches
from local.aws.access.guard import AccessDenied
from local.aws.faults import Duplicate, FaultPlan, no_faults
from local.aws.function_logs import FunctionLogs


@dataclass(frozen=True, kw_only=True)
class FunctionConfiguration:
    """Properties of a function that a worker needs."""

    name: str
    arn: str
    handler: str
    environment: Mapping[str, str]
    timeout_seconds: float
    memory_mib: int
    log: str

    @property
    def fingerprint(self) -> str:
        """A key of the properties; a worker may serve only functions with the same key, as one execution environment
        does."""
        return json.dumps(asdict(self), sort_keys=True)


MAX_CONCURRENCY = max(8, 2 * (os.cpu_count() or 1))
"""Invocations at a time, as an account has a limit. Further invocations wait here: a machine that runs hundreds of
workers at once gives each of them too little time."""


class Worker:
    """One execution environment: serves one invocation at a time."""

    def __init__(self, address: str, function: FunctionConfiguration) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(address)
        self._reader, self._writer = self._socket.makefile("r"), self._socket.makefile("w")
        self._timeout_seconds = function.timeout_seconds
        self._send(asdict(function))
        self._pid: int = json.loads(self._reader.readline())["pid"]

    def invoke(self, event: Any, request_id: str) -> dict[str, Any]:
        """The worker's answer.

        Raises:
            TimeoutError: If the function's time limit passed.
            EOFError: If the process ended without an answer.
        """
        self._socket.settimeout(self._timeout_seconds)
        self._send({"event": event, "request_id": request_id})
        line = self._reader.readline()
        if not line:
            raise EOFError
        answer: dict[str, Any] = json.loads(line)
        return answer

    def kill(self) -> None:
        """End the process, whatever it is doing."""
        self._socket.close()
        try:
            os.kill(self._pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def _send(self, document: Any) -> None:
        self._writer.write(json.dumps(document) + "\n")
        self._writer.flush()


class Zygote:
    """The process that forks workers. It holds nothing of a twin: each worker becomes a function of one."""

    def __init__(self) -> None:
        """Start it, without waiting for it."""
        self._folder = runtime_folder.create("trainflow-lambda-")
        self.address = str(Path(self._folder.name) / "zygote")
        self._starting, self._is_ready = threading.Lock(), False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "local.aws.lambda_zygote", self.address],
            env={"PATH": "/usr/bin:/bin", "TZ": "UTC"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        atexit.register(self._end)

    @property
    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self._process.poll() is None

    def wait_ready(self) -> None:
        """Return once it can fork workers."""
        assert self._process.stdout is not None, "it is a pipe"  # noqa: S101
        with self._starting:
            if not self._is_ready and self._process.stdout.readline() != b"ready\n":
                raise RuntimeError("The twin's Lambda workers could not be started; the reason stands above.")
            self._is_ready = True

    def _end(self) -> None:
        assert self._process.stdin and self._process.stdout, "they are pipes"  # noqa: S101
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()
        self._folder.cleanup()


_zygote: Zygote | None = None
_zygote_lock = threading.Lock()


def _shared_zygote() -> Zygote:
    """The zygote of this process, which all of its twins share: its imports take over a second of CPU."""
    global _zygote
    with _zygote_lock:
        if _zygote is None or not _zygote.is_alive:
            _zygote = Zygote()
        return _zygote


Credentials = Callable[[str, str], Mapping[str, str]]
"""Returns the environment variables of an assumed role, for the role's ARN and a session's name."""


class LambdaRuntime:
    """Runs the functions that moto knows of, from the handler modules of this repository."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        log_dir: Path,
        credentials: Credentials | None = None,
        faults: FaultPlan = no_faults,
    ) -> None:
        """
        Args:
            environment: Environment of every function besides its own variables.
            log_dir: Folder with a log of each function.
            credentials: Returns the credentials of a function's role; without it, all functions use those of
                `environment`.
            faults: Invocations that fail.
        """
        self._faults = faults
        self._environment = dict(environment)
        self._log_dir, self._logs = log_dir, FunctionLogs()
        self._credentials = functools.cache(credentials or (lambda _role, _session: {}))
        self._idle: dict[str, list[Worker]] = defaultdict(list)
        self._busy: set[Worker] = set()
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(MAX_CONCURRENCY)
        self._zygote: Zygote | None = None
        self._stopped = False

    def start(self) -> None:
        """Start the zygote without waiting for it, and replace moto's invocations."""
        self._log_dir.mkdir(parents=True, exist_ok=True)
        self._zygote = _shared_zygote()
        patches.lambda_invocations(self._invoke_for_moto)
        function_logs.apply(self._logs)

    def wait_ready(self) -> None:
        """Return once the zygote can fork workers."""
        assert self._zygote is not None, "start() comes first"  # noqa: S101
        self._zygote.wait_ready()

    def stop(self) -> None:
        """End every worker, also in the middle of an invocation."""
        with self._lock:
            self._stopped = True
            workers = [*self._busy, *(worker for idle in self._idle.values() for worker in idle)]
            self._idle.clear()
        for worker in workers:
            worker.kill()

    def invoke(self, function: FunctionConfiguration, event: Any) -> tuple[str, bool]:
        """Invoke a function.

        Returns:
            Its result or its error as JSON, and whether it is an error.
        """
        self.wait_ready()  # a schedule may come due while the twin starts
        with self._free:
            fault = self._faults(function.name, event)
            if isinstance(fault, Duplicate):
                self._invoke(function, event)
                return self._invoke(function, event)
            if fault is None:
                return self._invoke(function, event)
            if fault.after_acting:
                self._invoke(function, event)
            return _error(fault.error, str(uuid.uuid4()), "A fault that was asked for.")

    def _invoke(self, function: FunctionConfiguration, event: Any) -> tuple[str, bool]:
        request_id = str(uuid.uuid4())
        worker = self._take(function)
        try:
            answer = worker.invoke(event, request_id)
        except TimeoutError:
            self._discard(worker)
            return _error(
                "Sandbox.Timedout", request_id, f"Task timed out after {function.timeout_seconds:.2f} seconds"
            )
        except (EOFError, OSError, ValueError):  # ValueError: stop() has closed the socket
            self._discard(worker)
            return _error("Runtime.ExitError", request_id, "Runtime exited with error: signal: killed")
        with self._lock:
            self._busy.discard(worker)
            self._idle[function.fingerprint].append(worker)
        if "error" in answer:
            return json.dumps(answer["error"]), True
        return answer["payload"], False

    def _take(self, function: FunctionConfiguration) -> Worker:
        with self._lock:
            idle = self._idle[function.fingerprint]
            if idle:
                worker = idle.pop()
                self._busy.add(worker)
                return worker
        assert self._zygote is not None, "start() comes first"  # noqa: S101
        worker = Worker(self._zygote.address, function)
        with self._lock:
            self._busy.add(worker)
            if self._stopped:  # while the worker was made; stop() has not seen it
                worker.kill()
        return worker

    def _discard(self, worker: Worker) -> None:
        with self._lock:
            self._busy.discard(worker)
        worker.kill()

    def _invoke_for_moto(self, moto_function: Any, event: Any) -> tuple[str, bool, bytes]:
        from moto.awslambda.exceptions import LambdaClientError

        try:
            credentials = self._credentials(moto_function.role, moto_function.function_name)
        except AccessDenied:
            said = "The role defined for the function cannot be assumed by Lambda."
            raise LambdaClientError("AccessDeniedException", said) from None
        function = FunctionConfiguration(
            name=moto_function.function_name,
            arn=moto_function.function_arn,
            handler=moto_function.handler,
            environment={
                **self._environment,
                **credentials,
                **self._function_variables(moto_function),
            },
            timeout_seconds=float(moto_function.timeout),
            memory_mib=int(moto_function.memory_size),
            log=str(self._log_dir / f"{moto_function.function_name}.log"),
        )
        self._logs.add(moto_function.logs_group_name, Path(function.log))
        payload, is_error = self.invoke(function, event)
        return payload, is_error, _end(Path(function.log))

    def _function_variables(self, moto_function: Any) -> dict[str, str]:
        """Environment variables that Lambda sets, and those that the function was deployed with."""
        return {
            **{name: str(value) for name, value in (moto_function.environment_vars or {}).items()},
            "AWS_LAMBDA_FUNCTION_NAME": moto_function.function_name,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(moto_function.memory_size),
            "AWS_LAMBDA_FUNCTION_VERSION": str(moto_function.version),
        }


LOG_BYTES = 4096
"""End of the log in the answer of an invocation that asks for it (Lambda API reference, Invoke, `LogType`)."""


def _end(log: Path) -> bytes:
    """The last bytes of a log; none if it does not exist yet."""
    if not log.exists():
        return b""
    with log.open("rb") as file:
        file.seek(-min(LOG_BYTES, log.stat().st_size), os.SEEK_END)
        return file.read()


def _error(kind: str, request_id: str, message: str) -> tuple[str, bool]:
    return json.dumps({"errorType": kind, "errorMessage": f"RequestId: {request_id} Error: {message}"}), True
