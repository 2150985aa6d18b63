"""Replaces what moto repeats for every request or state and could do once; with hundreds of executions, that repetition
is most of the work.

All of these replace private functions of moto, as in `patches.py`. A test of each compares its answers with moto's.
"""

from __future__ import annotations

import importlib
import pkgutil
import threading
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any

import boto3
from botocore.config import Config

from local.aws.replacements import replace

CLIENT_USERS = "moto.stepfunctions.parser.asl.component.state.exec.state_task"
"""Package whose modules make a boto3 client for every Task state."""


def apply_all() -> None:
    """Install every replacement of this module, except for those that need an argument."""
    services_listed_once()
    definitions_read_once()
    children_awaited_here()
    partitions_listed_once()


def services_listed_once() -> None:
    """List moto's services once; moto searches its own folders twice per request to find out whether a host
    is a service."""
    from moto import backends

    listed = tuple(backends.list_of_moto_modules())
    replace(backends, "list_of_moto_modules", lambda: listed)


def definitions_read_once() -> None:
    """Parse each definition once, since parsing takes longer than executing it.

    The program is built again for every execution, because its parts hold state.
    """
    from moto.stepfunctions.parser.asl.parse import asl_parser

    def parse(definition: str) -> Any:
        tree = _parsed_tree(definition)
        preprocessor = asl_parser.Preprocessor()
        # moto keeps it on the class, where a definition that is refused would leave its language to all later ones.
        preprocessor._query_language_per_scope = []
        return preprocessor.visit(tree), tree

    replace(asl_parser.AmazonStateLanguageParser, "parse", staticmethod(parse))


@lru_cache(maxsize=16)
def _parsed_tree(definition: str) -> Any:
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


def clients_made_once(session: boto3.Session, credentials_of: Callable[[str, str], Mapping[str, str]]) -> None:
    """Make each boto3 client of the interpreter once, since it takes tens of milliseconds, and with the credentials of
    the state machine's role. moto makes one for every Task, with the caller's profile and invented credentials.

    Args:
        session: A session without the caller's settings.
        credentials_of: Returns the environment variables of an assumed role, for its ARN and a session's name.
    """
    from moto.settings import moto_server_port
    from moto.stepfunctions.parser.asl.component.common.timeouts.timeout import TimeoutSeconds
    from moto.stepfunctions.parser.asl.utils import boto_client

    config = Config(
        parameter_validation=False,
        response_checksum_validation="when_required",  # objects that it reads come without checksums
        retries={"max_attempts": 0, "total_max_attempts": 1},
        connect_timeout=TimeoutSeconds.DEFAULT_TIMEOUT_SECONDS,
        read_timeout=TimeoutSeconds.DEFAULT_TIMEOUT_SECONDS,
    )
    making = threading.Lock()

    @cache
    def made(region: str, service: str, port: Any, role_arn: str) -> Any:
        role = credentials_of(role_arn, "step-functions")
        return session.client(  # type: ignore[call-overload]
            service,
            region_name=region,
            endpoint_url=f"http://localhost:{port}",
            aws_access_key_id=role["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=role["AWS_SECRET_ACCESS_KEY"],
            aws_session_token=role["AWS_SESSION_TOKEN"],
            config=config,
        )

    def boto_client_for(region: str, service: str, state_credentials: Any) -> Any:
        with making:
            return made(region, service, moto_server_port(), state_credentials.role_arn)

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
