"""Start a program in a process of an elastic gang; rank 0 first announces its pod.

`torchrun … -m trainer.announce -m trainer.pretrain …`. Where ranks are assigned at run time, the pod that prints the
metrics is unknown outside of the gang. So rank 0 writes its pod's name to TRAINFLOW_RANK0_URL, at every start again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from trainer.runtime import program, s3
from trainer.runtime.environment import Environment
from trainer.runtime.errors import ConfigInvalid, StorageFailed
from trainflow.protocol import announcement, variables


# Decision 13: rank 0 of an elastic gang announces its pod in S3, since pods have no rights in the cluster.
def announce(environ: Mapping[str, str]) -> None:
    """Write the pod's name to the URL that the workflow reads.

    Raises:
        ConfigInvalid: If the environment lacks the URL or the pod's name, or the name is not valid.
        StorageFailed: If S3 refuses the object.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    url, pod = environ.get(variables.RANK0_URL), environ.get(variables.POD_NAME)
    if not url or not pod:
        raise ConfigInvalid(f"{variables.RANK0_URL} and {variables.POD_NAME} are missing; trainer.announce needs both.")
    place = s3.parse(url, option=variables.RANK0_URL, key_required=True)
    try:
        content = announcement.to_bytes(pod)
    except ValueError as error:
        raise ConfigInvalid(f"{variables.POD_NAME} is wrong: {error}; Kubernetes sets it from metadata.name.") from None
    try:
        s3.connect().put_object(Bucket=place.bucket, Key=place.key, Body=content)
    except (BotoCoreError, ClientError) as error:
        raise StorageFailed(f"{url} cannot be written ({error}); give the pods' role s3:PutObject there.") from error


def main(argv: Sequence[str], environment: Environment) -> None:
    """Announce the pod if this is rank 0, and replace this process by the program."""
    if not argv:
        raise ConfigInvalid("No program is given; write it behind trainer.announce, as behind `python`.")
    if environment.rank == 0:
        announce(os.environ)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-u", *argv])  # noqa: S606  (the program that the spec names)


if __name__ == "__main__":
    sys.exit(program.run(main, sys.argv[1:], os.environ))
