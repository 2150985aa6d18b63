"""Translation of a regular expression, parsed by Python, to the syntax of RE2.

The two syntaxes are alike, but some texts are valid in both with another meaning, such as `{,3}`, `\\s` or `$`. So what
Python's parser has understood is written anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from re import DOTALL, IGNORECASE, MULTILINE
from re import _constants as ops  # type: ignore[attr-defined]
from typing import Any

FLAGS = {IGNORECASE: "i", MULTILINE: "m", DOTALL: "s"}

UNSUPPORTED = {
    ops.ASSERT: "look-ahead or look-behind, (?=...) or (?<=...); write its text as a part of the expression",
    ops.ASSERT_NOT: "negative look-ahead or look-behind, (?!...) or (?<!...); write what the line has there instead",
    ops.GROUPREF: "a backreference to a group, (?P=name) or \\1; write the expression of the group again",
    ops.GROUPREF_EXISTS: "a condition on a group, (?(name)...|...); write the two cases as (?:...|...)",
    ops.POSSESSIVE_REPEAT: "a possessive repeat such as a*+; write a*",
    ops.ATOMIC_GROUP: "an atomic group, (?>...); write (?:...)",
}
"""Constructs that cannot be searched in linear time, each with what to write in its place."""

CATEGORIES = {
    ops.CATEGORY_DIGIT: "0-9",
    ops.CATEGORY_NOT_DIGIT: r"\D",
    ops.CATEGORY_WORD: r"\w",
    ops.CATEGORY_NOT_WORD: r"\W",
    ops.CATEGORY_SPACE: r"\x{9}-\x{d}\x{20}",
    ops.CATEGORY_NOT_SPACE: r"\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{10ffff}",
}
"""Categories inside of brackets. RE2's own \\s lacks the vertical tab."""

PLACES = {
    ops.AT_BEGINNING: "^",
    ops.AT_BEGINNING_STRING: r"\A",
    ops.AT_END: "$",
    ops.AT_END_STRING: r"\z",
    ops.AT_BOUNDARY: r"\b",
}
"""`\\B` is missing: RE2 finds it between the bytes of one character."""

NOTHING = r"[^\x{0}-\x{10ffff}]"
"""An expression that matches no text."""


class Unsupported(Exception):
    """The expression uses a construct that RE2 does not have; the message is the end of a sentence."""


def translated(parsed: Any) -> tuple[str, Sequence[str]]:
    """The expression in RE2's syntax, and the names of its groups in their order. Groups without a name are left out.

    Args:
        parsed: Result of Python's parser.

    Raises:
        Unsupported: If RE2 cannot search it.
        RecursionError: If its groups nest too deep.
    """
    names = {number: name for name, number in parsed.state.groupdict.items()}
    flags = _letters(parsed.state.flags)
    expression = _sequence(parsed, names)
    return (f"(?{flags}){expression}" if flags else expression), [names[number] for number in sorted(names)]


def _sequence(parsed: Any, names: Mapping[int, str]) -> str:
    return "".join(_operation(operation, argument, names) for operation, argument in parsed)


def _operation(operation: Any, argument: Any, names: Mapping[int, str]) -> str:
    match operation:
        case ops.LITERAL:
            return _character(argument)
        case ops.NOT_LITERAL:
            return f"[^{_character(argument)}]"
        case ops.ANY:
            return "."
        case ops.IN:
            return _brackets(argument)
        case ops.AT if argument in PLACES:
            return PLACES[argument]
        case ops.BRANCH:
            return f"(?:{'|'.join(_sequence(each, names) for each in argument[1])})"
        case ops.SUBPATTERN:
            number, added, removed, body = argument
            return _group(number, added, removed, body, names)
        case ops.MAX_REPEAT | ops.MIN_REPEAT:
            fewest, most, body = argument
            lazy = "?" if operation is ops.MIN_REPEAT else ""
            return f"(?:{_sequence(body, names)}){_times(fewest, most)}{lazy}"
        case ops.FAILURE:
            return NOTHING
    if operation is ops.AT:
        raise Unsupported("uses \\B; write what the line has at that place")
    raise Unsupported(f"uses {UNSUPPORTED.get(operation, 'a construct that cannot be searched in linear time')}")


def _group(number: int | None, added: int, removed: int, body: Any, names: Mapping[int, str]) -> str:
    inner = _sequence(body, names)
    off = f"-{_letters(removed)}" if _letters(removed) else ""
    inner = f"(?{_letters(added)}{off}:{inner})"
    return f"({inner})" if number in names else inner


def _times(fewest: int, most: Any) -> str:
    last = "" if most is ops.MAXREPEAT else most
    return {"0,": "*", "1,": "+", "0,1": "?"}.get(f"{fewest},{last}", f"{{{fewest},{last}}}")


def _brackets(items: Any) -> str:
    written = ""
    for kind, value in items:
        match kind:
            case ops.NEGATE:
                written += "^"
            case ops.LITERAL:
                written += _character(value)
            case ops.RANGE:
                written += f"{_character(value[0])}-{_character(value[1])}"
            case ops.CATEGORY:
                written += CATEGORIES[value]
    return f"[{written}]"


def _character(code: int) -> str:
    character = chr(code)
    return character if character.isascii() and character.isalnum() else f"\\x{{{code:x}}}"


def _letters(flags: int) -> str:
    return "".join(letter for flag, letter in FLAGS.items() if flags & flag)
