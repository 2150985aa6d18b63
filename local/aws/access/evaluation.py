"""Evaluates IAM policies: which statements allow or deny a request.

Pure functions over policy documents. The rules are those of the IAM user guide, 'Policy evaluation logic': an explicit
deny wins; otherwise one allow is needed, by the policies of the caller's role or by the policy of the resource. An
operator of conditions that is not known here raises an error, because a policy that is half understood allows or denies
at random.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Any

Policy = Mapping[str, Any]
Statement = Mapping[str, Any]

Context = Mapping[str, tuple[str, ...]]
"""Values of the condition keys, by the key in lower case."""


class PolicyError(Exception):
    """A policy contains something that the evaluation does not implement."""


@dataclass(frozen=True)
class Caller:
    """The principal of a request."""

    kind: str
    """`owner` for the account itself, `role`, `service`, `anonymous`, or `unknown` for a key of nothing."""
    name: str = ""
    """ARN of the role, name of the service such as `events.amazonaws.com`, or the unknown key."""
    session: str = ""
    """Name of the role's session."""

    @property
    def label(self) -> str:
        """The principal as AWS names it in messages."""
        if self.kind != "role":
            return self.name or self.kind
        return f"{self.name.replace(':iam:', ':sts:').replace(':role/', ':assumed-role/')}/{self.session}"


@dataclass(frozen=True)
class Permission:
    """One permission that a request needs."""

    action: str
    """`service:Action`."""
    resource: str
    """ARN, or `*` for actions without a resource."""
    context: Context = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """Whether a permission is given, and by what."""

    allowed: bool
    reason: str
    """Kind of policy that lacks the permission or denies it, in AWS's words."""

    @property
    def is_explicit(self) -> bool:
        """Whether a policy denies it, and not only none allows it."""
        return self.reason.startswith("with an explicit deny")


def decide(
    caller: Caller,
    permission: Permission,
    *,
    identity: Iterable[Policy],
    resource: Policy | None,
    account: str,
    is_key: bool = False,
) -> Decision:
    """Whether a caller of the account may do something with a resource of the account.

    Args:
        caller: The principal.
        permission: The permission.
        identity: Policies of the caller's role.
        resource: The policy of the resource; None without one.
        account: Id of the account.
        is_key: Whether the resource is a KMS key. Policies of roles count for a key only as far as the key's own policy
            lets the account decide (KMS developer guide, 'Default key policy').
    """
    of_place = {**_of_caller(caller, account), **_of_resource(permission.resource, account)}
    permission = Permission(permission.action, permission.resource, {**of_place, **permission.context})
    by_identity = {each["Effect"] for policy in identity for each in statements(policy) if applies(each, permission)}
    by_resource = [each for each in statements(resource or {}) if applies(each, permission)]
    denies = [each for each in by_resource if each["Effect"] == "Deny" and _names(each, caller, account)]
    if "Deny" in by_identity:
        return Decision(False, "with an explicit deny in an identity-based policy")
    if denies:
        return Decision(False, "with an explicit deny in a resource-based policy")
    allows = [each for each in by_resource if each["Effect"] == "Allow"]
    if any(_names(each, caller, account) for each in allows):
        return Decision(True, "")
    delegates = not is_key or any(_names_account(each, account) for each in allows)
    if not delegates:
        return Decision(False, "because no resource-based policy allows it")
    if caller.kind == "owner" or (caller.kind == "role" and "Allow" in by_identity):
        return Decision(True, "")
    kind = "identity" if caller.kind == "role" else "resource"
    return Decision(False, f"because no {kind}-based policy allows the {permission.action} action")


def statements(policy: Policy) -> list[Statement]:
    """The statements of a policy."""
    return listed(policy.get("Statement"))


def listed(value: Any) -> list[Any]:
    """A value or a list of values, as a list."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def applies(statement: Statement, permission: Permission) -> bool:
    """Whether action, resource and conditions of a statement match; principals are not part of it."""
    return _has_action(statement, permission) and _has_resource(statement, permission) and _meets(statement, permission)


def _has_action(statement: Statement, permission: Permission) -> bool:
    if "NotAction" in statement:
        return not any(_like(pattern, permission.action, fold=True) for pattern in listed(statement["NotAction"]))
    return any(_like(pattern, permission.action, fold=True) for pattern in listed(statement["Action"]))


def _has_resource(statement: Statement, permission: Permission) -> bool:
    if "NotResource" in statement:
        return not any(
            _like(each, permission.resource) for each in _filled(statement["NotResource"], permission.context)
        )
    return any(_like(each, permission.resource) for each in _filled(statement.get("Resource", "*"), permission.context))


def _meets(statement: Statement, permission: Permission) -> bool:
    return all(
        _condition(operator, permission.context.get(key.lower(), ()), list(_filled(wanted, permission.context)))
        for operator, keys in statement.get("Condition", {}).items()
        for key, wanted in keys.items()
    )


VARIABLE = re.compile(r"\$\{([\w:/.-]+)\}")


def _filled(values: Any, context: Context) -> Iterator[str]:
    """Values with their policy variables filled; one with an unknown variable matches nothing."""
    for value in map(_text, listed(values)):
        names = VARIABLE.findall(value)
        if all(context.get(name.lower()) for name in names):
            yield VARIABLE.sub(lambda found: context[found[1].lower()][0], value)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _condition(operator: str, values: tuple[str, ...], wanted: list[str]) -> bool:
    """Source: IAM JSON policy elements reference, 'Condition operators' and 'Multivalued context keys'."""
    quantifier, _, base = operator.rpartition(":")
    optional, base = base.endswith("IfExists"), base.removesuffix("IfExists")
    if base == "Null":
        return (not values) == (wanted == ["true"])
    negated = "Not" in base
    compare = OPERATORS.get(base.replace("Not", ""))
    if compare is None or quantifier not in ("", "ForAnyValue", "ForAllValues"):
        raise PolicyError(f"The condition operator {operator} is not implemented in the twin.")
    if not values:
        return optional or quantifier == "ForAllValues" or (negated and not quantifier)

    def one(value: str) -> bool:
        return any(compare(each, value) for each in wanted) != negated

    return all(map(one, values)) if quantifier == "ForAllValues" else any(map(one, values))


@lru_cache(maxsize=4096)
def _pattern(text: str, fold: bool) -> re.Pattern[str]:
    escaped = re.escape(text).replace(r"\*", ".*").replace(r"\?", ".")
    return re.compile(escaped, re.DOTALL | (re.IGNORECASE if fold else 0))


def _like(pattern: str, value: str, *, fold: bool = False) -> bool:
    return _pattern(pattern, fold).fullmatch(value) is not None


def _number(compare: Callable[[float, float], bool]) -> Callable[[str, str], bool]:
    return lambda wanted, value: compare(float(value), float(wanted))


OPERATORS: Mapping[str, Callable[[str, str], bool]] = {
    "StringEquals": lambda wanted, value: wanted == value,
    "StringEqualsIgnoreCase": lambda wanted, value: wanted.lower() == value.lower(),
    "StringLike": _like,
    "ArnEquals": _like,
    "ArnLike": _like,
    "Bool": lambda wanted, value: wanted.lower() == value.lower(),
    "IpAddress": lambda wanted, value: ip_address(value) in ip_network(wanted, strict=False),
    "NumericEquals": _number(lambda value, wanted: value == wanted),
    "NumericLessThan": _number(lambda value, wanted: value < wanted),
    "NumericLessThanEquals": _number(lambda value, wanted: value <= wanted),
    "NumericGreaterThan": _number(lambda value, wanted: value > wanted),
    "NumericGreaterThanEquals": _number(lambda value, wanted: value >= wanted),
}
"""Comparisons of a policy's value with the request's, by the operator without `Not`, `IfExists` and quantifier."""


def _of_caller(caller: Caller, account: str) -> Context:
    """Condition keys that follow from the principal."""
    if caller.kind == "service":
        return {"aws:sourceaccount": (account,), "aws:principalisawsservice": ("true",)}
    arn = caller.name if caller.kind == "role" else f"arn:aws:iam::{account}:root"
    return {
        "aws:principalarn": (arn,),
        "aws:principalaccount": (account,),
        "aws:principalisawsservice": ("false",),
        "kms:calleraccount": (account,),
    }


def _of_resource(arn: str, account: str) -> Context:
    """Condition keys that follow from the resource; one whose ARN names no account is the caller's account's."""
    owner = arn.split(":")[4] if arn.startswith("arn:") else ""
    keys = ("aws:resourceaccount", "s3:resourceaccount") if arn.startswith("arn:aws:s3:") else ("aws:resourceaccount",)
    return dict.fromkeys(keys, (owner or account,))


def _names(statement: Statement, caller: Caller, account: str) -> bool:
    """Whether a statement of a resource's policy names the caller itself."""
    if "NotPrincipal" in statement:
        raise PolicyError("NotPrincipal is not implemented in the twin.")
    principal = statement.get("Principal")
    if principal == "*":
        return True
    if not isinstance(principal, Mapping):
        return False
    if caller.kind == "service":
        return caller.name in listed(principal.get("Service"))
    named = listed(principal.get("AWS"))
    denies = statement["Effect"] == "Deny" and _names_account(statement, account)
    return "*" in named or caller.name in named or denies


def _names_account(statement: Statement, account: str) -> bool:
    """Whether a statement names the account, which lets the account's own policies decide."""
    principal = statement.get("Principal")
    named = listed(principal.get("AWS")) if isinstance(principal, Mapping) else []
    return account in named or f"arn:aws:iam::{account}:root" in named
