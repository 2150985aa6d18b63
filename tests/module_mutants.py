"""Small faults in Python modules, and how many of them the unit tests notice.

    python -m tests.module_mutants [protocol logic backends checkpoints staging] [--count 120] [--seed 1] [--jobs 2]

mutmut makes the faults (another comparison, a missing argument, another constant …) in a copy of the repository, and
runs on each the tests that reach its function. A fault that no test reaches has survived; one that lets a test run for
ever is noticed; one that does the same as the code (`EQUIVALENT`) does not count. `uv` adds mutmut to the packages of
this environment for the time of the run.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
MUTMUT = "mutmut==3.8.1"
NOTHING = "no.such.mutant"
"""Name with which mutmut makes all mutants, finds out which tests reach them, and runs none."""

SURVIVED = frozenset({"survived", "no tests"})
NOTICED = frozenset({"killed", "timeout", "segfault", "caught by type check"})

EQUIVALENT = (
    # Names of HTTP headers have no case (RFC 9110, 5.1).
    (re.compile(r'(?i)"(?:if-match|host|range|content-range|content-type|etag)"'), lambda found: found[0].casefold()),
    # hashlib knows its algorithms by their names in capitals, too.
    (re.compile(r'(?i)hashlib\.(?:new|file_digest)\((?:\w+, )?"sha\d+"'), lambda found: found[0].casefold()),
    # Says something on machines in FIPS mode alone.
    (re.compile(r"usedforsecurity=\w+"), lambda _found: ""),
    # The default since torch 2.6; the trainer runs on 2.9 and newer.
    (re.compile(r", weights_only=(?:True|None)"), lambda _found: ""),
    # The default of subprocess.run, which the linter wants to be named.
    (re.compile(r", (?:check=(?:False|None))?\)"), lambda _found: ")"),
    # json.dumps asks only whether they are true.
    (re.compile(r"(?:allow_nan|ensure_ascii)=(?:False|None)"), lambda _found: ""),
    # mutmut's XX become two more of the characters to strip, and no ETag ends with one.
    (re.compile(r"""\.strip\('(?:XX)?"(?:XX)?'\)"""), lambda _found: ""),
)
"""Changes that no test can notice: a part of a line, and what makes it the same before and after them."""

_RESULT = re.compile(r"^\s*(?P<mutant>\S+__mutmut_\d+): (?P<status>[a-z ]+)$")


@dataclass(frozen=True, kw_only=True)
class Group:
    """Modules that have their tests in one folder."""

    package: str
    """Top-level package that mutmut copies."""
    modules: tuple[str, ...]
    """Patterns of the files in which faults are made."""
    tests: tuple[str, ...]
    floor: float
    """Least share of mutants that is noticed; 0.9 is the aim."""


GROUPS: Mapping[str, Group] = {
    "protocol": Group(
        package="trainflow",
        modules=("trainflow/protocol/*.py", "trainflow/observed/step.py"),
        tests=("tests/unit/protocol",),
        floor=0.9,
    ),
    "logic": Group(package="lambdas", modules=("lambdas/logic/*.py",), tests=("tests/unit/lambdas",), floor=0.9),
    "backends": Group(package="lambdas", modules=("lambdas/backends/*.py",), tests=("tests/unit/lambdas",), floor=0.9),
    "checkpoints": Group(
        package="trainer",
        modules=("trainer/checkpoints/*.py",),
        tests=tuple(
            f"tests/unit/trainer/test_{subject}.py"
            for subject in (
                "checkpoint",
                "checkpoint_files",
                "complete_checkpoints",
                "fingerprint",
                "host_copy",
                "resume",
            )
        ),
        floor=0.9,
    ),
    "staging": Group(
        package="trainer",
        modules=("trainer/staging/*.py",),
        tests=("tests/unit/trainer/staging", "tests/unit/trainer/test_stage.py"),
        floor=0.9,
    ),
}


def statuses(results: str) -> dict[str, str]:
    """What became of each mutant, from the output of `mutmut results`."""
    return {found["mutant"]: found["status"] for line in results.splitlines() if (found := _RESULT.match(line))}


def sample(mutants: Sequence[str], count: int, *, seed: int) -> list[str]:
    """Some of the mutants, the same for the same seed."""
    return sorted(random.Random(seed).sample(sorted(mutants), min(count, len(mutants))))


def settings(group: Group) -> str:
    """mutmut's section of pyproject.toml."""
    others = sorted(path.name for path in _tracked_at_the_top() if path.name not in {group.package, "tests"})
    return "\n".join(
        [
            "[tool.mutmut]",
            # A fork of a process in which tests have run lacks the threads of libraries, and may crash without a fault.
            'process_isolation = "forkserver"',
            f"source_paths = {[group.package]}",
            f"only_mutate = {list(group.modules)}",
            f"also_copy = {others}",
            f"pytest_add_cli_args_test_selection = {list(group.tests)}",
            f"pytest_add_cli_args = {['-p', 'no:cacheprovider', '-m', 'not slow and not lengthy']}",
            "",
        ]
    )


def measure(group: Group, folder: Path, *, count: int, seed: int, jobs: int) -> dict[str, str]:
    """What became of a sample of a group's mutants.

    Args:
        group: The modules.
        folder: Folder in which the copy of the repository is made.
        count: Size of the sample.
        seed: Seed of the sample.
        jobs: Number of mutants at a time.

    Raises:
        SystemExit: If the tests fail without a fault, with what mutmut printed.
    """
    copy_repository(folder)
    with (folder / "pyproject.toml").open("a") as project:
        project.write("\n" + settings(group))
    said = _mutmut(folder, "run", NOTHING)
    chosen = sample(list(statuses(_mutmut(folder, "results", "--all", "true"))), count, seed=seed)
    if not chosen:
        raise SystemExit(f"mutmut made no mutants:\n{said[-3000:]}")
    said = _mutmut(folder, "run", "--max-children", str(jobs), *chosen)
    found = statuses(_mutmut(folder, "results", "--all", "true"))
    if any(found[mutant] not in SURVIVED | NOTICED for mutant in chosen):
        raise SystemExit(f"mutmut did not run all mutants:\n{said[-3000:]}")
    return {mutant: found[mutant] for mutant in chosen}


def copy_repository(folder: Path) -> None:
    """Copy what belongs to the repository into a folder that is there."""
    for path in _tracked_at_the_top():
        copy = shutil.copytree if path.is_dir() else shutil.copy2
        copy(path, folder / path.name)


def changes(folder: Path, mutant: str) -> str:
    """The lines that a mutant changes."""
    lines = _mutmut(folder, "show", mutant).splitlines()
    return "\n".join(f"    {line}" for line in lines if re.match(r"[+-](?![+-]{2} )", line))


def is_equivalent(lines: str) -> bool:
    """Whether a change does the same as what it replaces.

    Args:
        lines: The lines that it removes and adds, as `changes` returns them.
    """
    signs = {"-": "", "+": ""}
    for line in lines.splitlines():
        signs[line.strip()[0]] += line.strip()[1:]
    before, after = signs["-"], signs["+"]
    return any(part.sub(same, before) == part.sub(same, after) for part, same in EQUIVALENT)


def _mutmut(folder: Path, *words: str) -> str:
    """Run mutmut in the copy of the repository, and return what it prints."""
    overlay = (sys.executable, "-m", "uv", "run", "--quiet", "--active", "--no-project", "--with", MUTMUT)
    environment = {**os.environ, "VIRTUAL_ENV": sys.prefix, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [*overlay, "--", "python", "-m", "mutmut", *words]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return done.stdout


def _tracked_at_the_top() -> list[Path]:
    """What stands at the top of the repository and belongs to it."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    names = {name.partition("/")[0] for name in listed.split("\0") if name}
    return [REPOSITORY / name for name in sorted(names) if (REPOSITORY / name).exists()]


def main(argv: list[str] | None = None) -> int:
    """Print the survivors and the share that was noticed of each group; 1 if one is below its floor."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], help="all, if none is named")
    parser.add_argument("--count", type=int, default=120, help="size of each group's sample")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants at a time")
    options = parser.parse_args(argv)
    is_below = False
    for name in options.groups or GROUPS:
        group = GROUPS[name]
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            found = measure(group, Path(folder), count=options.count, seed=options.seed, jobs=options.jobs)
            for mutant in [mutant for mutant, status in found.items() if status in SURVIVED]:
                lines = changes(Path(folder), mutant)
                if is_equivalent(lines):
                    del found[mutant]
                else:
                    print(f"survived ({found[mutant]}): {mutant}\n{lines}")
        noticed = sum(status in NOTICED for status in found.values())
        share = noticed / len(found)
        is_below |= share < group.floor
        print(
            f"{name}: {noticed} of {len(found)} mutants were noticed: {share:.1%}, floor {group.floor:.0%}", flush=True
        )
    return int(is_below)


if __name__ == "__main__":
    sys.exit(main())
