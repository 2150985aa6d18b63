"""Comparison of a pod that was sent to a cluster with the pod that the cluster would store.

The API adds defaults, and so may others, so only what was sent is looked for: a value that is gone or another one has
been changed by admission.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainflow.observed.quantity import parse_quantity

CHANGES_FREELY = ("image", "imagePullPolicy", "resources")
"""Fields of a container that mirrors, `AlwaysPullImages` and autoscalers change, and that are judged by themselves."""


def lost_fields(sent: Mapping[str, Any], answer: Mapping[str, Any]) -> list[str]:
    """Names of the fields that no longer have what was sent. Additions are not counted.

    Args:
        sent: An object as it was sent.
        answer: The same object as the cluster would store it.
    """
    return [name for name, value in sent.items() if not _covers(answer.get(name), value)]


def lost_fields_of_container(sent: Mapping[str, Any], answer: Mapping[str, Any]) -> list[str]:
    """Names of a container's fields that were changed and that its program needs as they are.

    Requests may be changed. Limits may only be raised or removed: devices are limits, and memory above the limit ends
    a container.
    """
    fixed = {name: value for name, value in sent.items() if name not in CHANGES_FREELY}
    return lost_fields(fixed, answer) + (["resources.limits"] if _lower_limits(sent, answer) else [])


def _lower_limits(sent: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
    before, after = (((each.get("resources") or {}).get("limits") or {}) for each in (sent, answer))
    lowered = any(
        parse_quantity(after[name]) < parse_quantity(amount) for name, amount in before.items() if name in after
    )
    return lowered or any("/" in name and name not in after for name in before)


def _covers(answer: Any, sent: Any) -> bool:
    """Whether a value still holds what was sent. The API leaves out what is empty, and writes amounts its own way."""
    if isinstance(sent, Mapping):
        return not sent or (
            isinstance(answer, Mapping) and all(_covers(answer.get(key), value) for key, value in sent.items())
        )
    if isinstance(sent, list) and all(isinstance(each, Mapping) for each in sent):
        return all(any(_covers(other, each) for other in answer or ()) for each in sent)
    if not sent:
        return not answer
    return bool(answer == sent) or _is_same_amount(answer, sent)


def _is_same_amount(answer: Any, sent: Any) -> bool:
    try:
        return parse_quantity(answer) == parse_quantity(sent)
    except (ValueError, ArithmeticError):
        return False
