"""Upload a run's artifacts to S3: `python -m trainer.publish --source DIR --url s3://bucket/prefix/`.

Uploads the newest checkpoint, and all other files that the training left in the run's folder, such as TensorBoard
events. An object that exists already
with the same content is not uploaded again, so the program can be run again at any time.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.checkpoints import checkpoint_files, patterns
from trainer.checkpoints.checkpoint_files import CheckpointFile
from trainer.runtime import arguments, program, s3
from trainer.runtime.environment import Environment
from trainer.runtime.errors import CheckpointNotFound, ConfigInvalid, StorageFailed
from trainer.runtime.node import SHARED_NOTES
from trainflow.protocol import variables
from trainflow.protocol.s3_urls import S3Url

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

CHECKSUM = "sha256"
"""Name of the objects' metadata field with the checksum of their content."""


@dataclass(frozen=True, kw_only=True)
class PublishConfig:
    """The files to publish, and their prefix in S3."""

    source: Path | None = None
    """The run's folder; else TRAINFLOW_RUN_DIR."""
    url: str
    """Prefix of the objects, s3://bucket/prefix/."""
    checkpoints: str | None = None
    """Pattern of the checkpoints of a program that is not Trainflow's own; the newest complete one is published:
    `{step}` is a number, `*` any part of a name. Empty to publish every file. Default: our own format."""
    marker: str | None = None
    """Name of a file that only a complete checkpoint's folder has."""


def main(argv: Sequence[str], environment: Environment) -> Mapping[str, Any]:
    """Upload the files that are not in S3 yet."""
    program.raise_on_sigterm()
    config = arguments.parse(PublishConfig, argv, program="trainer.publish")
    source = config.source or environment.run_dir
    if source is None:
        raise ConfigInvalid(f"--source is missing; give it, or set {variables.RUN_DIR}.")
    prefix = s3.parse(config.url, option="url", key_required=False)
    newest, step, files = _selected(config, source)
    client = s3.connect()
    uploaded = sum(upload(client, file, prefix.below(name)) for name, file in files.items())
    return {
        "objects": len(files),
        "bytes": sum(file.stat().st_size for file in files.values()),
        "uploaded": uploaded,
        "checkpoint": str(prefix.below(_name(newest, source))) if newest else None,
        **_described(newest, step),
    }


def _described(newest: Path | None, step: int | None) -> dict[str, Any]:
    """Size of the newest checkpoint, in bytes, and when it was written, in seconds since 1970."""
    if newest is None:
        return {}
    parts = [file.stat() for file in ((newest,) if newest.is_file() else newest.rglob("*")) if file.is_file()]
    return {
        **({} if step is None else {"checkpoint_step": step}),
        "checkpoint_bytes": sum(part.st_size for part in parts),
        "checkpoint_saved_at": round(max((part.st_mtime for part in parts), default=0.0), 3),
    }


def _selected(config: PublishConfig, source: Path) -> tuple[Path | None, int | None, dict[str, Path]]:
    """The newest checkpoint, the step in its path, and the files to publish."""
    if config.checkpoints is None:
        verified = newest_checkpoint(source)
        return verified.path if verified else None, None, artifacts(source, verified)
    found = patterns.find(config.checkpoints, source) if config.checkpoints else []
    chosen, passed_over = patterns.newest_complete(found, patterns.Rules(marker=config.marker))
    for skipped, reason in passed_over:
        print(f"{skipped.path} is not complete: {reason}.", flush=True)
    newest, step = (chosen.path, chosen.step) if chosen else (None, None)
    if newest is not None and not os.path.realpath(newest).startswith(f"{os.path.realpath(source)}{os.sep}"):
        print(f"{newest} is a link to a place outside of the run's folder, which is not published.", flush=True)
        newest = step = None
    # Where none is known to be complete, all are kept: one may be of a format that is judged wrongly.
    left_out = {source / SHARED_NOTES, *(each.path for each in found if chosen and each != chosen)}
    files = (file for file in sorted(source.rglob("*")) if file.is_file() and not left_out & {file, *file.parents})
    return newest, step, {_name(file, source): file for file in files}


def newest_checkpoint(source: Path) -> CheckpointFile | None:
    """The checkpoint to publish; None if the program keeps no checkpoints.

    Raises:
        CheckpointNotFound: If there are checkpoints, and none is verified.
    """
    found = checkpoint_files.newest_verified(source, say=lambda sentence: print(sentence, flush=True))
    if found is None and (source / checkpoint_files.FOLDER).exists():
        raise CheckpointNotFound(
            f"The folder {source / checkpoint_files.FOLDER} holds no verified checkpoint; train first, or correct "
            "--source."
        )
    return found


def artifacts(source: Path, checkpoint: CheckpointFile | None) -> dict[str, Path]:
    """The files to publish, by their names below the prefix: all files of the folder, but only the newest
    checkpoint."""
    left_out = {source / checkpoint_files.FOLDER, source / SHARED_NOTES}
    others = (file for file in sorted(source.rglob("*")) if file.is_file() and not left_out.intersection(file.parents))
    newest = (checkpoint.path, checkpoint.record_path) if checkpoint else ()
    return {_name(file, source): file for file in (*newest, *others)}


def upload(client: S3Client, file: Path, target: S3Url) -> bool:
    """Upload a file unless an object with the same content exists.

    Returns:
        Whether the file was uploaded.

    Raises:
        StorageFailed: If the bucket does not exist or may not be written.
    """
    from boto3.exceptions import S3UploadFailedError
    from botocore.exceptions import BotoCoreError, ClientError

    with file.open("rb") as content:
        checksum = hashlib.file_digest(content, "sha256").hexdigest()
    if _is_there(client, target, size=file.stat().st_size, checksum=checksum):
        return False
    try:
        client.upload_file(str(file), target.bucket, target.key, ExtraArgs={"Metadata": {CHECKSUM: checksum}})
    except (S3UploadFailedError, ClientError, BotoCoreError) as error:
        raise StorageFailed(
            f"{file.name} could not be uploaded to {target} ({error}); "
            "check that the bucket exists and that the pod's role has s3:PutObject on it."
        ) from error
    return True


def _is_there(client: S3Client, target: S3Url, *, size: int, checksum: str) -> bool:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        there = client.head_object(Bucket=target.bucket, Key=target.key)
    except (ClientError, BotoCoreError):
        return False  # missing or not readable; the upload reports which
    return there["ContentLength"] == size and there["Metadata"].get(CHECKSUM) == checksum


def _name(file: Path, source: Path) -> str:
    return file.relative_to(source).as_posix()


if __name__ == "__main__":
    sys.exit(program.run(main, sys.argv[1:], os.environ))
