"""The ASGI application: authentication, authorization, and dispatch to the verbs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from kubetwin.api.authorization import Authorizer
from kubetwin.api.call import Call
from kubetwin.api.discovery import AGGREGATED, VERSION, Discovery
from kubetwin.api.impersonation import acting_user
from kubetwin.api.logs import LogProxy
from kubetwin.api.negotiation import encode, error_response, negotiate, page_not_found, respond
from kubetwin.api.openapi import EMPTY_V2, V2_MEDIA_TYPE, OpenApi
from kubetwin.api.reading import Reader
from kubetwin.api.request_metrics import RequestMetrics
from kubetwin.api.requests import RequestInfo, parse_request
from kubetwin.api.reviews import Reviews, review_of
from kubetwin.api.scale import Scales
from kubetwin.api.streams import KINDS as STREAMS
from kubetwin.api.streams import StreamProxy
from kubetwin.api.subresources import Subresources
from kubetwin.api.writing import Writer
from kubetwin.authentication import ANONYMOUS, Identify, User, bearer_token
from kubetwin.model import errors
from kubetwin.model.errors import ApiError, PageNotFound
from kubetwin.resources.resource import Resource
from kubetwin.state.cluster import Cluster

_HEALTH = ("/healthz", "/livez", "/readyz")
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
MAX_BODY_BYTES = 3 * 1024 * 1024  # kube-apiserver's limit
PIECE_BYTES = 256 * 1024
_VIEWS = ("", "status")
"""Subresources for the ordinary verbs."""


class Application:
    """Answers HTTP requests."""

    def __init__(
        self,
        cluster: Cluster,
        identify: Identify,
        discovery: Discovery,
        logs: LogProxy,
        streams: StreamProxy,
        subresources: Subresources,
    ) -> None:
        self.cluster = cluster
        self.identify = identify
        self.discovery = discovery
        self.logs, self.streams = logs, streams
        self.subresources = subresources
        self.authorizer = Authorizer(cluster.store)
        self.reader, self.writer = Reader(cluster), Writer(cluster)
        self.reviews = Reviews(cluster.registry, self.authorizer, identify)
        self.scales = Scales(cluster)
        self.openapi = OpenApi(cluster.registry)
        self.request_metrics = RequestMetrics()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._stream(WebSocket(scope, receive, send))
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            response = await self._respond(request)
        except ApiError as error:
            response = error_response(error)
        except PageNotFound:
            response = page_not_found()
        await response(scope, receive, in_pieces(send))

    async def _stream(self, client: WebSocket) -> None:
        """A request that asks to become a WebSocket: a command in a pod, or its ports."""
        try:
            await self.streams.serve(await self._stream_call(client), client)
        except ApiError as error:
            await client.send_denial_response(error_response(error))
        except PageNotFound:
            await client.send_denial_response(page_not_found())

    async def _stream_call(self, client: WebSocket) -> Call:
        user = acting_user(await self._user(client.headers), client.headers, self.authorizer)
        info = parse_request("GET", client.url.path, client.query_params)
        self.request_metrics.count(info)
        self.authorizer.check(user, info)
        if info.resource != "pods" or info.group or info.subresource not in STREAMS:
            raise errors.bad_request("only pods/exec, pods/attach and pods/portforward are WebSockets here")
        # A handshake is a GET, and what follows is no reading: both verbs are needed (since Kubernetes 1.35).
        self.authorizer.check(user, replace(info, verb="create"))
        return Call(info, self._resource(info), client.query_params, client.headers, b"", user)

    async def _respond(self, request: Request) -> Response:
        user = acting_user(await self._user(request.headers), request.headers, self.authorizer)
        info = parse_request(request.method, request.url.path, request.query_params)
        self.request_metrics.count(info)
        self.authorizer.check(user, info)
        if not info.is_resource:
            return self._document(request, info)
        resource = self._resource(info)
        if not resource.namespaced:
            info = replace(info, namespace="")  # of a namespace's own path, authorization alone sees it as its own
        body = await _body(request)
        call = Call(info, resource, request.query_params, request.headers, body, user)
        return await self._dispatch(call, request.method)

    async def _user(self, headers: Headers) -> User:
        token = bearer_token(headers.get("authorization", ""))
        if token is None:
            return ANONYMOUS
        user = await self.identify(token)
        if user is None:
            raise errors.unauthorized()
        return user

    def _resource(self, info: RequestInfo) -> Resource:
        found = self.cluster.registry.find(info.group, info.version, info.resource) or review_of(info)
        if found is not None:
            return found
        if info.group and not self.discovery.is_built_in(info.group):
            raise PageNotFound
        raise errors.no_such_resource()

    async def _dispatch(self, call: Call, method: str) -> Response:
        info = call.info
        if review_of(info) is not None:
            if info.verb != "create":
                raise errors.method_not_allowed()
            return await self.reviews.create(call)
        if call.resource.key == "pods" and info.subresource in STREAMS:
            self.streams.refuse(call)
        if call.resource.refusal and info.verb in ("create", "update", "patch"):
            raise ApiError(405, "MethodNotAllowed", call.resource.refusal, {})
        if info.subresource and all(sub.name != info.subresource for sub in call.resource.subresources):
            raise errors.no_such_resource()
        if info.subresource == "log":
            if method != "GET":
                raise errors.method_not_allowed()
            return await self.logs.get(call)
        if info.subresource == "scale":
            return self.scales.answer(call, method)
        if info.subresource not in _VIEWS:
            if method not in ("POST", "PUT"):
                raise errors.method_not_allowed()
            return self.subresources.act(call)
        self._check_method(call, method)
        answer = self._verbs()[info.verb](call)
        return answer if isinstance(answer, Response) else await answer

    def _check_method(self, call: Call, method: str) -> None:
        """Objects are not POSTed and collections not PUT; a collection of a namespaced kind needs its namespace."""
        named, info = bool(call.info.name), call.info
        wrong = (method == "POST" and named) or (method in ("PUT", "PATCH") and not named) or method not in _METHODS
        homeless = call.resource.namespaced and not info.namespace and info.verb not in ("list", "watch")
        unsupported = info.verb not in call.resource.verbs or (info.subresource == "status" and method == "DELETE")
        if wrong or homeless or unsupported:
            raise errors.method_not_allowed()

    def _verbs(self) -> dict[str, Callable[[Call], Response | Awaitable[Response]]]:
        return {
            "get": self.reader.get,
            "list": self.reader.list,
            "watch": self.reader.watch,
            "create": self.writer.create,
            "update": self.writer.update,
            "patch": self.writer.patch,
            "delete": self.writer.delete,
            "deletecollection": self.writer.delete_collection,
        }

    def _document(self, request: Request, info: RequestInfo) -> Response:
        path = info.path.rstrip("/") or "/"
        known = path in ("/", "/version", "/metrics", "/api", "/apis", *_HEALTH)
        parts = path.split("/")[1:]
        if not known and parts[0] not in ("api", "apis", "openapi"):
            raise PageNotFound
        if request.method not in ("GET", "HEAD"):
            raise errors.method_not_allowed()
        if path in _HEALTH:
            return _health(path[1:], verbose="verbose" in request.query_params)
        if path == "/version":
            return respond(VERSION)
        if path == "/metrics":
            return Response(self.request_metrics.text(), media_type="text/plain")
        if parts[0] == "openapi":
            return self._openapi(path)
        if path == "/":
            return respond({"paths": ["/api", "/api/v1", "/apis", *_HEALTH, "/metrics", "/version"]})
        return self._discovery(request, parts)

    def _openapi(self, path: str) -> Response:
        if path == "/openapi/v3":
            return Response(encode(self.openapi.index()), media_type="text/plain")
        if path == "/openapi/v2":
            return Response(EMPTY_V2, media_type=V2_MEDIA_TYPE)
        document = self.openapi.document(path.removeprefix("/openapi/v3/"))
        if document is None:
            raise PageNotFound
        return Response(document, media_type="application/json")

    def _discovery(self, request: Request, parts: list[str]) -> Response:
        wanted = negotiate(request.headers.get("accept", ""), (AGGREGATED, "Table"))
        if len(parts) == 1 and wanted.as_kind == AGGREGATED:
            response = respond(self.discovery.aggregated(core=parts[0] == "api"))
            response.headers["content-type"] = f"application/json;g={wanted.group};v={wanted.version};as={AGGREGATED}"
            return response
        if parts == ["api"]:
            return respond(self.discovery.core_versions())
        if parts == ["apis"]:
            return respond(self.discovery.groups())
        if parts[0] == "apis" and not self.discovery.has_group(parts[1]):
            raise PageNotFound
        if parts[0] == "apis" and len(parts) == 2:
            return respond(self.discovery.group(parts[1]))
        group, version = ("", parts[1]) if parts[0] == "api" else (parts[1], parts[2])
        found = self.discovery.resources(group, version)
        if found is None:
            raise errors.no_such_resource()
        return respond(found)


def in_pieces(send: Send) -> Send:
    """Send long bodies piece by piece: what a connection encrypts at once, it keeps room for until it is closed."""

    async def send_pieces(message: Message) -> None:
        body = message.get("body", b"")
        last = max(len(body) - 1, 0) // PIECE_BYTES * PIECE_BYTES
        for start in range(0, last, PIECE_BYTES):
            await send({**message, "body": body[start : start + PIECE_BYTES], "more_body": True})
        await send({**message, "body": body[last:]} if last else message)

    return send_pieces


async def _body(request: Request) -> bytes:
    """The body, as long as it is not longer than etcd would take."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            message = f"Request entity too large: limit is {MAX_BODY_BYTES}"
            raise ApiError(413, "RequestEntityTooLarge", message, {})
        parts.append(part)
    return b"".join(parts)


def _health(check: str, *, verbose: bool) -> Response:
    text = f"[+]ping ok\n[+]controllers ok\n{check} check passed\n" if verbose else "ok"
    return Response(text, media_type="text/plain")
