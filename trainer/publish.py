"""Upload a run's artifacts to S3: `python -m trainer.publish --source DIR --url s3://bucket/prefix/`.

Uploads the newest checkpoint, and then all other files that the training left in the run's folder, such as TensorBoard
events. An object that exists already with the same content is not uploaded again, so the program can be run again at
any time. A file that S3 cannot hold, or that cannot be read, is skipped and named in the result; it does not end the
run, and the files behind it are published.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer import working_folders
from trainer.checkpoints import checkpoint_files, patterns
from trainer.checkpoints.checkpoint_files import CheckpointFile
from trainer.publication.unpublished import Unpublishable, UnpublishedFiles
from trainer.publication.uploading import Uploads
from trainer.publication.walking import FoundFile, files_below
from trainer.publication.working import within_limit
from trainer.runtime import arguments, program, s3
from trainer.runtime.environment import Environment
from trainer.runtime.errors import CheckpointNotFound, ConfigInvalid
from trainer.runtime.node import SHARED_NOTES
from trainflow.protocol import variables
from trainflow.protocol.publication import BEYOND_LIMIT, KEPT_GIB, SKIPPED, unpublished_document


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
    kept_gib: int = KEPT_GIB
    """Most GiB of the program's working folder that are published."""


def main(argv: Sequence[str], environment: Environment) -> Mapping[str, Any]:
    """Upload the files that are not in S3 yet."""
    program.raise_on_sigterm()
    config = arguments.parse(PublishConfig, argv, program="trainer.publish")
    source = config.source or environment.run_dir
    if source is None:
        raise ConfigInvalid(f"--source is missing; give it, or set {variables.RUN_DIR}.")
    prefix = s3.parse(config.url, option="url", key_required=False)
    selected = _selected(config, source)
    newest = selected.newest
    skipped, beyond = UnpublishedFiles(), UnpublishedFiles()
    uploads = Uploads(s3.connect(), prefix, skipped)
    uploads.upload(_checkpoint_files(selected, source, skipped))
    uploads.upload(_other_files(config, source, selected.left_out, skipped, beyond))
    return {
        "objects": uploads.num_objects,
        "bytes": uploads.num_bytes,
        "uploaded": uploads.num_uploaded,
        "checkpoint": str(prefix.below(_name(newest, source))) if newest else None,
        **_described(newest, selected.step),
        **_unpublished(SKIPPED, skipped),
        **_unpublished(BEYOND_LIMIT, beyond),
    }


def _unpublished(field: str, files: UnpublishedFiles) -> dict[str, Any]:
    found = files.all()
    return {field: unpublished_document(found)} if found.num_files else {}


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


@dataclass(frozen=True, kw_only=True)
class _Selected:
    """The choice among the checkpoints."""

    newest: Path | None
    """The newest complete checkpoint, a file or a folder; None without one."""
    step: int | None = None
    """The step in its path."""
    record: Path | None = None
    """File beside it that describes it."""
    left_out: Collection[Path]
    """Places whose files are not published after the checkpoint's."""


def _selected(config: PublishConfig, source: Path) -> _Selected:
    if config.checkpoints is None:
        verified = newest_checkpoint(source)
        return _Selected(
            newest=verified.path if verified else None,
            record=verified.record_path if verified else None,
            left_out=(source / checkpoint_files.FOLDER, source / SHARED_NOTES),
        )
    found = patterns.find(config.checkpoints, source) if config.checkpoints else []
    chosen, passed_over = patterns.newest_complete(found, patterns.Rules(marker=config.marker))
    for skipped, reason in passed_over:
        print(f"{skipped.path} is not complete: {reason}.", flush=True)
    newest, step = (chosen.path, chosen.step) if chosen else (None, None)
    if newest is not None and not os.path.realpath(newest).startswith(f"{os.path.realpath(source)}{os.sep}"):
        print(f"{newest} is a link to a place outside of the run's folder, which is not published.", flush=True)
        newest = step = None
    # Where none is known to be complete, all are kept: one may be of a format that is judged wrongly.
    others = (each.path for each in found if chosen)
    return _Selected(newest=newest, step=step, left_out=(source / SHARED_NOTES, *others))


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


def _checkpoint_files(selected: _Selected, source: Path, skipped: UnpublishedFiles) -> Iterator[FoundFile]:
    """The files of the newest checkpoint, which are published before all others."""
    for path in filter(None, (selected.newest, selected.record)):
        if path.is_dir():
            yield from files_below(path, source, skip=skipped.add)
        else:
            yield FoundFile(os.path.realpath(path), _name(path, source), path.stat().st_size)


def _other_files(
    config: PublishConfig,
    source: Path,
    left_out: Collection[Path],
    skipped: UnpublishedFiles,
    beyond: UnpublishedFiles,
) -> Iterator[FoundFile]:
    """The files of the run's folder, and those of the working folders up to their limit."""
    keeps_working_folders = bool(working_folders.known_nodes(source))
    working = (source / working_folders.NAME,) if keeps_working_folders else ()
    yield from files_below(source, source, skip=skipped.add, left_out=(*left_out, *working))
    kept, left = within_limit(source, config.kept_gib << 30, left_out=left_out, skipped=skipped)
    for file in left:
        beyond.add(Unpublishable(file.name, f"the files of the working folder exceed {config.kept_gib} GiB", file.size))
    yield from kept


def _name(file: Path, source: Path) -> str:
    return file.relative_to(source).as_posix()


if __name__ == "__main__":
    sys.exit(program.run(main, sys.argv[1:], os.environ))
