"""The command in a folder, as a person types it there."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from typer.testing import CliRunner

from tests.command_output import require_documented
from tests.waiting import PATIENCE
from trainflow.cli.main import app
from trainflow.client.twin_address import read_address

ALONE = frozenset({"run", "resume", "grid", "watch"})
"""Commands that follow a run: signals end them, and only a process of its own has its own."""


OTHERS = ("AWS_", "TRAINFLOW_", "MLFLOW_", "WANDB_")
"""Beginnings of the variables in which a developer names systems of their own."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a command has printed, and its exit status."""

    status: int
    stdout: str
    stderr: str


class Commands:
    """The command in a folder, with an environment of its own."""

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        *,
        alone: bool = False,
        python: Path | str = sys.executable,
    ) -> None:
        """Runs nothing yet.

        Args:
            folder: Where the commands are typed.
            environment: Variables beside this process's own, of which those for other systems are left out.
            alone: Whether every command is a process of its own: where this one has threads, such as a twin's, that
                see its folder and its environment. Otherwise the short ones are calls, which cost a tenth of it.
            python: The interpreter, of an environment with other packages.
        """
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS)}
        self.environment = {**kept, "XDG_CONFIG_HOME": str(folder / "config"), **(environment or {})}
        self._alone, self._python = alone, str(python)

    def words(self, *words: str) -> list[str]:
        """The command line of a process."""
        return [self._python, "-m", "trainflow", *words]

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start a command that does not end by itself."""
        return subprocess.Popen(
            self.words(*words),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def answer(self, *words: str) -> Answer:
        """What a command answers, whatever that is."""
        answer = self._process(*words) if self._alone or words[0] in ALONE else self._call(*words)
        assert "Traceback" not in answer.stderr
        if "--json" in words and answer.stdout:
            lines = answer.stdout.splitlines() if words[0] == "logs" else [answer.stdout]
            for text in lines:
                require_documented(words[0], json.loads(text))
        return answer

    def __call__(self, *words: str, status: int = 0) -> str:
        """What a command prints."""
        answer = self.answer(*words)
        assert answer.status == status, answer.stderr
        return answer.stdout

    def json(self, *words: str) -> Any:
        """What a command prints for programs."""
        return json.loads(self(*words, "--json"))

    def refused(self, *words: str) -> str:
        """The one sentence of a command that has done nothing."""
        answer = self.answer(*words)
        assert (answer.status, answer.stdout) == (2, ""), answer
        (sentence,) = answer.stderr.splitlines()
        return sentence

    def _process(self, *words: str) -> Answer:
        done = subprocess.run(
            self.words(*words),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,  # without a time limit of its own: the one of each test names a command that hangs
        )
        return Answer(status=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def _call(self, *words: str) -> Answer:
        absent = dict.fromkeys(os.environ.keys() - self.environment.keys())
        with contextlib.chdir(self.folder):
            done = CliRunner().invoke(app, list(words), env={**absent, **self.environment})
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Answer(status=done.exit_code, stdout=done.stdout, stderr=done.stderr)


def until(condition: Callable[[], Any]) -> Any:
    """Wait for something, and return it. A condition that is costly, such as a command, is asked for less often."""
    deadline = (began := time.monotonic()) + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(max(0.2, 2 * (time.monotonic() - began)))
        began = time.monotonic()
    return found


def account_of(folder: Path, run_id: str) -> dict[str, str]:
    """Settings with which the twin of a run is an AWS account like any other."""
    address = read_address(folder / "out" / run_id)
    assert address is not None
    return {
        "AWS_ENDPOINT_URL": address.endpoint,
        "AWS_REGION": address.region,
        "AWS_ACCESS_KEY_ID": address.access_key_id,
        "AWS_SECRET_ACCESS_KEY": address.secret_access_key,
    }


def client_of(account: Mapping[str, str], service: str) -> Any:
    """boto3's client with the settings of `account_of`."""
    return boto3.client(  # type: ignore[call-overload]
        service,
        endpoint_url=account["AWS_ENDPOINT_URL"],
        region_name=account["AWS_REGION"],
        aws_access_key_id=account["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=account["AWS_SECRET_ACCESS_KEY"],
    )
