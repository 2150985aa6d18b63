"""This machine's public address, as a page of AWS reports it without credentials."""

from __future__ import annotations

import ipaddress

import urllib3

from trainflow.cli.account.facts import Unknown
from trainflow.cli.account.registries import Get, Web

PAGE = "https://checkip.amazonaws.com"
"""Answers with the caller's address and a line feed (EC2 user guide, "Authorize inbound traffic")."""


def own_address(get: Get | None = None) -> str | Unknown:
    """The address, or why it is unknown.

    Args:
        get: Requests a page; by default from the web.
    """
    try:
        status, _, body = (get or Web().get)(PAGE, {})
    except urllib3.exceptions.HTTPError as error:
        return Unknown(f"{PAGE} did not answer ({type(error).__name__})")
    text = body.decode(errors="replace").strip()
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return Unknown(f"{PAGE} answered {status} and no address")
