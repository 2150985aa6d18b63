"""Resource quantities (`500m`, `64Mi`, `2`), as exact fractions."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

_FORM = re.compile(r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$")
_SUFFIXES = {
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate(("n", "u", "m", "", "k", *"MGTPE"), start=-3)},
    **{f"{letter}i": Fraction(1024) ** power for power, letter in enumerate("KMGTPE", start=1)},
}


class BadQuantity(ValueError):
    """The text is not a quantity; the message is the API server's."""

    def __init__(self) -> None:
        super().__init__(f"quantities must match the regular expression '{_FORM.pattern}'")


def parse_quantity(text: str | int | float) -> Fraction:
    """The exact value of a quantity.

    Raises:
        BadQuantity: If the text has another form than a number and one known suffix.
    """
    return _parsed(str(text))


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Fraction:
    matched = _FORM.match(text)
    if matched is None:
        raise BadQuantity
    digits, suffix = matched.groups()
    try:
        if re.fullmatch(r"[eE][-+]?\d+", suffix):
            return Fraction(digits + suffix)
        return Fraction(digits) * _SUFFIXES[suffix]
    except (KeyError, ValueError):
        raise BadQuantity from None


def format_quantity(value: Fraction) -> str:
    """A sum as a quantity: whole numbers plain, the rest in thousandths."""
    if value.denominator == 1:
        return str(value.numerator)
    return f"{-(-value * 1000 // 1)}m"


def add_quantities(*amounts: dict[str, Fraction]) -> dict[str, Fraction]:
    """Sums per resource name."""
    total: dict[str, Fraction] = {}
    for amount in amounts:
        for name, value in amount.items():
            total[name] = total.get(name, Fraction(0)) + value
    return total


def format_binary(amount: Fraction) -> str:
    """Bytes with the largest of the suffixes Ki, Mi, … that leaves a whole number."""
    suffixes = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
    power = 0
    while amount and amount % 1024 == 0 and power + 1 < len(suffixes):
        amount, power = amount / 1024, power + 1
    return f"{format_quantity(amount)}{suffixes[power]}"
