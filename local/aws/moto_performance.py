"""Replaces what moto repeats for every request or state and could do once; with hundreds of executions, that repetition
is most of the work.

All of these replace private functions of moto, as in `patches.py`. A test of each compares its answers with moto's.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache, lru_cache
from typing import Any

from local.aws.replacements import replace

CLIENT_USERS = "moto.stepfunctions.parser.asl.component.state.exec.state_task"
"""Package whose modules make a boto3 client for every Task state."""


def apply_all() -> None:
    """Install every replacement of this module."""
    services_listed_once()
    definitions_read_once()
    clients_made_once()
    children_awaited_here()
    partitions_listed_once()


def services_listed_once() -> None:
    """List moto's services once; moto searches its own folders twice per request to tell whether a host is a
    service."""
    from moto import backends

    listed = tuple(backends.list_of_moto_modules())
    replace(backends, "list_of_moto_modules", lambda: listed)


def definitions_read_once() -> None:
    """Parse each definition once, since parsing takes longer than executing it.

    The program is built again for every execution, because its parts hold state.
    """
    from moto.stepfunctions.parser.asl.parse import asl_parser

    def parse(definition: str) -> Any:
        tree = _tree_of(definition)
        return asl_parser.Preprocessor().visit(tree), tree

    replace(asl_parser.AmazonStateLanguageParser, "parse", staticmethod(parse))


@lru_cache(maxsize=16)
def _tree_of(definition: str) -> Any:
    """The tree of a definition, for all servers of this process: trees do not change."""
    from antlr4 import CommonTokenStream, InputStream
    from moto.stepfunctions.parser.asl.antlr.runtime.ASLLexer import ASLLexer
    from moto.stepfunctions.parser.asl.antlr.runtime.ASLParser import ASLParser
    from moto.stepfunctions.parser.asl.parse import asl_parser

    errors = asl_parser.SyntaxErrorListener()
    parser = ASLParser(CommonTokenStream(ASLLexer(InputStream(definition))))
    parser.removeErrorListeners()
    parser.addErrorListener(errors)
    tree = parser.state_machine()
    if errors.errors:
        raise asl_parser.ASLParserException(errors=errors.errors)
    return tree


def clients_made_once() -> None:
    """Make each boto3 client once: it takes tens of milliseconds, and moto's port stays the same as long as the server
    runs."""
    from moto.stepfunctions.parser.asl.utils import boto_client

    make = boto_client.boto_client_for

    @cache
    def made(region: str, service: str, _port: Any) -> Any:
        return make(region=region, service=service)

    def boto_client_for(region: str, service: str, state_credentials: Any = None) -> Any:
        return made(region, service, boto_client.moto_server_port())

    package = importlib.import_module(CLIENT_USERS)
    for found in pkgutil.walk_packages(package.__path__, f"{CLIENT_USERS}."):
        module = importlib.import_module(found.name)
        if hasattr(module, "boto_client_for"):
            replace(module, "boto_client_for", boto_client_for)
    replace(boto_client, "boto_client_for", boto_client_for)


def children_awaited_here() -> None:
    """Ask for a child execution's result only after the child has ended; moto asks over HTTP twice a second until
    then."""
    from moto.stepfunctions.parser.api import ExecutionStatus
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service_sfn import (
        StateTaskServiceSfn,
    )
    from moto.stepfunctions.parser.models import stepfunctions_parser_backends

    build = StateTaskServiceSfn._build_sync2_resolver

    def build_sync2_resolver(self: Any, env: Any, *arguments: Any, **named: Any) -> Any:
        arn = env.stack[-1]["ExecutionArn"]
        resolve = build(self, env, *arguments, **named)
        _, _, _, region, account, *_ = arn.split(":")
        child = stepfunctions_parser_backends[account][region].describe_execution(arn)

        def resolve_when_ended() -> Any:
            return None if child.exec_status in (None, ExecutionStatus.RUNNING) else resolve()

        return resolve_when_ended

    replace(StateTaskServiceSfn, "_build_sync2_resolver", build_sync2_resolver)


def partitions_listed_once() -> None:
    """List AWS's partitions once: moto makes a session of boto3 for each node group, to look at its role's ARN."""
    from moto.eks import utils

    replace(utils, "Session", cache(utils.Session))
