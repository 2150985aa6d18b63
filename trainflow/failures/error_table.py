"""The table of named errors: `errors.toml`, read once per process, at the first error."""

from __future__ import annotations

import pkgutil
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import Any


class Group(StrEnum):
    """Subject of an error; `errors.toml` explains the values."""

    JOB = "job"
    WORKFLOW = "workflow"
    LIMIT = "limit"
    SERVICE = "service"
    ACCESS = "access"


@dataclass(frozen=True, kw_only=True)
class NamedError:
    """An entry of the table."""

    name: str
    """Class name in Python and in the state machines."""
    group: Group
    means: str
    what_to_do: str
    input_at_fault: bool
    """Whether the user has to correct the spec, the data set or the program."""
    restart: bool
    """Whether the same job may succeed at another attempt."""
    same_node: bool = True
    """Whether another attempt may use the node again where the job failed."""
    shows_node: bool = False
    """Whether the failure of a pod is a sign about its node, which may be used again once."""
    may_be_checkpoint: bool = False
    """Whether a program may end with it because it cannot open the checkpoint that it resumes from."""
    named_by_programs: bool = False
    """Whether a program in a pod may report it."""
    words: tuple[str, ...] = ()
    """Other names of the error, in lower case."""


@cache
def error_table() -> Mapping[str, NamedError]:
    """The entries by name, in the order of the file."""
    text = pkgutil.get_data(__package__, "errors.toml") or b""
    return MappingProxyType({name: _entry(name, row) for name, row in tomllib.loads(text.decode()).items()})


def _entry(name: str, row: dict[str, Any]) -> NamedError:
    return NamedError(name=name, **{**row, "group": Group(row["group"]), "words": tuple(row.get("words", ()))})


_LISTS: Mapping[str, Callable[[NamedError], bool]] = {
    "about_the_run": lambda error: error.group in (Group.JOB, Group.WORKFLOW, Group.LIMIT),
    "unavailable": lambda error: error.group is Group.SERVICE,
    "restarted": lambda error: error.restart,
    "ended_by_limit": lambda error: error.group is Group.LIMIT,
}


def error_list(name: str) -> list[str]:
    """Names of the errors of a list, in the order of the table.

    Args:
        name: `about_the_run` has the errors that would come again at another try, `unavailable` those that pass,
            `restarted` those that have the job submitted again, `ended_by_limit` those of a run that ends as its spec
            says.

    Raises:
        KeyError: If the list does not exist.
    """
    belongs = _LISTS[name]
    return [error.name for error in error_table().values() if belongs(error)]
