"""Content negotiation: media types of the `Accept` header, and answers in these types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from starlette.responses import Response

from kubetwin.model import errors
from kubetwin.model.errors import ApiError

REPRESENTATIONS = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")


@dataclass(frozen=True)
class Wanted:
    """The representation to answer in: a media type and, for `as=Table` and the like, another kind."""

    media_type: str = "application/json"
    as_kind: str = ""
    group: str = ""
    version: str = ""


def negotiate(accept: str, kinds: tuple[str, ...] = (), *, offered: tuple[str, ...] = REPRESENTATIONS) -> Wanted:
    """The first media type in `Accept` that the server offers.

    Args:
        accept: The header; empty takes JSON.
        kinds: Values that `as=` may have here.
        offered: The media types that the 406 lists.

    Raises:
        ApiError: 406.
    """
    for clause in (accept or "*/*").split(","):
        media_type, *parameters = (part.strip() for part in clause.split(";"))
        values = dict(p.split("=", 1) for p in parameters if "=" in p)
        if values.get("as") and values["as"] not in kinds:
            continue
        if media_type in ("*/*", "application/*", "application/json"):
            return Wanted("application/json", values.get("as", ""), values.get("g", ""), values.get("v", ""))
        if media_type == "application/yaml":
            return Wanted("application/yaml")
        if media_type in offered and not media_type.endswith("protobuf"):
            return Wanted(media_type)
    raise errors.not_acceptable(offered)


def encode(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def respond(
    body: Any, status: int = 200, wanted: Wanted | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer in the requested representation."""
    if wanted is not None and wanted.media_type == "application/yaml":
        text = yaml.safe_dump(body, sort_keys=True, default_flow_style=False)
        return Response(text, status, media_type="application/yaml", headers=dict(headers or {}))
    return Response(encode(body) + b"\n", status, media_type="application/json", headers=dict(headers or {}))


def error_response(error: ApiError) -> Response:
    return respond(error.body(), error.code, headers=error.headers)


def page_not_found() -> Response:
    return Response("404 page not found\n", 404, media_type="text/plain")


def warnings(texts: list[str]) -> dict[str, str]:
    """The `Warning` header (RFC 7234) for texts that do not make a request fail."""
    escaped = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return {"Warning": ", ".join(f'299 - "{text}"' for text in escaped)} if texts else {}
