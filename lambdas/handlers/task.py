"""Decorator of every Task handler: adds the run's id to each log line, traces the call and parses the input."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from aws_lambda_powertools import Logger, Tracer
from pydantic import BaseModel

from trainflow.errors import TrainflowError
from trainflow.failures.judgement import to_text

logger = Logger(service="trainflow")
tracer = Tracer(service="trainflow")

Event = TypeVar("Event", bound=BaseModel)
Handler = Callable[[dict[str, Any], Any], dict[str, Any]]


def task(model: type[Event]) -> Callable[[Callable[[Event], dict[str, Any]]], Handler]:
    """Make a Lambda handler of a function from the state's typed input to its output.

    Args:
        model: The state's Payload.
    """

    def decorate(work: Callable[[Event], dict[str, Any]]) -> Handler:
        @tracer.capture_lambda_handler
        @wraps(work)
        def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
            logger.append_keys(
                run_id=event.get("run", {}).get("run_id"), function_request_id=getattr(context, "aws_request_id", None)
            )
            try:
                result = work(model.model_validate(event))
            except TrainflowError as error:
                logger.warning("task failed", extra={"error": type(error).__name__, "reason": str(error)})
                if error.judgement is not None:
                    error.args = (to_text(str(error), error.judgement),)  # Lambda reports the class and this text
                raise
            logger.info("task done", extra={"result": result})
            return result

        handler: Handler = lambda_handler
        return handler

    return decorate
