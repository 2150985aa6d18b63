"""docs/upstream.md has an entry for each part of moto that the twin replaces."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

FOLDER = Path("local/aws")
PAGE = Path("docs/upstream.md")
ROW = re.compile(r"\| `([\w/]+\.py)` \| (.+) \| (.+) \|")
SEVERAL = "…"
"""In the page: attributes whose names the code computes."""


def replaced() -> dict[str, set[str]]:
    """What each module replaces, as `Owner.attribute`."""
    found = defaultdict(set)
    for path in sorted(FOLDER.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "replace":
                owner, name, _ = call.args
                attribute = name.value if isinstance(name, ast.Constant) else SEVERAL
                found[path.relative_to(FOLDER).as_posix()].add(f"{ast.unparse(owner)}.{attribute}")
    return dict(found)


def test_the_page_names_every_replaced_function_and_no_other() -> None:
    rows = {
        found[1]: set(re.findall(r"`([^`]+)`", found[2])) for found in ROW.finditer(PAGE.read_text(encoding="utf-8"))
    }
    assert rows == replaced()


def test_every_entry_says_whether_it_is_offered() -> None:
    for found in ROW.finditer(PAGE.read_text(encoding="utf-8")):
        assert re.match(r"(Offered|In part|Not offered): .{20,}", found[3]), found[1]
