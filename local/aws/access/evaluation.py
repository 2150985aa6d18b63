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
from datetime import UTC, datetime
from functools import lru_cache
from ipaddress import ip_address, ip_network
from operator import eq, ge, gt, le, lt
from typing import Any

Policy = Mapping[str, Any]
Statement = Mapping[str, Any]

Context = Mapping[str, tuple[str, ...]]
"""Values of the condition keys, by the key in lower case."""


Fill = Callable[[Any, Context], Iterator[str]]
"""Makes texts of the values of a policy."""

WITH_VARIABLES = "2012-10-17"
"""The version of policies that have variables."""


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
    unique_id: str = ""
    """Id of the role and name of the session, as `aws:userid` has them."""
    tags: tuple[tuple[str, str], ...] = ()
    """Tags of the role and of its session."""

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
    via = {"aws:viaawsservice": ("true" if "kms:viaservice" in permission.context else "false",)}
    of_place = {**_caller_keys(caller, account), **_resource_keys(permission.resource, account), **via}
    permission = Permission(permission.action, permission.resource, {**of_place, **permission.context})
    by_identity = {each["Effect"] for policy in identity for each in _applying(policy, permission)}
    by_resource = list(_applying(resource or {}, permission))
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


def _applying(policy: Policy, permission: Permission) -> Iterator[Statement]:
    """The statements of a policy that apply."""
    version = str(policy.get("Version"))
    return (each for each in statements(policy) if applies(each, permission, version=version))


def applies(statement: Statement, permission: Permission, *, version: str = WITH_VARIABLES) -> bool:
    """Whether action, resource and conditions of a statement match; principals are not part of it.

    Args:
        statement: The statement.
        permission: The permission that a request needs.
        version: That of the policy. Only the version 2012-10-17 has policy variables; in another one they are plain
            text (IAM JSON policy elements reference, 'Version').
    """
    fill = _filled if version == WITH_VARIABLES else _as_written
    return (
        _has_action(statement, permission)
        and _has_resource(statement, permission, fill)
        and _meets(statement, permission, fill)
    )


def _has_action(statement: Statement, permission: Permission) -> bool:
    if "NotAction" in statement:
        return not any(_like(pattern, permission.action, fold=True) for pattern in listed(statement["NotAction"]))
    return any(_like(pattern, permission.action, fold=True) for pattern in listed(statement["Action"]))


def _has_resource(statement: Statement, permission: Permission, fill: Fill) -> bool:
    if "NotResource" in statement:
        return not any(_like(each, permission.resource) for each in fill(statement["NotResource"], permission.context))
    return any(_like(each, permission.resource) for each in fill(statement.get("Resource", "*"), permission.context))


def _meets(statement: Statement, permission: Permission, fill: Fill) -> bool:
    return all(
        _condition(operator, permission.context.get(key.lower(), ()), list(fill(wanted, permission.context)))
        for operator, keys in statement.get("Condition", {}).items()
        for key, wanted in keys.items()
    )


VARIABLE = re.compile(r"\$\{(?:(?P<mark>[*?$])|(?P<name>[\w:/.@=+-]+)\s*(?:,\s*'(?P<default>[^']*)')?)\}")
LITERAL = {"*": "\ue000", "?": "\ue001", "$": "$"}
"""Characters that stand for a literal `*` and `?`, which `${*}` and `${?}` mean, until they are compared."""


def _filled(values: Any, context: Context) -> Iterator[str]:
    """Values with their policy variables filled; one with an unknown variable and no default matches nothing."""
    for value in map(_text, listed(values)):
        found = [_value(match, context) for match in VARIABLE.finditer(value)]
        if None not in found:
            each = iter(found)
            yield VARIABLE.sub(lambda _, each=each: str(next(each)), value)  # type: ignore[misc]


def _value(match: re.Match[str], context: Context) -> str | None:
    if match["mark"]:
        return LITERAL[match["mark"]]
    known = context.get(match["name"].lower())
    return known[0] if known else match["default"]


def _as_written(values: Any, _context: Context) -> Iterator[str]:
    yield from map(_text, listed(values))


def _plain(text: str) -> str:
    return text.replace(LITERAL["*"], "*").replace(LITERAL["?"], "?")


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

    wanted = wanted if compare in PATTERNS else [_plain(each) for each in wanted]

    def one(value: str) -> bool:
        return any(_compared(compare, each, value) for each in wanted) != negated

    return all(map(one, values)) if quantifier == "ForAllValues" else any(map(one, values))


def _compared(compare: Callable[[str, str], bool], wanted: str, value: str) -> bool:
    """The result of a comparison; a value of another type than the operator's does not match."""
    try:
        return compare(wanted, value)
    except ValueError:
        return False


@lru_cache(maxsize=4096)
def _pattern(text: str, fold: bool) -> re.Pattern[str]:
    escaped = re.escape(text).replace(r"\*", ".*").replace(r"\?", ".")
    literal = escaped.replace(LITERAL["*"], r"\*").replace(LITERAL["?"], r"\?")
    return re.compile(literal, re.DOTALL | (re.IGNORECASE if fold else 0))


def _like(pattern: str, value: str, *, fold: bool = False) -> bool:
    return _pattern(pattern, fold).fullmatch(value) is not None


def _arn_like(pattern: str, value: str) -> bool:
    """Each of the six parts of an ARN is compared for itself: a wildcard does not reach over a colon, but in the last
    part (IAM JSON policy elements reference, 'Amazon Resource Name (ARN) condition operators')."""
    wanted, parts = pattern.split(":", 5), value.split(":", 5)
    return len(wanted) == len(parts) and all(map(_like, wanted, parts))


def _number(compare: Callable[[float, float], bool]) -> Callable[[str, str], bool]:
    return lambda wanted, value: compare(float(value), float(wanted))


def _date(compare: Callable[[float, float], bool]) -> Callable[[str, str], bool]:
    return lambda wanted, value: compare(_seconds(value), _seconds(wanted))


def _seconds(moment: str) -> float:
    """Seconds since 1970, of a time in ISO 8601 or of such a number."""
    if re.fullmatch(r"\d{5,}(\.\d+)?", moment):
        return float(moment)
    parsed = datetime.fromisoformat(moment)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "Equals": eq,
    "LessThan": lt,
    "LessThanEquals": le,
    "GreaterThan": gt,
    "GreaterThanEquals": ge,
}
PATTERNS = (_like, _arn_like)

OPERATORS: Mapping[str, Callable[[str, str], bool]] = {
    "StringEquals": lambda wanted, value: wanted == value,
    "StringEqualsIgnoreCase": lambda wanted, value: wanted.lower() == value.lower(),
    "StringLike": _like,
    "ArnEquals": _arn_like,
    "ArnLike": _arn_like,
    "Bool": lambda wanted, value: wanted.lower() == value.lower(),
    "BinaryEquals": lambda wanted, value: wanted == value,
    "IpAddress": lambda wanted, value: ip_address(value) in ip_network(wanted, strict=False),
    **{f"Numeric{name}": _number(compare) for name, compare in COMPARISONS.items()},
    **{f"Date{name}": _date(compare) for name, compare in COMPARISONS.items()},
}
"""Comparisons of a policy's value with the request's, by the operator without `Not`, `IfExists` and quantifier."""


def _caller_keys(caller: Caller, account: str) -> Context:
    """Condition keys that follow from the principal."""
    if caller.kind == "service":
        return {"aws:sourceaccount": (account,), "aws:principalisawsservice": ("true",)}
    arn = caller.name if caller.kind == "role" else f"arn:aws:iam::{account}:root"
    return {
        "aws:principalarn": (arn,),
        "aws:principalaccount": (account,),
        "aws:principalisawsservice": ("false",),
        "aws:principaltype": ("AssumedRole" if caller.kind == "role" else "Account",),
        "aws:userid": (caller.unique_id or account,),
        "aws:sourceip": ("127.0.0.1",),
        "kms:calleraccount": (account,),
        **{f"aws:principaltag/{name}".lower(): (value,) for name, value in caller.tags},
    }


def _resource_keys(arn: str, account: str) -> Context:
    """Condition keys that follow from the resource; one whose ARN names no account is the caller's account's."""
    parts = arn.split(":", 5)
    owner = parts[4] if parts[0] == "arn" and len(parts) == 6 else ""
    keys = ("aws:resourceaccount", "s3:resourceaccount") if arn.startswith("arn:aws:s3:") else ("aws:resourceaccount",)
    return dict.fromkeys(keys, (owner or account,))


def _names(statement: Statement, caller: Caller, account: str) -> bool:
    """Whether a statement of a resource's policy names the caller itself, its session, or all but others."""
    if "NotPrincipal" in statement:
        return not _is_among(statement["NotPrincipal"], statement, caller, account)
    return _is_among(statement.get("Principal"), statement, caller, account)


def _is_among(principal: Any, statement: Statement, caller: Caller, account: str) -> bool:
    if principal == "*":
        return True
    if not isinstance(principal, Mapping):
        return False
    named = listed(principal.get("AWS"))
    if "*" in named:
        return True
    if caller.kind == "service":
        return caller.name in listed(principal.get("Service"))
    with_account = statement["Effect"] == "Deny" or "NotPrincipal" in statement
    of_account = with_account and (account in named or f"arn:aws:iam::{account}:root" in named)
    return caller.name in named or caller.label in named or of_account


def _names_account(statement: Statement, account: str) -> bool:
    """Whether a statement names the account, which lets the account's own policies decide."""
    principal = statement.get("Principal")
    named = listed(principal.get("AWS")) if isinstance(principal, Mapping) else []
    return account in named or f"arn:aws:iam::{account}:root" in named
