"""docs/security.md: each promise in it names the tests that hold it."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.rehearsal import TEST, Assumption, missing_tests

PROMISES = re.compile(r"^## Promises\n(.*?)^## ", re.M | re.S)


def test_every_promise_names_tests_that_exist() -> None:
    table = PROMISES.search(Path("docs/security.md").read_text(encoding="utf-8"))
    assert table
    _, _, *rows = (line for line in table[1].splitlines() if line.startswith("|"))
    promises = [
        Assumption(
            statement=row.split("|")[1].strip(),
            source=None,
            tests=tuple((match["file"], match["name"]) for match in TEST.finditer(row)),
        )
        for row in rows
    ]
    assert [promise.statement for promise in promises if not promise.tests] == []
    assert missing_tests(promises) == []
