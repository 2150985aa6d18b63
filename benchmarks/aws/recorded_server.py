"""The twin's AWS for tests of others: one endpoint whose functions execute the archives that they were made with.

Run as `python -m benchmarks.aws.recorded_server LOGS`. The first line of output has variables; they let
LocalStack's tests use this endpoint. The server ends when its standard input ends.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.core.config import default_user_config

from local.aws.lambda_runtime import LambdaRuntime
from local.aws.server import REGION, AwsServer


class ArchivedFunctions(LambdaRuntime):
    """Runs functions from their archives. The twin's own functions are modules of this repository."""

    def _function_variables(self, moto_function: Any) -> dict[str, str]:
        variables = super()._function_variables(moto_function)
        return {**variables, "LAMBDA_TASK_ROOT": str(self._unpacked(moto_function.code_bytes))}

    def _unpacked(self, archive: bytes) -> Path:
        folder = self._log_dir / "archives" / hashlib.sha256(archive).hexdigest()
        if not folder.exists():
            with zipfile.ZipFile(io.BytesIO(archive)) as files:
                files.extractall(folder)
        return folder


def serve(logs: Path) -> None:
    """Serve until the standard input ends."""
    default_user_config["iam"] = {"load_aws_managed_policies": True}  # which the tests attach
    aws = AwsServer(time_scale=1)
    aws.start()
    runtime = ArchivedFunctions({**aws.client_environment, "PATH": os.environ["PATH"]}, log_dir=logs)
    runtime.start()
    try:
        runtime.wait_ready()
        print(json.dumps(_variables(aws)), flush=True)
        sys.stdin.read()
    finally:
        aws.start_nothing()
        runtime.stop()
        aws.stop()


def _variables(aws: AwsServer) -> dict[str, str]:
    owner = aws.owner_credentials
    return {
        "TEST_AWS_ENDPOINT_URL": aws.endpoint,
        "TEST_AWS_ACCOUNT_ID": DEFAULT_ACCOUNT_ID,
        "TEST_AWS_REGION_NAME": REGION,
        "TEST_AWS_ACCESS_KEY_ID": owner["AWS_ACCESS_KEY_ID"],
        "TEST_AWS_SECRET_ACCESS_KEY": owner["AWS_SECRET_ACCESS_KEY"],
    }


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
