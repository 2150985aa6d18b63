"""An AWS account whose every answer is given by hand, and checked against botocore's description of the service.

For the calls that moto does not know. Requests are validated by botocore as always; nothing goes over a network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError
from botocore.validate import ParamValidator

from trainflow.cli.account.aws import Account

Given = Mapping[str, Any] | Callable[[Mapping[str, Any]], Mapping[str, Any]] | Exception
"""An answer, what makes one of the request's parameters, or what is raised."""


class GivenAccount(Account):
    """Answers by `service.Operation`; what is not given is denied, as AWS denies by default."""

    def __init__(self, answers: Mapping[str, Given] | None = None, *, region: str = "us-west-2") -> None:
        super().__init__(region=region)
        self.answers = dict(answers or {})

    def client(self, service: str) -> Any:
        """A client that sends nothing."""
        new = service not in self._clients
        client = super().client(service)
        if new:
            client.meta.events.register("provide-client-params.*.*", self._remember)
            client.meta.events.register("before-call.*.*", lambda **call: self._answer(service, **call))
        return client

    def _remember(self, params: Mapping[str, Any], context: dict[str, Any], **_: Any) -> None:
        context["given"] = params

    def _answer(self, service: str, *, model: Any, context: Mapping[str, Any], **_: Any) -> tuple[Any, dict[str, Any]]:
        given = self.answers.get(f"{service}.{model.name}", refusal("AccessDeniedException"))
        if callable(given):
            given = given(context["given"])
        if isinstance(given, ClientError):
            error = {**given.response, "ResponseMetadata": {"HTTPStatusCode": 400}}
            return SimpleNamespace(status_code=400), error
        if isinstance(given, Exception):
            raise given
        report = ParamValidator().validate(given, model.output_shape)
        assert not report.has_errors(), f"{service}.{model.name}: {report.generate_report()}"
        return SimpleNamespace(status_code=200), {**given, "ResponseMetadata": {}}


def refusal(code: str, message: str = "No.") -> ClientError:
    """What AWS answers instead."""
    return ClientError({"Error": {"Code": code, "Message": message}}, "Operation")
