"""Conversion of a message in the queue of run requests to the execution that it asks for."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import AwareDatetime, BaseModel, Field, JsonValue, ValidationError

from trainflow.deployment.overlap import Overlap
from trainflow.errors import InvalidRunSpec, RunRequestInvalid
from trainflow.spec.code import unpacked_reason
from trainflow.spec.document import canonical, decode
from trainflow.spec.run_spec import spec_from_document
from trainflow.workflow.leftovers import Execution as KnownExecution
from trainflow.workflow.owner import Owner, OwnerKind, valid_owner

SUFFIXES = (".yaml", ".yml", ".json")

REQUESTS = "requests"
"""Source of messages that are about a request and no run."""

REFUSED = ".refused.txt"
"""Added to the key of an upload that was refused."""


@dataclass(frozen=True, kw_only=True)
class Execution:
    """An execution to start."""

    name: str
    """`<spec name>-<12 hex>`: a repeated request finds the existing run."""
    document: str
    """Its input in JSON: the spec as it was sent, and who sent it; the workflow fills in defaults."""


class Upload(BaseModel):
    """A run spec that was uploaded to the data bucket."""

    bucket: str
    key: str
    version_id: str | None
    uploaded_at: datetime | None = None
    """Time of the event, in whole seconds; None if the event lacks it."""
    requester: str = ""
    """Account, or service of AWS, that uploaded it; empty if the event lacks it. The event names no user or role."""

    @property
    def owner(self) -> Owner:
        """Owner of its run."""
        return valid_owner(OwnerKind.UPLOAD, self.requester)

    @property
    def title(self) -> str:
        """Name of the request in messages to people."""
        return self.key

    @property
    def refusal_key(self) -> str:
        """Key of the object that says why it was refused; its ending requests no run."""
        return f"{self.key}{REFUSED}"


class Scheduled(BaseModel):
    """A run that the configuration asks for at fixed times."""

    schedule: str
    scheduled_at: str
    spec: JsonValue
    overlap: Overlap = "allow"
    """Behaviour while the schedule's previous run is active."""

    @property
    def owner(self) -> Owner:
        """Owner of its runs."""
        return valid_owner(OwnerKind.SCHEDULE, self.schedule)

    @property
    def title(self) -> str:
        """Name of the request in messages to people."""
        return f"schedule {self.schedule}"


Request = Upload | Scheduled


class _Bucket(BaseModel):
    name: str


class _Object(BaseModel):
    key: str
    version_id: str | None = Field(default=None, alias="version-id")


class _Detail(BaseModel):
    bucket: _Bucket
    object: _Object
    requester: str = ""


class _ObjectCreated(BaseModel):
    """S3's event as EventBridge delivers it; unlike in S3's own notifications, keys are not URL-encoded."""

    detail: _Detail
    time: AwareDatetime | None = None


def parse_request(body: str) -> Request:
    """The request that a message contains.

    Raises:
        RunRequestInvalid: If it is neither an upload of a file that may be a run spec nor of a schedule.
    """
    try:
        return Scheduled.model_validate_json(body)
    except ValidationError:
        pass
    try:
        created = _ObjectCreated.model_validate_json(body)
    except ValidationError:
        raise RunRequestInvalid("A message is neither S3's event of an upload nor one of a schedule's.") from None
    event = created.detail
    if not event.object.key.endswith(SUFFIXES):
        raise RunRequestInvalid(f"{event.object.key} was uploaded, whose name does not end as a run spec's does.")
    return Upload(
        bucket=event.bucket.name,
        key=event.object.key,
        version_id=event.object.version_id,
        uploaded_at=created.time,
        requester=event.requester,
    )


def request_identity(request: Request) -> str:
    """Identity of a request, which it shares only with its repetitions; of bounded length.

    A version of an object is one request, also if S3 or EventBridge sends its event twice. In a bucket without versions
    the time of the event identifies it.
    """
    match request:
        case Upload():
            named = [request.bucket, request.key, request.version_id or str(request.uploaded_at)]
        case Scheduled():
            named = [request.schedule, request.scheduled_at]
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()


def refusal_notice(identity: str) -> str:
    """Name of the message that a request was refused, in the run table."""
    return f"refused {identity}"


def is_answered_by(upload: Upload, run: KnownExecution) -> bool:
    """Whether an upload needs no answer although it starts no run: its run goes on, or went on when it was made.

    Events are delivered more than once, and may come late: the one that has started a run may come again after its end.
    Their times are whole seconds, so an upload in the second of the end counts as one after it.

    Args:
        upload: The upload of a spec.
        run: The execution of exactly this spec.
    """
    if run.ended_at is None:
        return True
    return upload.uploaded_at is not None and upload.uploaded_at < run.ended_at.replace(microsecond=0)


def execution_of_upload(upload: Upload, content: bytes | None) -> Execution:
    """The run of an uploaded file; every upload of the same spec is the same run.

    Args:
        upload: The uploaded file.
        content: Content of the file; None if it could not be read.

    Raises:
        RunRequestInvalid: If the file could not be read.
        InvalidRunSpec: If it holds no spec that can be run.
    """
    if content is None:
        raise RunRequestInvalid(f"s3://{upload.bucket}/{upload.key} is gone, or Trainflow may not read it.")
    document = decode(content, is_json=upload.key.endswith(".json"))
    return _execution(document, identity=document, owner=upload.owner)


def execution_of_schedule(request: Scheduled) -> Execution:
    """The run of a schedule: one for each scheduled time.

    Raises:
        InvalidRunSpec: If the schedule holds no spec that can be run.
    """
    identity = {"scheduled_at": request.scheduled_at, "spec": request.spec}
    return _execution(request.spec, identity=identity, owner=request.owner)


def _execution(document: Any, *, identity: Any, owner: Owner) -> Execution:
    spec = spec_from_document(document)
    text = canonical(owner.added_to(document))
    if reason := unpacked_reason(spec.workload.code):
        raise InvalidRunSpec(reason)
    digest = hashlib.sha256(canonical(identity).encode()).hexdigest()[:12]
    return Execution(name=f"{spec.name}-{digest}", document=text)
