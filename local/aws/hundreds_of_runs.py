"""What moto does anew for each request or state and need not: with hundreds of executions that is most of the work.

All of them replace private functions, as in `patches.py`; each has a test that compares the answers.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache, lru_cache
from typing import Any

from local.aws.patches import original, replacing

CLIENT_USERS = "moto.stepfunctions.parser.asl.component.state.exec.state_task"
"""Whose modules make a client for every Task state."""


def apply_all() -> None:
    """Every one of them."""
    services_listed_once()
    definitions_read_once()
    clients_made_once()
    children_awaited_here()


def services_listed_once() -> None:
    """moto looks through its own folders to tell whether a host is one of its services, twice a request."""
    from moto import backends

    listed = tuple(original(backends.list_of_moto_modules)())
    backends.list_of_moto_modules = replacing(backends.list_of_moto_modules, lambda: listed)


def definitions_read_once() -> None:
    """Parsing a definition takes longer than executing it. The program is made anew: its parts remember."""
    from antlr4 import CommonTokenStream, InputStream
    from moto.stepfunctions.parser.asl.antlr.runtime.ASLLexer import ASLLexer
    from moto.stepfunctions.parser.asl.antlr.runtime.ASLParser import ASLParser
    from moto.stepfunctions.parser.asl.parse import asl_parser

    @lru_cache(maxsize=16)
    def tree_of(definition: str) -> Any:
        errors = asl_parser.SyntaxErrorListener()
        parser = ASLParser(CommonTokenStream(ASLLexer(InputStream(definition))))
        parser.removeErrorListeners()
        parser.addErrorListener(errors)
        tree = parser.state_machine()
        if errors.errors:
            raise asl_parser.ASLParserException(errors=errors.errors)
        return tree

    def parse(definition: str) -> Any:
        tree = tree_of(definition)
        return asl_parser.Preprocessor().visit(tree), tree

    asl_parser.AmazonStateLanguageParser.parse = staticmethod(parse)


def clients_made_once() -> None:
    """A boto3 client costs tens of milliseconds, and moto's port is the same for all of a server's life."""
    from moto.stepfunctions.parser.asl.utils import boto_client

    make = original(boto_client.boto_client_for)

    @cache
    def made(region: str, service: str, _port: Any) -> Any:
        return make(region=region, service=service)

    def boto_client_for(region: str, service: str, state_credentials: Any = None) -> Any:
        return made(region, service, boto_client.moto_server_port())

    replacing(make, boto_client_for)
    package = importlib.import_module(CLIENT_USERS)
    for found in pkgutil.walk_packages(package.__path__, f"{CLIENT_USERS}."):
        module = importlib.import_module(found.name)
        if hasattr(module, "boto_client_for"):
            module.boto_client_for = boto_client_for  # type: ignore[attr-defined]
    boto_client.boto_client_for = boto_client_for


def children_awaited_here() -> None:
    """A parent asks over HTTP twice a second whether its child has ended. It asks only once it has."""
    from moto.stepfunctions.parser.api import ExecutionStatus
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service_sfn import (
        StateTaskServiceSfn,
    )
    from moto.stepfunctions.parser.models import stepfunctions_parser_backends

    build = original(StateTaskServiceSfn._build_sync2_resolver)

    def build_sync2_resolver(self: Any, env: Any, *arguments: Any, **named: Any) -> Any:
        arn = env.stack[-1]["ExecutionArn"]
        resolve = build(self, env, *arguments, **named)
        _, _, _, region, account, *_ = arn.split(":")
        child = stepfunctions_parser_backends[account][region].describe_execution(arn)

        def resolve_when_ended() -> Any:
            return None if child.exec_status in (None, ExecutionStatus.RUNNING) else resolve()

        return resolve_when_ended

    StateTaskServiceSfn._build_sync2_resolver = replacing(build, build_sync2_resolver)
