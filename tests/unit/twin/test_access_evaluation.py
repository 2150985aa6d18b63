"""IAM's rules: which policies allow a request, and which refuse it."""

from __future__ import annotations

from typing import Any

import pytest

from local.aws.access.evaluation import Caller, Permission, PolicyError, decide

ACCOUNT = "123456789012"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/function"
KEY = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/1"
ROOT = f"arn:aws:iam::{ACCOUNT}:root"
CALLER = Caller("role", ROLE, "session")
READ = Permission("s3:GetObject", "arn:aws:s3:::bucket/data/a.tar", {"s3:prefix": ("data/",)})


def policy(**statement: Any) -> dict[str, Any]:
    return {"Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*", **statement}]}


def allowed(
    *identity: dict[str, Any],
    resource: dict[str, Any] | None = None,
    permission: Permission = READ,
    caller: Caller = CALLER,
) -> bool:
    is_key = permission.action.startswith("kms:")
    return decide(caller, permission, identity=identity, resource=resource, account=ACCOUNT, is_key=is_key).allowed


def test_what_no_policy_allows_is_refused() -> None:
    assert not allowed()
    assert not allowed({"Statement": []})
    assert allowed(policy())


@pytest.mark.parametrize("action", ["s3:GetObject", "s3:Get*", "S3:getobject", "*", ["s3:PutObject", "s3:GetObject"]])
def test_actions_match_by_patterns_whatever_their_case(action: Any) -> None:
    assert allowed(policy(Action=action))


@pytest.mark.parametrize("action", ["s3:GetObjects", "s3:GetObjec", "dynamodb:*"])
def test_other_actions_do_not_match(action: str) -> None:
    assert not allowed(policy(Action=action))


@pytest.mark.parametrize(
    ("resource", "matches"),
    [
        ("arn:aws:s3:::bucket/*", True),
        ("arn:aws:s3:::bucket/data/?.tar", True),
        ("arn:aws:s3:::bucket", False),
        ("arn:aws:s3:::Bucket/*", False),
        (["arn:aws:s3:::other/*", "arn:aws:s3:::bucket/data/*"], True),
    ],
)
def test_resources_match_by_patterns_in_their_case(resource: Any, matches: bool) -> None:
    assert allowed(policy(Resource=resource)) is matches


def test_not_action_and_not_resource_are_everything_else() -> None:
    statement = {"Effect": "Allow", "NotAction": "iam:*", "NotResource": "arn:aws:s3:::secret/*"}
    assert allowed({"Statement": statement})
    assert not allowed({"Statement": statement}, permission=Permission("iam:PassRole", "*"))
    assert not allowed({"Statement": statement}, permission=Permission("s3:GetObject", "arn:aws:s3:::secret/a"))


def test_an_explicit_deny_wins_over_every_allow() -> None:
    deny = policy(Effect="Deny", Action="s3:*")
    assert not allowed(policy(), deny)
    assert not allowed(policy(), resource=policy(Effect="Deny", Principal="*"))
    assert not allowed(policy(), resource=policy(Effect="Deny", Principal={"AWS": "*"}), caller=Caller("owner"))


def test_the_policy_of_a_resource_may_allow_alone() -> None:
    assert allowed(resource=policy(Principal={"AWS": ROLE}))
    assert not allowed(resource=policy(Principal={"AWS": f"{ROLE}-of-others"}))
    assert not allowed(resource=policy(Principal={"AWS": ROOT})), "it lets the account decide"


def test_a_service_needs_the_policy_of_the_resource() -> None:
    rule = Caller("service", "events.amazonaws.com")
    source = {"ArnEquals": {"aws:SourceArn": "arn:rule/a"}}
    named = policy(Principal={"Service": "events.amazonaws.com"}, Condition=source)
    from_rule = Permission(READ.action, READ.resource, {"aws:sourcearn": ("arn:rule/a",)})
    from_other = Permission(READ.action, READ.resource, {"aws:sourcearn": ("arn:rule/b",)})
    assert allowed(resource=named, permission=from_rule, caller=rule)
    assert not allowed(resource=named, permission=from_other, caller=rule)
    assert not allowed(policy(), permission=from_rule, caller=rule)


def test_a_role_uses_a_key_only_if_the_keys_policy_lets_the_account_decide() -> None:
    decrypt, mine = Permission("kms:Decrypt", KEY), policy(Action="kms:Decrypt", Resource=KEY)
    account_decides = policy(Action="kms:*", Principal={"AWS": ROOT})
    assert allowed(mine, resource=account_decides, permission=decrypt)
    assert not allowed(
        mine, resource=policy(Action="kms:*", Principal={"AWS": f"{ROLE}-of-others"}), permission=decrypt
    )
    assert not allowed(mine, resource=None, permission=decrypt), "a key without a policy can be used by no one"
    assert not allowed(resource=account_decides, permission=decrypt)


@pytest.mark.parametrize(
    ("condition", "meets"),
    [
        ({"StringEquals": {"s3:prefix": "data/"}}, True),
        ({"StringEquals": {"S3:PREFIX": ["runs/", "data/"]}}, True),
        ({"StringEquals": {"s3:prefix": "data"}}, False),
        ({"StringNotEquals": {"s3:prefix": "data/"}}, False),
        ({"StringNotEquals": {"missing": "data/"}}, True),
        ({"StringLike": {"s3:prefix": "d*"}}, True),
        ({"StringEquals": {"missing": "data/"}}, False),
        ({"StringEqualsIfExists": {"missing": "data/"}}, True),
        ({"Null": {"missing": "true"}}, True),
        ({"Null": {"s3:prefix": True}}, False),
        ({"Bool": {"tls": "true"}}, True),
        ({"Bool": {"tls": False}}, False),
        ({"ArnLike": {"aws:PrincipalArn": f"arn:aws:iam::{ACCOUNT}:role/*"}}, True),
        ({"NumericLessThan": {"version": 1.3}}, True),
        ({"NumericLessThan": {"version": 1.2}}, False),
        ({"ForAllValues:StringLike": {"keys": ["a*", "b*"]}}, True),
        ({"ForAllValues:StringLike": {"keys": ["a*"]}}, False),
        ({"ForAllValues:StringLike": {"missing": ["a*"]}}, True),
        ({"ForAnyValue:StringLike": {"keys": ["a*"]}}, True),
        ({"ForAnyValue:StringLike": {"missing": ["a*"]}}, False),
        ({"StringEquals": {"s3:prefix": "data/"}, "Bool": {"tls": "false"}}, False),
    ],
)
def test_conditions(condition: dict[str, Any], meets: bool) -> None:
    context = {"s3:prefix": ("data/",), "tls": ("true",), "version": ("1.2",), "keys": ("a1", "b1")}
    assert allowed(policy(Condition=condition), permission=Permission(READ.action, READ.resource, context)) is meets


@pytest.mark.parametrize(
    ("key", "resource", "owner"),
    [
        ("aws:ResourceAccount", READ.resource, ACCOUNT),
        ("s3:ResourceAccount", READ.resource, ACCOUNT),
        ("aws:ResourceAccount", "arn:aws:sqs:us-west-2:210987654321:queue", "210987654321"),
    ],
)
def test_the_account_of_a_resource_is_known(key: str, resource: str, owner: str) -> None:
    permission = Permission("s3:GetObject", resource)
    assert allowed(policy(Condition={"StringEquals": {key: owner}}), permission=permission)
    assert not allowed(policy(Condition={"StringNotEquals": {key: owner}}), permission=permission)


def test_an_unknown_operator_is_an_error_and_no_guess() -> None:
    with pytest.raises(PolicyError, match="StringSoundsLike"):
        allowed(policy(Condition={"StringSoundsLike": {"s3:prefix": "2027-01-01"}}))


def test_policy_variables_are_filled() -> None:
    own = {"Version": "2012-10-17", **policy(Resource="arn:aws:s3:::bucket/${aws:PrincipalAccount}/*")}
    assert allowed(own, permission=Permission("s3:GetObject", f"arn:aws:s3:::bucket/{ACCOUNT}/a"))
    assert not allowed(own)
    assert not allowed(
        policy(Resource="arn:aws:s3:::bucket/${aws:username}"),
        permission=Permission(READ.action, "arn:aws:s3:::bucket/"),
    )


def test_refusals_say_what_lacks_in_the_words_of_aws() -> None:
    reason = decide(CALLER, READ, identity=[], resource=None, account=ACCOUNT).reason
    assert reason == "because no identity-based policy allows the s3:GetObject action"
    assert CALLER.label == f"arn:aws:sts::{ACCOUNT}:assumed-role/function/session"
