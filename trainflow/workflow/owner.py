"""Owner of a run: who started it, as a field beside the run spec in the input of its execution.

The client and the function StartRun add the field, and a run spec that holds it is refused, so the owner never comes
from a spec. Everyone who may start executions may write another one: docs/decisions/0108-owners-of-runs.md.
"""

# Dataclasses, since the status of an ended run needs no more.

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, ClassVar

from trainflow.errors import InvalidRunSpec

FIELD = "started_by"
"""Name of the field in the input of an execution. The rest of the input is the run spec."""


class OwnerKind(StrEnum):
    """Kinds of owners."""

    CALLER = "caller"
    """IAM identity that started it with the client."""
    SCHEDULE = "schedule"
    """Schedule of the configuration."""
    UPLOAD = "upload"
    """Account, or service of AWS, that uploaded its spec."""
    UNKNOWN = "unknown"


NAMES = {
    # STS API reference, GetCallerIdentity; IAM user guide, "IAM identifiers": paths hold any printable character.
    OwnerKind.CALLER: re.compile(r"arn:aws[-a-z]*:(iam|sts)::[0-9]{12}:(root|[a-z-]+/[!-~]{1,700})"),
    OwnerKind.SCHEDULE: re.compile(r"[a-z][-a-z0-9]{0,39}"),
    # S3 user guide, "EventBridge event message structure": "AWS account ID or AWS service principal of requester".
    OwnerKind.UPLOAD: re.compile(r"[0-9]{12}|[-.a-z0-9]{1,100}\.amazonaws\.com(\.cn)?"),
}
"""Pattern of the name for each kind that an input may hold."""


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Who started a run."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    kind: OwnerKind = OwnerKind.UNKNOWN
    name: str = ""
    """ARN of a caller, name of a schedule, account of an upload; empty if unknown."""

    @property
    def in_words(self) -> str:
        """The owner in full: `arn:aws:iam::123456789012:user/ana`, `schedule nightly`, `unknown`."""
        return self._in_words(self.name)

    @property
    def short(self) -> str:
        """The same for a column, without the account of an identity: `user/ana`."""
        return self._in_words(self.name.split(":", 5)[-1])

    def _in_words(self, name: str) -> str:
        match self.kind:
            case OwnerKind.CALLER:
                return name
            case OwnerKind.SCHEDULE:
                return f"schedule {name}"
            case OwnerKind.UPLOAD:
                return f"upload by account {name}" if name.isdigit() else f"upload by {name}"
        return "unknown"

    def added_to(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """The input of an execution: the run spec with this owner; the spec itself if the owner is unknown."""
        return dict(spec) if self == UNKNOWN else {**spec, FIELD: asdict(self)}


UNKNOWN = Owner()
"""Owner of runs that others than the client and StartRun have started."""


def valid_owner(kind: OwnerKind, name: str) -> Owner:
    """The owner of this kind and name; an unknown one if the name is not one of its kind."""
    return Owner(kind=kind, name=name) if kind in NAMES and NAMES[kind].fullmatch(name) else UNKNOWN


def spec_of_input(given: Any) -> Any:
    """The run spec of an execution's input, which may be anything."""
    return {name: value for name, value in given.items() if name != FIELD} if isinstance(given, dict) else given


def owner_of_input(given: Any) -> Owner:
    """The owner in an execution's input; unknown for an execution of the console or of an earlier version.

    Raises:
        InvalidRunSpec: If the field is malformed.
    """
    field = given.get(FIELD) if isinstance(given, dict) else None
    if field is None:
        return UNKNOWN
    if isinstance(field, dict) and field.keys() == {"kind", "name"}:
        kind, name = field["kind"], field["name"]
        owner = valid_owner(OwnerKind(kind), name) if kind in list(OwnerKind) and isinstance(name, str) else UNKNOWN
        if owner != UNKNOWN:
            return owner
    raise InvalidRunSpec(
        f"{FIELD}: must be as `trainflow run` writes it, with a kind and the name of a caller, schedule or upload; "
        "leave it out to start an execution yourself."
    )


def read_owner(document: Any) -> Owner:
    """The owner in a record or an execution's field; unknown for one of an earlier version, and for a malformed one."""
    try:
        return owner_of_input({FIELD: document})
    except InvalidRunSpec:
        return UNKNOWN
