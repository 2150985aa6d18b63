"""A twin that stays: an account to type commands of the AWS CLI and of `trainflow` against, until Ctrl-C.

`python -m local` writes a file with the environment of a shell; `. .trainflow/twin.env` in another terminal reads it.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from local.aws.deployment import ARTIFACT_BUCKET, CLUSTER_NAME, DATA_BUCKET, DEPLOYMENT_NAME, NAMESPACE
from local.slurm.errors import SlurmError
from local.twin import REPOSITORY, Twin, TwinError
from trainflow.client.place_variable import VARIABLE as PLACE

ENVIRONMENT = "twin.env"
"""Name of the file for shells, below the home. It holds an access key of no use elsewhere, and ends with the twin."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve a twin until SIGINT or SIGTERM.

    Raises:
        SystemExit: With a sentence, if the twin cannot be started.
    """
    given = _parser().parse_args(arguments)
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stopped.set())
    twin = Twin(
        home=given.home,
        log_dir=given.home / "logs" / "twin",
        time_scale=given.time_scale,
        image_root=given.image_root,
        no_op_seconds=given.no_op,
        hidden=[root / name for root in (given.image_root, REPOSITORY) for name in (".trainflow", "out")],
    )
    try:
        with twin, _shells(given.home / ENVIRONMENT, shell_environment(twin)) as path:
            print(f"The twin is an account now. In other terminals: . {shlex.quote(str(path))}", flush=True)
            print("Ctrl-C ends it, with its runs.", flush=True)
            stopped.wait()
    except (TwinError, SlurmError, OSError) as error:
        sys.exit(str(error))


def shell_environment(twin: Twin) -> dict[str, str]:
    """Environment of a shell: the twin's AWS for programs, and the deployment's names for documented commands.

    Args:
        twin: One that runs.
    """
    assert twin.deployment is not None, "the twin runs, with everything deployed"  # noqa: S101
    return {
        **twin.aws.client_environment,
        "AWS_PAGER": "",
        PLACE: DEPLOYMENT_NAME,
        "KUBECONFIG": str(twin.kubeconfig.absolute()),
        "NAME": CLUSTER_NAME,
        "NS": NAMESPACE,
        "MACHINE": twin.deployment.address.state_machine_arn,
        "TOPIC": twin.deployment.topic_arn,
        "DATA_BUCKET": DATA_BUCKET,
        "ARTIFACTS": ARTIFACT_BUCKET,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m local", description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".trainflow"), help="folder that is kept between twins")
    parser.add_argument("--time-scale", type=float, default=30.0, help="waits are so many times shorter")
    parser.add_argument("--image-root", type=Path, default=REPOSITORY, help="folder that stands for the image")
    parser.add_argument("--no-op", type=float, metavar="SECONDS", help="pods run nothing and succeed after this time")
    return parser


@contextmanager
def _shells(path: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """The path of a file that sets the environment, which only its owner can read, while the block lasts."""
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in environment.items()]
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.writelines(lines)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
