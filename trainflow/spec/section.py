"""Base of the run spec's sections, and the patterns of their texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import ConfigDict, ValidationInfo, field_validator

from trainflow.spec.field_docs import DescribedFields
from trainflow.spec.sentences import shortened

NAME = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
FOLDER = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
OBJECT = r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$"
FLAG = r"^[A-Za-z][\w.-]*$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
PACKAGE = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$"
KEY_NAME = r"^[-._a-zA-Z0-9]{1,253}$"
SECRET = r"^(arn:aws[-a-z]*:secretsmanager:[-a-z0-9]+:\d{12}:secret:)?[-/_+=.@A-Za-z0-9]{1,512}$"  # noqa: S105  (a pattern)
ABSOLUTE_FOLDER = r"^/[^\x00-\x1f:]*$"
MODULE = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"
SHA256 = r"^[0-9a-f]{64}$"
IMAGE = (
    r"^([A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64}|@sha512:[0-9a-f]{128})?$"
)
"""Registry, repository, tag and digest, as a node reads an image's name (distribution/reference, reference.go).
Sequences of dots and underscores in a repository are accepted here, and refused there. The characters of a tag are
listed: pydantic's `\\w` has those of all languages. Nodes refuse them, and 128 of them take 70 ms to compile at every
start."""
REGION = r"^[a-z]{2}(-[a-z]+)+-[0-9]$"

IN_WORDS = {
    NAME: "must begin with a lower-case letter and hold only lower-case letters, digits and dashes",
    FOLDER: "must be lower-case letters, digits and dashes, at most 63",
    OBJECT: "must be the name of an object in the cluster: lower-case letters, digits, dashes and dots",
    FLAG: "must be a flag's name without its dashes",
    VARIABLE: "must be the name of an environment variable: letters, digits and underscores",
    PACKAGE: "must be the name of a Python package, without a version",
    KEY_NAME: "must be a key of a secret: letters, digits, dots, dashes and underscores",
    SECRET: "must be the name or the ARN of a secret in AWS Secrets Manager",
    ABSOLUTE_FOLDER: "must be the full path of a folder on the nodes, without a colon",
    MODULE: "must be a Python module's name such as 'trainer.pretrain'",
    SHA256: "must be 64 hexadecimal digits in lower case, as `sha256sum` prints them",
    IMAGE: "must be the name of a container image: a repository in lower case, without https://, and a tag or "
    "@sha256: with 64 hexadecimal digits",
    REGION: "must be an AWS Region such as us-west-2",
}
"""Requirement of each pattern in words, for messages."""


class Section(DescribedFields):
    """Immutable part of a spec that refuses fields it does not have, and numbers that are text, true or false."""

    # The spec's validator holds those of its sections: a section's own is built when it is first used by itself.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @field_validator("*", mode="before")
    @classmethod
    def _a_number_is_one(cls, value: Any, field: ValidationInfo) -> Any:
        """pydantic's own strict mode would refuse 2.0 as a whole number, which JSON Schema takes for one."""
        if isinstance(value, bool | str) and (kinds := _number_kinds(cls, field.field_name)):
            expected = "a whole number" if float not in kinds else "a number"
            hint = "; remove its quotes" if isinstance(value, str) and _reads_as_number(value) else ""
            raise ValueError(f"must be {expected}, got {shortened(repr(value))}{hint}")
        return value


@cache
def _number_kinds(section: type[Section], field: str | None) -> frozenset[type]:
    """The types of a field that holds a number and nothing else beside None; empty for any other field."""
    kinds = frozenset(_kinds(section.model_fields[field or ""].annotation)) - {NoneType}
    return kinds if kinds <= {int, float} else frozenset()


def _kinds(annotation: Any) -> Iterator[type]:
    """The types that a field's annotation allows."""
    inner = get_args(annotation)
    if get_origin(annotation) is Annotated:
        yield from _kinds(inner[0])
    elif get_origin(annotation) is Literal:
        yield from map(type, inner)
    elif isinstance(annotation, UnionType) or get_origin(annotation) is Union:
        for each in inner:
            yield from _kinds(each)
    else:
        yield annotation


def _reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def joined_choices(choices: Sequence[object]) -> str:
    """Two or more choices, for a sentence."""
    *others, last = map(str, choices)
    return f"{', '.join(others)} or {last}"
