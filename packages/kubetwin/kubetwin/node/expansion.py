"""`$(NAME)` references in commands, arguments and environment values."""

from __future__ import annotations

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by the variable's value, as Kubernetes does.

    `$$` is a literal `$`, so that `$$(NAME)` comes out as `$(NAME)`; a reference to a variable that is
    not there stays as it is written.
    """

    def substitute(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name is None else variables.get(name, match[0])

    return _REFERENCE.sub(substitute, text)
