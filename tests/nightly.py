"""The proofs that take too long for each change: `make nightly` runs them and writes `docs/nightly.md`.

    python -m tests.nightly [PHASE …]

Each phase keeps the result of its last run, so that one phase can be run again. A failure is written as well, and ends
the command with status 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.result import this_machine

RESULTS = Path("tests/nightly_results.json")
PAGE = Path("docs/nightly.md")
_PYTEST = ("-m", "pytest", "-q", "--timeout", "3600")


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A part that runs by itself.

    Attributes:
        title: What it proves, for the page.
        words: Arguments of Python.
        folder: Working folder.
        counts_tests: Whether the words run pytest, which reports each test.
    """

    title: str
    words: tuple[str, ...]
    folder: str = "."
    counts_tests: bool = True


PHASES = {
    "slow": Phase(title="Proofs that take more than ten seconds of CPU each", words=(*_PYTEST, "-m", "slow")),
    "programs": Phase(
        title="The trainer and its programs on the newest PyTorch",
        words=(*_PYTEST, "-m", "not slow", "tests/unit/trainer", "tests/integration/trainer"),
    ),
    "inputs": Phase(
        title="Generated inputs, eight times as many as for each change",
        words=(*_PYTEST, "-m", "hypothesis and not slow", "--hypothesis-profile", "nightly"),
    ),
    "types-of-lambdas": Phase(
        title="Types of the functions on the Python that they are deployed on",  # typeshed knows what went since 3.11
        words=("-m", "mypy", "--python-version", "3.14", "-p", "lambdas"),
        counts_tests=False,
    ),
    "types-of-trainer": Phase(
        title="Types of the trainer on the Python of its images",
        words=("-m", "mypy", "--python-version", "3.12", "-p", "trainer"),
        counts_tests=False,
    ),
    "kubetwin": Phase(title="Long proofs of kubetwin", words=(*_PYTEST, "-m", "slow"), folder="packages/kubetwin"),
    "kubetwin-inputs": Phase(
        title="Generated inputs for kubetwin, forty times as many as for each change",
        words=(*_PYTEST, "-m", "hypothesis and not slow", "--hypothesis-profile", "thorough", "tests/unit"),
        folder="packages/kubetwin",
    ),
    "machines": Phase(title="Small faults in the state machines", words=("-m", "tests.mutants"), counts_tests=False),
    "modules": Phase(title="Small faults in modules", words=("-m", "tests.module_mutants"), counts_tests=False),
    "stacks": Phase(title="Small faults in the stacks", words=("-m", "tests.stack_mutants"), counts_tests=False),
}


@dataclass(frozen=True, kw_only=True)
class Result:
    """How the last run of a phase ended.

    Attributes:
        commit: Abbreviated hash of the commit that was checked out.
        began: Date in UTC.
        seconds: Duration in seconds.
        machine: Cores and memory.
        status: Exit status; 0 means that everything held.
        summary: Numbers of tests by outcome, or the last line of the output.
        failed: Names of the tests that failed.
        skipped: Reasons of skipped tests, each with its number.
    """

    commit: str
    began: str
    seconds: int
    machine: str
    status: int
    summary: str
    failed: list[str]
    skipped: dict[str, int]


def run(phase: Phase) -> Result:
    """Run a phase and describe how it ended. Its output goes to the terminal, too."""
    began, start = datetime.now(UTC), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        words = [*phase.words, f"--junitxml={report}"] if phase.counts_tests else list(phase.words)
        last = ""
        with subprocess.Popen([sys.executable, *words], cwd=phase.folder, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                print(line, end="", flush=True)
                last = line.strip() or last
        summary, failed, skipped = outcomes(report) if report.exists() else (last, [], {})
    return Result(
        commit=_output("git", "rev-parse", "--short=8", "HEAD"),
        began=f"{began:%Y-%m-%d}",
        seconds=round(time.monotonic() - start),
        machine="{cores} cores, {memory_gib} GiB".format(**this_machine()),
        status=process.returncode,
        summary=summary,
        failed=failed,
        skipped=skipped,
    )


def outcomes(report: Path) -> tuple[str, list[str], dict[str, int]]:
    """Numbers of tests by outcome, names of the failed ones, and the reasons of the skipped ones.

    Args:
        report: pytest's report in JUnit's format.
    """
    counts, failed, skipped = Counter[str](), list[str](), Counter[str]()
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            counts["failed"] += 1
            failed.append(name)
        elif (reason := case.find("skipped")) is not None:
            counts["skipped"] += 1
            skipped[(reason.get("message") or "").partition(": ")[2] or reason.get("message") or ""] += 1
        else:
            counts["passed"] += 1
    summary = ", ".join(
        f"{counts[outcome]:,} {outcome}" for outcome in ("passed", "failed", "skipped") if counts[outcome]
    )
    return summary, failed, dict(skipped)


def page(results: dict[str, Result]) -> str:
    """The page with the last result of each phase."""
    lines = [
        "# Last results of the long proofs",
        "",
        "`make nightly` runs what takes too long for each change and writes this page.",
        "",
        "| phase | result | duration | commit, date, machine |",
        "|---|---|---|---|",
    ]
    for name, phase in PHASES.items():
        result = results.get(name)
        lines.append(f"| {phase.title} (`{name}`) | {_row(result) if result else 'not run yet | | |'}")
    for name, result in results.items():
        lines += _details(name, result)
    return "\n".join(lines) + "\n"


def _row(result: Result) -> str:
    minutes, seconds = divmod(result.seconds, 60)
    held = "held" if result.status == 0 else "**failed**"
    return (
        f"{held}: {result.summary} | {minutes}:{seconds:02} min | {result.commit}, {result.began}, {result.machine} |"
    )


def _details(name: str, result: Result) -> Iterable[str]:
    for title, found in (
        ("Failed", [f"`{each}`" for each in result.failed]),
        ("Skipped", [f"{count} × {reason}" for reason, count in result.skipped.items()]),
    ):
        if found:
            yield from ("", f"{title} in `{name}`:", "", *(f"* {each}" for each in found))


def stored() -> dict[str, Result]:
    """The last result of each phase that has run."""
    if not RESULTS.exists():
        return {}
    return {name: Result(**fields) for name, fields in json.loads(RESULTS.read_text()).items()}


def _store(results: dict[str, Result]) -> None:
    ordered = {name: asdict(results[name]) for name in PHASES if name in results}
    RESULTS.write_text(json.dumps(ordered, indent=2) + "\n")
    PAGE.write_text(page(results))


def _output(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Run the phases and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phase", nargs="*", choices=[*PHASES, []], help="all, if none is named")
    parser.add_argument("--page", action="store_true", help="write the page from the stored results, and run nothing")
    options = parser.parse_args()
    results, names = stored(), [] if options.page else options.phase or list(PHASES)
    for name in names:
        results[name] = run(PHASES[name])
        _store(results)
    if options.page:
        _store(results)
    sys.exit(1 if any(results[name].status for name in names) else 0)


if __name__ == "__main__":
    main()
