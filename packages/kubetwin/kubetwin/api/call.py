"""One request, read completely, and the resource that its path names."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.datastructures import Headers, QueryParams

from kubetwin.api.requests import RequestInfo
from kubetwin.authentication import User
from kubetwin.resources.resource import Resource


@dataclass(frozen=True)
class Call:
    """The arguments of a verb."""

    info: RequestInfo
    resource: Resource
    query: QueryParams
    headers: Headers
    body: bytes
    user: User

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").split(";")[0].strip().lower()

    @property
    def dry_run(self) -> bool:
        return bool(self.query.getlist("dryRun"))

    @property
    def field_validation(self) -> str:
        return self.query.get("fieldValidation") or "Warn"

    @property
    def user_agent(self) -> str:
        """The first word of the client's name, which manages fields where no manager is named."""
        return self.headers.get("user-agent", "").partition("/")[0] or "unknown"

    @property
    def manager(self) -> str:
        """The owner of the fields that an ordinary write sets."""
        return self.field_manager or self.user_agent

    @property
    def field_manager(self) -> str:
        return self.query.get("fieldManager", "")
