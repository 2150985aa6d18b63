"""A function's environment variables, read at the edge and with their types.

`trainflow/deployment/environment.py` declares them; `trainflow/deployment/functions.py` lists those of each function.
"""

from __future__ import annotations

import os
from typing import TypeVar

from pydantic import ValidationError

from trainflow.deployment.environment import Settings

Read = TypeVar("Read", bound=Settings)


class InvalidEnvironment(Exception):
    """The function was deployed without a variable, or with one that makes no sense. The message names each."""


def read(settings: type[Read]) -> Read:
    """The settings from the environment variables named as their fields, in capitals.

    Raises:
        InvalidEnvironment: If one of them is missing or malformed.
    """
    found = {name: os.environ[name.upper()] for name in settings.model_fields if name.upper() in os.environ}
    try:
        return settings.model_validate(found)
    except ValidationError as error:
        faults = "; ".join(_fault(str(fault["loc"][0]).upper(), fault["msg"]) for fault in error.errors())
        raise InvalidEnvironment(f"The function's environment is wrong: {faults}. Deploy its stack again.") from None


def _fault(variable: str, why: str) -> str:
    value = os.environ.get(variable)
    return f"{variable} is missing" if value is None else f"{variable} is '{value}' ({why})"
