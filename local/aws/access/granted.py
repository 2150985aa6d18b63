"""Gives the twin's resources the policies of the stacks' templates, from the generated file `policies.json`.

`python -m stacks.tools.twin_policies` makes the file, and a test compares it with the templates. A deployment by the
CDK into the twin does not need it: CloudFormation makes the policies there.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID

from local.aws.access.evaluation import listed

FILE = Path(__file__).with_name("policies.json")
POLICY_NAME = "Grants"

_PLACEHOLDER = re.compile(r"\$\{([^}]+)\}")

Values = Mapping[str, Sequence[str]]
"""What stands for a placeholder: one text, or one for each of several resources."""


@cache
def templates() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """The generated file: `roles`, their `trusts`, and `resources`, each a list of statements."""
    content: dict[str, dict[str, list[dict[str, Any]]]] = json.loads(FILE.read_text())
    return content


def filled(statements: Sequence[Mapping[str, Any]], values: Values) -> list[dict[str, Any]]:
    """Statements with the twin's resources in place of the placeholders.

    A statement whose every resource is about no resource of the twin is left out.
    """
    made = []
    for statement in statements:
        resources = [text for each in listed(statement.get("Resource")) for text in _texts(each, values)]
        if resources or "Resource" not in statement:
            own = {**statement, "Resource": resources} if "Resource" in statement else dict(statement)
            made.append({**own, "Condition": _condition(own["Condition"], values)} if "Condition" in own else own)
    return made


def _texts(text: str, values: Values) -> Iterator[str]:
    names = list(dict.fromkeys(_PLACEHOLDER.findall(text)))
    for chosen in itertools.product(*(values.get(name, (f"arn:aws:twin:::{name}",)) for name in names)):
        by_name = dict(zip(names, chosen, strict=True))
        yield _PLACEHOLDER.sub(lambda found, by_name=by_name: by_name[found[1]], text)  # type: ignore[misc]


def _condition(condition: Mapping[str, Any], values: Values) -> dict[str, Any]:
    return {
        operator: {
            key: [text for each in listed(wanted) for text in _texts(str(each), values)] for key, wanted in keys.items()
        }
        for operator, keys in condition.items()
    }


def to_role(name: str, *, template: str, values: Values) -> None:
    """Give a role the statements of a template's role.

    Without requests, each of which takes tens of milliseconds.
    """
    from moto.iam.models import iam_backends

    statements = filled(templates()["roles"][template], values)
    document = {"Version": "2012-10-17", "Statement": statements}
    iam_backends[DEFAULT_ACCOUNT_ID]["aws"].put_role_policy(name, POLICY_NAME, json.dumps(document))


def trust_of(template: str, values: Values) -> str:
    """The text of a role's trust policy."""
    return json.dumps({"Version": "2012-10-17", "Statement": filled(templates()["trusts"][template], values)})


def policy_of(template: str, values: Values) -> str:
    """The text of a resource's policy."""
    return json.dumps({"Version": "2012-10-17", "Statement": filled(templates()["resources"][template], values)})
