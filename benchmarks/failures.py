"""Share of failed jobs that are judged rightly: whether a restart can help, and the name of its error.

The corpus is JSON lines: `name`, `stage`, `logs` (lines of the failed pod), `exit_code`, `pod_reason`, `job_reason`,
`pending_reason`, `last_step`, `restart` (whether a restart can help) and `classes` (words for the class; each of them
is right). Another corpus can be given with `--corpus FILE`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.result import BenchmarkFailed, Result, this_machine
from trainflow.failures.judging import Evidence, Verdict, judge
from trainflow.failures.table import failure_table

CORPUS = Path(__file__).parent.parent / "tests" / "assets" / "failures" / "corpus.jsonl"

FIELDS = ("name", "restart", "classes")
"""Fields that every case needs; the others may be null or missing."""


def run(corpus: Path = CORPUS) -> Result:
    """Judges every case of a corpus.

    Args:
        corpus: The file.

    Raises:
        BenchmarkFailed: If it cannot be read, or a line of it is not a case.
    """
    cases = read_corpus(corpus)
    failure_table()  # it is read once per process
    began = time.perf_counter()
    verdicts = [judge(case_evidence(case)) for case in cases]
    seconds = time.perf_counter() - began
    judged = list(zip(cases, verdicts, strict=True))
    wrong = [_described(case, verdict) for case, verdict in judged if not is_right(case, verdict)]
    return Result(
        benchmark="failures",
        ratios={
            "restart_right": _share(verdict.restart == case["restart"] for case, verdict in judged),
            "in_vain": _share(verdict.restart and not case["restart"] for case, verdict in judged),
            "class_right": _share(has_class(case, verdict) for case, verdict in judged),
        },
        seconds={"per_case": round(seconds / len(cases), 5)},
        machine=this_machine(),
        details={
            "cases": len(cases),
            "restarted_in_vain": [case["name"] for case, verdict in judged if verdict.restart and not case["restart"]],
            "wrong": wrong,
        },
    )


def read_corpus(path: Path) -> list[dict[str, Any]]:
    """The cases of a corpus.

    Raises:
        BenchmarkFailed: If the file cannot be read, is empty, or a line of it is not a case.
    """
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise BenchmarkFailed(f"{path} cannot be read ({error}).") from error
    cases = []
    for number, line in enumerate(lines, start=1):
        try:
            case = json.loads(line)
        except ValueError as error:
            raise BenchmarkFailed(f"Line {number} of {path} is no JSON object ({error}).") from error
        if not isinstance(case, dict) or any(field not in case for field in FIELDS):
            raise BenchmarkFailed(f"Line {number} of {path} lacks one of the fields {', '.join(FIELDS)}.")
        cases.append(case)
    if not cases:
        raise BenchmarkFailed(f"{path} has no cases.")
    return cases


def case_evidence(case: Mapping[str, Any]) -> Evidence:
    """The evidence that a case describes."""
    logs = case.get("logs") or []
    return Evidence(
        lines=logs.splitlines() if isinstance(logs, str) else [str(line) for line in logs],
        exit_code=case.get("exit_code"),
        pod_reason=case.get("pod_reason"),
        job_reason=case.get("job_reason"),
        pending_reason=case.get("pending_reason"),
        has_steps=case.get("last_step") is not None,
    )


def has_class(case: Mapping[str, Any], verdict: Verdict) -> bool:
    """Whether one of the case's words is the class, a part of its name, or another name of it in the table."""
    names = [_plain(verdict.error.name), *map(_plain, verdict.error.words)]
    expected = [word for word in map(_plain, case["classes"]) if word]
    return any(word in name or name == word for word in expected for name in names)


def is_right(case: Mapping[str, Any], verdict: Verdict) -> bool:
    """Whether both the decision and the class are right."""
    return bool(verdict.restart == case["restart"]) and has_class(case, verdict)


def _plain(word: str) -> str:
    return "".join(letter for letter in str(word).lower() if letter.isalnum())


def _described(case: Mapping[str, Any], verdict: Verdict) -> dict[str, Any]:
    return {
        "name": case["name"],
        "expected": {"restart": case["restart"], "classes": case["classes"]},
        "judged": {"restart": verdict.restart, "class": verdict.error.name, "by": verdict.rule},
        "line": verdict.quotation,
    }


def _share(outcomes: Iterable[bool]) -> float:
    found = list(outcomes)
    return round(sum(found) / len(found), 4)
