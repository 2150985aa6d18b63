"""Downloads every object below a prefix to a file, several at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainer.staging.completed_files import CompletedFiles, Entry
from trainer.staging.source import RemoteFile
from trainer.staging.transfer import Transfer, ranges_of
from trainer.staging.writer import Writer


def download(
    files: Sequence[RemoteFile],
    transfer: Transfer,
    writer: Writer,
    completed: CompletedFiles,
    *,
    arrived: Callable[[bytes], None],
) -> None:
    """Download the objects that an earlier attempt did not complete.

    Args:
        files: The objects below the prefix.
        transfer: Reads the objects.
        writer: Writes the files.
        completed: Which of them an earlier attempt completed.
        arrived: Called with all bytes that are read.

    Raises:
        DatasetInvalid: If an object is not as the manifest says, or two of them cannot be files in one folder.
        DatasetNotFound: If an object was replaced meanwhile.
        StorageFailed: If network or file system fail.
    """
    missing = [file for file in files if not completed.take(file.name, file.size)]
    answers = transfer.fetch(asked for file in missing for asked in ranges_of(file))
    for file in missing:
        with writer.file(Entry(file.name, file.size, None)) as target:
            written = 0
            while written < file.size:
                asked, chunks = next(answers)
                for chunk in chunks:
                    arrived(chunk)
                    target.write(memoryview(chunk))
                written += asked.length
