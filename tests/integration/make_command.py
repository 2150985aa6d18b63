"""The commands of docs/deploy.md, typed on a terminal, against an account of the twin."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import termios
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from local.twin import REPOSITORY, Twin

CONFIGURATION = "tests/assets/config/twin.yaml"

INSTALLED = (".venv/.installed", "node_modules/.installed")
"""What `make` would otherwise install anew where a checkout is younger than they are."""

NOT_INHERITED = ("AWS_", "MAKE", "MFLAGS", "NO_COLOR", "FORCE_COLOR")
"""Beginnings of the names of variables that these tests decide themselves."""

GIVE_UP_SECONDS = 300.0
"""A command that says nothing for so long waits for an answer that it was not given."""


@dataclass(frozen=True, kw_only=True)
class Typed:
    """What came of a command."""

    status: int
    output: str
    """All that the terminal showed."""


class Make:
    """Types `make TARGET CONFIG=… …` on a terminal of its own and answers what it asks."""

    def __init__(self, twin: Twin, folder: Path, *, configuration: str = CONFIGURATION) -> None:
        """
        Args:
            twin: The account.
            folder: For the templates.
            configuration: The file that is deployed.
        """
        self._environment = _environment(twin.aws.client_environment)
        self._folder, self._configuration = folder, configuration

    def __call__(self, target: str, *variables: str, answers: Mapping[str, str] | None = None) -> Typed:
        """Run a target.

        Args:
            target: As `make` knows it.
            variables: `NAME=value`, as a user adds them.
            answers: From the end of a question to what is typed then; each question is answered once.
        """
        config = os.path.relpath(Path(REPOSITORY, self._configuration).with_suffix(""), REPOSITORY / "config")
        command = ["make", target, f"CONFIG={config}", f"ASSEMBLY={self._folder / 'cdk.out'}", *variables]
        kept = [option for path in INSTALLED for option in ("-o", path)]
        terminal, its_end = pty.openpty()
        termios.tcsetwinsize(its_end, (50, 200))  # of its own a new terminal has no columns
        with subprocess.Popen(
            [*command, *kept],
            cwd=REPOSITORY,
            env=self._environment,
            stdin=its_end,
            stdout=its_end,
            stderr=its_end,
            start_new_session=True,
        ) as process:
            os.close(its_end)
            try:
                output = _conversation(terminal, dict(answers or {}), " ".join(command))
            except BaseException:
                process.kill()
                raise
            finally:
                os.close(terminal)
        return Typed(status=process.returncode, output=output)

    def deploy(self, *variables: str) -> None:
        """Deploy, without a question."""
        self.succeeds("deploy", "YES=1", *variables)

    def succeeds(self, target: str, *variables: str, answers: Mapping[str, str] | None = None) -> str:
        """Run a target that has to succeed; what it printed."""
        typed = self(target, *variables, answers=answers)
        assert typed.status == 0, f"make {target}:\n{typed.output}"
        return typed.output


def _conversation(terminal: int, answers: dict[str, str], command: str) -> str:
    """What the terminal shows until the command ends; questions are answered as they appear."""
    output, unanswered = "", 0
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while True:
        readable, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert readable, f"{command} waits for an answer:\n{output}"
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # Linux, once the other end is closed
            return output
        if not chunk:
            return output
        output += chunk.decode(errors="replace")
        deadline = time.monotonic() + GIVE_UP_SECONDS
        for question in [question for question in answers if question in output[unanswered:]]:
            os.write(terminal, answers.pop(question).encode() + b"\n")
            unanswered = len(output)


def _environment(of_the_twin: Mapping[str, str]) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)},
        **of_the_twin,
        "TERM": "xterm-256color",  # a terminal of a person's: programs may colour what they print
        "CDK_VALIDATION": "false",  # the infrastructure tests do that
    }
