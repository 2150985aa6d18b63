"""One test for a rule over many places, which lists all places that break it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVarTuple

Case = TypeVarTuple("Case")


def hold_for_every(rule: Callable[[*Case], None], cases: Iterable[tuple[*Case]]) -> None:
    """Require that a rule holds for every case, and that there are cases.

    Args:
        rule: Raises for a case that breaks the rule.
        cases: The arguments of each call.

    Raises:
        AssertionError: With one paragraph for each broken case.
    """
    checked, broken = 0, []
    for case in cases:
        checked += 1
        try:
            rule(*case)
        except Exception as error:  # noqa: BLE001  (a parser's own errors count as well)
            broken.append(f"{', '.join(map(str, case))}: {error or type(error).__name__}")
    assert checked, "The rule has no case."
    assert not broken, "\n\n".join(broken)
