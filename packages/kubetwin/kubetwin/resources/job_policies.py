"""The policies of a Job for failures and for success: what the server refuses in them (pkg/apis/batch/validation)."""

from __future__ import annotations

from collections.abc import Iterator

from kubetwin.model.errors import (
    AT_LEAST_ZERO,
    FieldError,
    Object,
    Shown,
    bad_object,
    bad_value,
    duplicate,
    not_supported,
    quoted_list,
    required,
    too_many,
)
from kubetwin.model.go_types import go_text
from kubetwin.model.names import follows, qualified_name

MOST_RULES, MOST_EXIT_CODES = 20, 255


def failure_policy_faults(spec: Object) -> Iterator[FieldError]:
    rules = (spec.get("podFailurePolicy") or {}).get("rules") or []
    template = spec["template"]["spec"]
    names = {c.get("name") for group in ("containers", "initContainers") for c in template.get(group) or []}
    if len(rules) > MOST_RULES:
        yield too_many("spec.podFailurePolicy.rules", len(rules), MOST_RULES)
    for place, rule in enumerate(rules):
        path = f"spec.podFailurePolicy.rules[{place}]"
        yield from _failure_action(rule.get("action", ""), spec, f"{path}.action")
        codes, patterns = rule.get("onExitCodes"), rule.get("onPodConditions") or []
        if codes is not None:
            yield from _exit_codes(codes, names, f"{path}.onExitCodes")
        for number, pattern in enumerate(patterns):
            yield from _condition_pattern(pattern, f"{path}.onPodConditions[{number}]")
        if codes is not None and patterns:
            yield bad_object(path, "specifying both OnExitCodes and OnPodConditions is not supported")
        if codes is None and not patterns:
            yield bad_object(path, "specifying one of OnExitCodes and OnPodConditions is required")


def _failure_action(action: str, spec: Object, path: str) -> Iterator[FieldError]:
    actions = ("Count", "FailIndex", "FailJob", "Ignore")
    if not action:
        yield required(path, f"valid values: {quoted_list(actions)}")
    elif action == "FailIndex":
        if spec.get("backoffLimitPerIndex") is None:
            yield bad_value(path, action, "requires the backoffLimitPerIndex to be set")
    elif action not in actions:
        yield not_supported(path, action, actions)


def _condition_pattern(pattern: Object, path: str) -> Iterator[FieldError]:
    yield from follows(qualified_name, f"{path}.type", pattern.get("type", ""))
    statuses = ("False", "True", "Unknown")
    if pattern.get("status") not in statuses:
        yield not_supported(f"{path}.status", pattern.get("status", ""), statuses)


def _exit_codes(codes: Object, names: set[str | None], path: str) -> Iterator[FieldError]:
    operators, operator = ("In", "NotIn"), codes.get("operator", "")
    if not operator:
        yield required(f"{path}.operator", f"valid values: {quoted_list(operators)}")
    elif operator not in operators:
        yield not_supported(f"{path}.operator", operator, operators)
    if "containerName" in codes and codes["containerName"] not in names:
        detail = "must be one of the container or initContainer names in the pod template"
        yield bad_value(f"{path}.containerName", codes["containerName"], detail)
    values = codes.get("values") or []
    if not values:
        yield bad_value(f"{path}.values", values or None, "at least one value is required")
    elif len(values) > MOST_EXIT_CODES:
        yield too_many(f"{path}.values", len(values), MOST_EXIT_CODES)
    for number, code in enumerate(values):
        if code == 0 and operator == "In":
            yield bad_value(f"{path}.values[{number}]", code, "must not be 0 for the In operator")
        if code in values[:number]:
            yield duplicate(f"{path}.values[{number}]", code)
    if values != sorted(values):
        yield bad_value(f"{path}.values", values, "must be ordered")


def success_policy_faults(spec: Object) -> Iterator[FieldError]:
    policy, path = spec.get("successPolicy"), "spec.successPolicy"
    if policy is None:
        return
    if spec["completionMode"] != "Indexed":
        yield bad_value(path, Shown(go_text(policy, "SuccessPolicy")), "requires indexed completion mode")
        return
    rules = policy.get("rules") or []
    if not rules:
        yield required(f"{path}.rules", "at least one rules must be specified when the successPolicy is specified")
    if len(rules) > MOST_RULES:
        yield too_many(f"{path}.rules", len(rules), MOST_RULES)
    for place, rule in enumerate(rules):
        yield from _success_rule(rule, spec.get("completions") or 0, f"{path}.rules[{place}]")


def _success_rule(rule: Object, completions: int, path: str) -> Iterator[FieldError]:
    count, indexes, total = rule.get("succeededCount"), rule.get("succeededIndexes"), None
    if count is None and indexes is None:
        yield required(path, "at least one of succeededCount or succeededIndexes must be specified")
    if indexes is not None:
        try:
            total = count_indexes(indexes, completions)
        except ValueError as fault:
            yield bad_value(f"{path}.succeededIndexes", indexes, f"error parsing succeededIndexes: {fault}")
            total = 0
    if count is None:
        return
    path = f"{path}.succeededCount"
    if count < 0:
        yield bad_value(path, count, AT_LEAST_ZERO)
    if count > completions:
        yield bad_value(
            path, count, f"must be less than or equal to {completions} (the number of specified completions)"
        )
    if total is not None and count > total:
        limit = f"{total} (the number of indexes in the specified succeededIndexes field)"
        yield bad_value(path, count, f"must be less than or equal to {limit}")


def count_indexes(text: str, completions: int) -> int:
    """Number of indexes that a list such as `0,2-4` names.

    Raises:
        ValueError: If it is not such a list, in the server's words.
    """
    total, last = 0, -1
    for part in text.split(",") if text else ():
        ends = part.split("-")
        if len(ends) > 2:
            rule = "an index interval can have at most two parts separated by '-'"
            raise ValueError(f'the fragment "{part}" violates the requirement that {rule}')
        numbers = [_index(end) for end in ends]
        for number in numbers:
            if number >= completions:
                raise ValueError(f'too large index: "{number}"')
        if numbers[0] <= last:
            raise ValueError(f"non-increasing order, previous: {last}, current: {numbers[0]}")
        if numbers[-1] < numbers[0] or (len(numbers) == 2 and numbers[1] == numbers[0]):
            raise ValueError(f"non-increasing order, previous: {numbers[0]}, current: {numbers[-1]}")
        total, last = total + numbers[-1] - numbers[0] + 1, numbers[-1]
    return total


def _index(text: str) -> int:
    if not text.isdigit():
        raise ValueError(f'cannot convert string to integer for index: "{text}"')
    return int(text)
