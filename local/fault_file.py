"""The file of faults of `trainflow run --local --faults FILE`: which faults a run is to meet, and when.

Everything in it is one of the faults that plans of tests inject: the file adds none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Self

from kubetwin.troubles import Trouble
from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from local.aws.faults import NAMES_OF_FAULTS, Fault
from local.aws.throttling import CODES
from trainflow.client.place import PlaceUnavailable
from trainflow.deployment.functions import FUNCTIONS
from trainflow.errors import InvalidRunSpec
from trainflow.failures.error_table import error_table
from trainflow.spec.document import decode
from trainflow.spec.section import Section
from trainflow.spec.sentences import sentences, shortened
from trainflow.state_machines import NAMES, definition

NODE_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "s3": ("AbortMultipartUpload", "DeleteObject", "GetObject", "HeadBucket", "ListBucket", "PutObject"),
    "dynamodb": ("DeleteItem", "GetItem", "PutItem", "Query", "Scan", "UpdateItem"),
}
"""Operations that functions and pods may use, as IAM names them, by service."""

Count = Annotated[int, Field(ge=1, le=1_000_000)]
Seconds = Annotated[float, Field(ge=0, le=1_000_000)]


class Moment(Section):
    """The calls of functions that a fault begins or happens with. Calls that are tried again are further calls."""

    state: str | None = None
    """Task state whose calls are meant."""
    function: str | None = None
    """Function whose calls are meant, from whatever state, queue, rule or schedule; in place of `state`."""
    call: Count = 1
    """The first one is 1."""
    after_seconds: Seconds = 0
    """Calls before this time are not counted. It is the workflow's time since the run's start: `--time-scale` shortens
    it as it shortens waits."""

    @field_validator("state")
    @classmethod
    def _known_state(cls, name: str | None) -> str | None:
        return _require_known(name, functions_of_states(), "a Task state that calls a function")

    @field_validator("function")
    @classmethod
    def _known_function(cls, name: str | None) -> str | None:
        return _require_known(name, {function.name: "" for function in FUNCTIONS}, "a function of trainflow")

    @model_validator(mode="after")
    def _one_subject(self) -> Self:
        if self.state is not None and self.function is not None:
            raise ValueError("give either a state or a function, not both")
        return self

    @property
    def at(self) -> str:
        """The moment in words."""
        return f"{_numbers('call', self.call, self.number)} of {self.state or self.function or 'any function'}" + (
            f" after {self.after_seconds:g} s" if self.after_seconds else ""
        )

    @property
    def number(self) -> int:
        """Number of calls that are concerned."""
        return 1


class FunctionFault(Moment):
    """Calls of a function that fail."""

    error: str = "Runtime.ExitError"
    """Name of the error in Step Functions: one of Lambda's, such as `Sandbox.Timedout` for a time-out, or one of
    `trainflow/failures/errors.toml`."""
    after_acting: bool = False
    """Whether the function does its work first; its answer is lost."""
    calls: Count = 1
    """Number of calls that fail, beginning with `call`."""

    @field_validator("error")
    @classmethod
    def _known_error(cls, name: str) -> str:
        known = {**dict.fromkeys(NAMES_OF_FAULTS, ""), **dict.fromkeys(error_table(), "")}
        return _require_known(name, known, "an error of Lambda or of trainflow/failures/errors.toml") or name

    @model_validator(mode="after")
    def _a_subject(self) -> Self:
        if self.state is None and self.function is None:
            raise ValueError("a fault of a function needs a state or a function; add one")
        return self

    @property
    def number(self) -> int:
        """Number of calls that fail."""
        return self.calls

    @property
    def fault(self) -> Fault:
        """The fault of one call."""
        return Fault(error=self.error, after_acting=self.after_acting)

    def __str__(self) -> str:
        when = "after" if self.after_acting else "before"
        return f"{self.at} {'fail' if self.calls > 1 else 'fails'} with {self.error}, {when} the function has acted"


class Throttling(Section):
    """Requests to S3 or DynamoDB that are throttled, whoever makes them."""

    service: Literal["s3", "dynamodb"]
    operation: str | None = None
    """As IAM names it, such as GetObject or UpdateItem. None: all operations of the service."""
    error: str | None = None
    """Code of the answer. None: `SlowDown` of S3, `ProvisionedThroughputExceededException` of DynamoDB."""
    request: Count = 1
    """First request that is throttled; the first one is 1. Requests that are tried again are further requests."""
    requests: Count = 1
    """Number of requests that are throttled, beginning with `request`."""
    after_seconds: Seconds = 0
    """Requests before this time are not counted; see `Moment`."""

    @field_validator("operation", "error")
    @classmethod
    def _require_operation_of_service(cls, name: str | None, field: ValidationInfo) -> str | None:
        service = field.data.get("service")
        if service is None or field.field_name is None:  # the service is at fault
            return name
        known = {"operation": OPERATIONS, "error": CODES}[field.field_name][service]
        return _require_known(name, dict.fromkeys(known, ""), f"one of {', '.join(known)}")

    @property
    def code(self) -> str:
        """Code of the answer."""
        return self.error or CODES[self.service][0]

    def __str__(self) -> str:
        which = _numbers("request", self.request, self.requests)
        after = f" after {self.after_seconds:g} s" if self.after_seconds else ""
        verb = "are" if self.requests > 1 else "is"
        what = f"{self.service}:{self.operation or '*'}"
        return f"{which} of {what}{after} {verb} throttled with {self.code}"


class Outage(Moment):
    """An outage of the Kubernetes API on the functions' way to it. It begins with a call, that of any function unless a
    state or a function is named."""

    trouble: Trouble
    """Kind of failure; `other-authority` is a certificate that another authority has signed."""
    lasts_seconds: Annotated[float, Field(gt=0, le=1_000_000)] = 600
    """Its length in the workflow's time, as `after_seconds`."""

    def __str__(self) -> str:
        return f"the Kubernetes API fails ({self.trouble}) for {self.lasts_seconds:g} s from {self.at} on"


class LostNode(Moment):
    """A node whose instance has ended: the cluster takes it out of service, and its pods are gone. It happens with a
    call, that of any function unless a state or a function is named, and later if the node is not there yet."""

    node: Annotated[str, Field(pattern=NODE_NAME)]
    """Its name, as `trainflow status` shows it: the instance type with dashes and a number from 0 on, such as
    trn1-32xlarge-0."""

    def __str__(self) -> str:
        return f"node {self.node} is lost at {self.at}"


# Decision 69: a file lists the faults, so that anyone can repeat a run with them.
class Faults(Section):
    """The faults of a run. Every entry happens once."""

    version: Literal[1]
    functions: tuple[FunctionFault, ...] = ()
    throttling: tuple[Throttling, ...] = ()
    kubernetes_api: tuple[Outage, ...] = ()
    nodes: tuple[LostNode, ...] = ()


IN_WORDS = {NODE_NAME: "must be the name of a node: lower-case letters, digits, dashes and dots"}


def read_faults(path: Path) -> Faults:
    """The faults in a file.

    Raises:
        PlaceUnavailable: If it cannot be read or describes none; the message names the file and every field at fault.
    """
    try:
        document = decode(path.read_bytes(), is_json=path.suffix == ".json")
        if not isinstance(document, dict):
            raise InvalidRunSpec("must be a mapping with 'version' and lists such as 'functions'.")
        return Faults.model_validate(document)
    except OSError as error:
        reason = f"cannot be read ({error.strerror}); give the path of a file of faults."
    except InvalidRunSpec as error:
        reason = str(error)
    except ValidationError as invalid:
        reason = " ".join(sentences(invalid, model=Faults, whole="file of faults", in_words=IN_WORDS))
    raise PlaceUnavailable(f"--faults {path}: {reason}")


@cache
def functions_of_states() -> Mapping[str, str]:
    """Names of the functions that Task states call, by the states' names."""
    return {
        name: state["Parameters"]["FunctionName"].strip("${}")
        for text in NAMES
        for name, state in definition(text)["States"].items()
        if state["Type"] == "Task" and "lambda" in state["Resource"]
    }


def _numbers(noun: str, first: int, how_many: int) -> str:
    return f"{noun} {first}" if how_many == 1 else f"{noun}s {first} to {first + how_many - 1}"


def _require_known(name: str | None, known: Mapping[str, str], what: str) -> str | None:
    if name is not None and name not in known:
        import difflib

        near = difflib.get_close_matches(name, known, n=1)
        meant = f"; did you mean '{near[0]}'?" if near else ""
        raise ValueError(f"must be {what}, got {shortened(repr(name))}{meant}")
    return name
