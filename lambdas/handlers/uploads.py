"""Files beside uploaded run specs that give the reason why no run was started."""

from __future__ import annotations

from lambdas.gateways import objects
from lambdas.handlers.task import logger
from lambdas.logic.messages import refused_upload
from lambdas.logic.run_requests import Upload


def write_beside(upload: Upload, message: str) -> None:
    """Write beside the upload why it starts no run. A failure here must not keep the same message from being sent."""
    try:
        if is_newest(upload):
            text = refused_upload(message)
            objects.write(upload.bucket, upload.refusal_key, text, content_type="text/plain; charset=utf-8")
    except Exception:  # noqa: BLE001 (whatever it is, the message is sent)
        logger.exception("the reason could not be written beside the upload", extra={"request": upload.title})


def is_newest(upload: Upload) -> bool:
    """Whether the file is still the one that was uploaded: events come late and again, in any order.

    Without versions that is not known, and the file counts as the same unless it is gone.
    """
    found = objects.head(upload.bucket, upload.key)
    return found is not None and (upload.version_id is None or found.version_id in (None, upload.version_id))
