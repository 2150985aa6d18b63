"""Requests that moto 5.2.5 does not expect: it ends with an exception of Python, and its web server answers with a page
for browsers. AWS answers every request in the protocol of its service, so that clients get a typed error.

A resource that a request names and moto does not find is the error for it that the model of the operation lists, and a
token of another list is that for tokens. The rest is InternalFailure, and one record in the log. The patches replace
private functions of moto: check them when its version is raised.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote
from xml.parsers.expat import ExpatError

from botocore.model import OperationModel

from local.aws.access.signatures import signature_of
from local.aws.error_answers import NOT_OF_XML, Answer, error_answer, request_protocol
from local.aws.replacements import replace
from local.aws.request_forms import given_parameters
from local.aws.request_limits import operation_model

logger = logging.getLogger(__name__)

INTERNAL = {"rest-xml": "InternalError", "ec2": "InternalError"}
"""Codes of S3 and EC2; other services have InternalFailure (API references, 'Common errors')."""

INVALID = {"rest-xml": "InvalidRequest", "query": "ValidationError", "ec2": "InvalidParameterValue"}
NO_OPERATION = {"rest-xml": "MethodNotAllowed", "query": "InvalidAction", "ec2": "InvalidAction"}

MISSING = ("NotFound", "NoSuch", "DoesNotExist")
"""Parts of the names of errors about a missing resource."""

INVALID_PARAMETERS = ("InvalidParameter", "Validation")

TOKENS = ("nexttoken", "token", "marker")
"""Names of parameters that go on with a list."""

DEEPEST = 8
"""Levels of fields, since a value of DynamoDB holds others without end."""

PAGE = (b"<!doctype html", b"<html")


def install() -> None:
    """Answer what moto does not expect."""
    _missing_resources()
    _pages()


def _missing_resources() -> None:
    from moto.core.responses import BaseResponse, get_service_model

    answer = BaseResponse.call_action

    def call_action(self: Any) -> Any:
        try:
            return answer(self)
        except Exception as error:
            model = operation_model(self.boto3_service_name, str(self._get_action()))
            given = given_parameters(self) | dict(self.uri_match or {})
            found = explained(error, model, given) if model is not None else None
            if found is None:
                raise
            protocol = self.determine_response_protocol(get_service_model(self.boto3_service_name))
            _, headers, body = error_answer("json" if "json" in protocol else protocol, *found)
            return found[0], {**dict(headers), "status": str(found[0])}, body

    replace(BaseResponse, "call_action", call_action)


def explained(error: Exception, model: OperationModel, given: Mapping[str, Any]) -> tuple[int, str, str] | None:
    """Status, code and message for an exception that a missing resource or an unknown token has caused; else None.

    Args:
        error: The exception.
        model: The operation, with the errors that it may end with.
        given: Parameters of the request.
    """
    texts = {name: value for name, value in given.items() if isinstance(value, str)}
    if missing := next((name for name, value in texts.items() if _is_about(error, value)), None):
        listed = _listed(model, MISSING) or _listed(model, INVALID_PARAMETERS)
        if model.service_model.service_name == "ec2":  # whose model lists no errors
            listed = HTTPStatus.BAD_REQUEST, f"Invalid{missing.removesuffix('Id')}ID.NotFound"
        return (*listed, f"{unquote(texts[missing])} does not exist.") if listed is not None else None
    if isinstance(error, KeyError) and error.args and error.args[0] in _field_names(model.input_shape):
        refused = _listed(model, INVALID_PARAMETERS) or (HTTPStatus.BAD_REQUEST, "ValidationException")
        return (*refused, f"The parameter {error.args[0]} is required.")  # the model does not say so
    token = next((name for name, value in texts.items() if name.lower() in TOKENS and repr(value) in str(error)), None)
    if isinstance(error, ValueError) and token is not None:
        invalid = _listed(model, ("Token", "Pagination")) or _listed(model, INVALID_PARAMETERS)
        return (*(invalid or (400, "ValidationException")), f"Invalid parameter: {token}")
    return None


def _is_about(error: Exception, value: str) -> bool:
    """Whether an exception says that moto has not found a value: by its key, or in a sentence about it."""
    if isinstance(error, KeyError):
        return error.args == (value,)
    return type(error) is Exception and str(error).startswith(f"{value} is not a ")


def _field_names(shape: Any, depth: int = 0) -> frozenset[str]:
    """Names of all fields of a shape; those of shapes that hold themselves up to a depth."""
    if shape is None or depth > DEEPEST:
        return frozenset()
    if shape.type_name == "structure":
        return frozenset(shape.members).union(*(_field_names(each, depth + 1) for each in shape.members.values()))
    inner = {"list": "member", "map": "value"}.get(shape.type_name)
    return _field_names(getattr(shape, inner), depth + 1) if inner is not None else frozenset()


def _listed(model: OperationModel, parts: Iterable[str]) -> tuple[int, str] | None:
    """Status and code of the first error of an operation whose code has one of these parts."""
    for shape in model.error_shapes:
        error = shape.metadata.get("error", {})
        code = str(error.get("code") or shape.name)
        if any(part in code for part in parts):
            status = error.get("httpStatusCode") or shape.metadata.get("httpStatusCode")
            return int(status or HTTPStatus.BAD_REQUEST), code
    return None


def _pages() -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication

    answer = DomainDispatcherApplication.__call__

    def call(self: Any, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        begun: list[tuple[str, list[tuple[str, str]]]] = []
        try:
            found: Iterable[bytes] = answer(self, environ, lambda status, headers, *_: begun.append((status, headers)))
        except ExpatError:
            return _begin(malformed(environ), start_response)
        except Exception:
            logger.exception("%s %s was not expected", environ.get("REQUEST_METHOD"), environ.get("PATH_INFO"))
            return _begin(typed(environ, HTTPStatus.INTERNAL_SERVER_ERROR), start_response)
        status, headers = begun[-1]
        if int(status[:3]) < HTTPStatus.MULTIPLE_CHOICES:
            start_response(status, headers)
            return found
        body = b"".join(_closed(found))
        is_silent = not body and status[:3] in ("404", "405") and environ.get("REQUEST_METHOD") != "HEAD"
        if is_silent or body.lstrip()[:15].lower().startswith(PAGE):
            return _begin(typed(environ, HTTPStatus(int(status[:3]))), start_response)
        if body.lstrip().startswith(b"<"):  # an error names what was requested, whatever its characters
            body = NOT_OF_XML.sub("�", body.decode(errors="replace")).encode()
            headers = [each for each in headers if each[0].lower() != "content-length"]
            headers.append(("Content-Length", str(len(body))))
        start_response(status, headers)
        return [body]

    replace(DomainDispatcherApplication, "__call__", call)


def _closed(found: Any) -> Iterator[bytes]:
    try:
        yield from found
    finally:
        if hasattr(found, "close"):
            found.close()


def _begin(answer: Answer, start_response: Any) -> list[bytes]:
    status, headers, body = answer
    start_response(status, headers)
    return [body.encode()]


def typed(environ: dict[str, Any], status: HTTPStatus) -> Answer:
    """The answer in place of a page or of nothing; redirections to another path are for browsers, too.

    Args:
        environ: The request, as WSGI describes it.
        status: Status of what moto answers.
    """
    protocol, method = _protocol(environ), environ.get("REQUEST_METHOD")
    place = f"{method} {environ.get('PATH_INFO')}"
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        code, said = INTERNAL.get(protocol, "InternalFailure"), "The request was not expected; the twin's log has why."
        return error_answer(protocol, HTTPStatus.INTERNAL_SERVER_ERROR, code, said)
    if protocol == "rest-xml" and method == "PUT" and status == HTTPStatus.NOT_FOUND:
        return malformed(environ)  # a document without what it has to hold
    if status < HTTPStatus.BAD_REQUEST or status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
        code = NO_OPERATION.get(protocol, "UnknownOperationException")
        missing = HTTPStatus.METHOD_NOT_ALLOWED if protocol == "rest-xml" else HTTPStatus.NOT_FOUND
        return error_answer(protocol, missing, code, f"There is no operation for {place}.")
    return error_answer(protocol, status, INVALID.get(protocol, "ValidationException"), f"{place} cannot be read.")


def malformed(environ: dict[str, Any]) -> Answer:
    """The answer to a document that cannot be read (S3 API reference, 'Error responses')."""
    if _protocol(environ) != "rest-xml":
        return typed(environ, HTTPStatus.BAD_REQUEST)
    said = "The XML you provided was not well-formed or did not validate against our published schema"
    return error_answer("rest-xml", HTTPStatus.BAD_REQUEST, "MalformedXML", said)


def _protocol(environ: dict[str, Any]) -> str:
    signature = signature_of(environ)
    return request_protocol(environ, signature.service if signature else "")
