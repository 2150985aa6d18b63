"""Amounts of resources as Kubernetes writes them (Kubernetes API reference, "Quantity")."""

from __future__ import annotations

from decimal import Decimal

BINARY_SUFFIXES = {unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
POWERS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def parse_quantity(text: object) -> Decimal:
    """The amount in base units: cores, bytes, pieces.

    Args:
        text: A number, or a text with a suffix or an exponent.

    Raises:
        ValueError: If the text has another form.
    """
    written = str(text)
    unit = next((suffix for suffix in BINARY_SUFFIXES if written.endswith(suffix)), None)
    factor = BINARY_SUFFIXES[unit] if unit else Decimal(1)
    if unit is None and written[-1:] in POWERS:
        unit = written[-1]
        factor = Decimal(10) ** POWERS[unit]
    try:
        return Decimal(written.removesuffix(unit or "")) * factor
    except ArithmeticError:
        raise ValueError(f"{written!r} is not an amount of a resource") from None
