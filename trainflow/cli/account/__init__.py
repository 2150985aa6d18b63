"""`trainflow check-account`: what would fail or be unexpected in a deployment, before it makes anything.

`needs.py` says what a configuration needs, `gathering.py` asks the account (`aws.py`) and the registries
(`registries.py`) for it, `checks/` judges the answers. Nothing is written anywhere.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ProfileNotFound
from rich.markup import escape

from trainflow.cli.account.aws import Account
from trainflow.cli.account.checks import findings
from trainflow.cli.account.findings import Finding, Level, something_fails
from trainflow.cli.account.gathering import gather
from trainflow.cli.account.registries import Registries
from trainflow.cli.terminal import Console
from trainflow.configuration.deployment import Configuration, ConfigurationError, load_configuration

__all__ = ["BadInput", "check_account"]

NOTHING_FAILS, SOMETHING_FAILS = 0, 1

JSON_VERSION = 1
"""Version of the document that `--json` prints (docs/check-account.md); raised when a field changes or is removed."""

_STYLES = {Level.FAILS: "red", Level.SURPRISES: "yellow", Level.UNCHECKED: "magenta", Level.FINE: "green"}


class BadInput(Exception):
    """The configuration, or the profile that the caller's environment names, is at fault; the message is a sentence."""


def check_account(path: Path, *, as_json: bool, console: Console, repository: Path | None = None) -> int:
    """Print one line for each finding.

    Args:
        path: The configuration.
        as_json: Print one JSON document instead.
        console: Where to print.
        repository: Folder that the paths of schedules' specs are relative to; the working directory if not given.

    Returns:
        The command's exit status: 0 if nothing fails, 1 otherwise.

    Raises:
        BadInput: If the configuration or the credentials cannot be used.
    """
    try:
        configuration = load_configuration(path)
        account = Account(region=configuration.region)
        with console.status(f"Asking AWS and the registries about {path} …"):
            facts = gather(configuration, account, Registries(), repository=repository or Path())
    except ConfigurationError as error:
        raise BadInput(str(error)) from None
    except ProfileNotFound as error:
        raise BadInput(f"{error}; correct AWS_PROFILE, or make the profile: aws configure sso.") from None
    except BotoCoreError as error:
        raise BadInput(f"The AWS configuration of this machine cannot be used: {error}.") from None
    found = list(findings(configuration, facts, path=path))
    if as_json:
        print(json.dumps(document(path, configuration, found), indent=2, ensure_ascii=False))
    else:
        _print(console, found)
    return SOMETHING_FAILS if something_fails(found) else NOTHING_FAILS


def document(path: Path, configuration: Configuration, found: Sequence[Finding]) -> dict[str, Any]:
    """The document of `--json`."""
    counts = Counter(finding.level for finding in found)
    return {
        "version": JSON_VERSION,
        "configuration": str(path),
        "name": configuration.name,
        "region": configuration.region,
        "levels": {level.value: counts[level] for level in Level},
        "findings": [
            {
                "check": finding.check,
                "level": finding.level.value,
                "what": finding.what,
                "why": finding.why,
                "fix": finding.fix,
            }
            for finding in found
        ],
    }


def _print(console: Console, found: Sequence[Finding]) -> None:
    for level in Level:
        for finding in found:
            if finding.level is level:
                _print_line(console, finding)
    counts = Counter(finding.level for finding in found)
    console.print(", ".join(f"{counts[level]} {level.value}" for level in Level) + ".", highlight=False)


def _print_line(console: Console, finding: Finding) -> None:
    """Print the finding; below it its consequence and the fix."""
    style = _STYLES[finding.level]
    head = f"[{style}]{finding.level.value:<9}[/] {escape(finding.check)}: {escape(finding.what)}"
    console.print(head, highlight=False, soft_wrap=True)
    for text in (finding.why, f"→ {finding.fix}" if finding.fix else ""):
        if text:
            console.print(f"          {escape(text)}", highlight=False, soft_wrap=True)
