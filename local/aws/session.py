"""The caller's AWS settings and proxies, hidden from the twin, whose AWS is this process."""

from __future__ import annotations

import os

import boto3
import botocore.session
from botocore.config import Config
from botocore.configprovider import BOTOCORE_DEFAUT_SESSION_VARIABLES

NO_FILES = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
"""Environment variables that keep an SDK in a child process from the caller's profiles, region and endpoints."""

_FILE_VARIABLES = frozenset({"config_file", "credentials_file"})


def isolated_session() -> boto3.Session:
    """A session that reads no environment variable (`AWS_PROFILE`, `HTTP_PROXY`, …) and none of the caller's files."""
    # (name in the file, name in the environment, default, type): without the names only the default is left.
    variables = {
        name: (None, None, os.devnull if name in _FILE_VARIABLES else default, kind)
        for name, (_, _, default, kind) in BOTOCORE_DEFAUT_SESSION_VARIABLES.items()
    }
    session = botocore.session.Session(session_vars=variables)
    session.set_default_client_config(Config(proxies={}))
    return boto3.Session(botocore_session=session)


class SettingsAside:
    """Removes the caller's AWS settings from this process's environment until they are restored.

    moto makes sessions of its own, when it is imported and later, and each of them reads the caller's profile.
    """

    def __init__(self) -> None:
        self._settings: dict[str, str] | None = None

    def take(self) -> None:
        """Remove the AWS settings."""
        self._settings = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("AWS_")}
        os.environ.update(NO_FILES)

    def put_back(self) -> None:
        """Restore the removed settings; safe to repeat."""
        if self._settings is None:
            return
        for name in NO_FILES:
            os.environ.pop(name, None)
        os.environ.update(self._settings)
        self._settings = None
