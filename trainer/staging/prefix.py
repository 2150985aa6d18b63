"""Downloads every object below a prefix to a file, several at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from trainer.staging.completed_files import CompletedFiles, Entry
from trainer.staging.source import RemoteFile
from trainer.staging.stored_checksum import StoredChecksum, Verification
from trainer.staging.transfer import Transfer, cut_ranges
from trainer.staging.writer import Writer

QUESTIONS_IN_FLIGHT = 8
"""Concurrent requests for the checksums of objects. Each takes some 30 ms; boto3 keeps ten connections."""


def download(
    files: Sequence[RemoteFile],
    transfer: Transfer,
    writer: Writer,
    completed: CompletedFiles,
    *,
    arrived: Callable[[bytes], None],
    stored: Callable[[RemoteFile], StoredChecksum | None],
) -> bool:
    """Download the objects that an earlier attempt did not complete.

    Args:
        files: The objects below the prefix.
        transfer: Reads the objects.
        writer: Writes the files.
        completed: Which of them an earlier attempt completed.
        arrived: Called with all bytes that are read.
        stored: The checksum that S3 keeps of an object.

    Returns:
        Whether every object was compared with such a checksum.

    Raises:
        DatasetInvalid: If an object is not as the manifest or S3's checksum says, or two of them cannot be files in one
            folder.
        DatasetNotFound: If an object was replaced meanwhile.
        StorageFailed: If network or file system fail.
    """
    missing = [file for file in files if not completed.take(file.name, file.size)]
    answers = transfer.fetch(asked for file in missing for asked in cut_ranges(file))
    verified = True
    with ThreadPoolExecutor(QUESTIONS_IN_FLIGHT) as pool:
        try:
            for file, checksum in zip(missing, pool.map(stored, missing), strict=True):
                verification = Verification(checksum) if checksum is not None else None
                verified = verified and verification is not None
                with writer.file(Entry(file.name, file.size, None)) as target:
                    written = 0
                    while written < file.size:
                        _asked, chunks = next(answers)
                        for chunk in chunks:
                            arrived(chunk)
                            if verification is not None:
                                verification.update(written, chunk)
                            target.write(memoryview(chunk))
                            written += len(chunk)
                    if verification is not None:
                        verification.require(file.url)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return verified
