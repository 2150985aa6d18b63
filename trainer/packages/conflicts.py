"""Conflicts between requirements and the image, read from pip's output and said with file, line and both versions.

pip prints the requirements that exclude each other below "The conflict is caused by:" (pip documentation, "Dependency
Resolution"), and the way to each package in "(from A->B->-r FILE (line N))".
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainer.packages.image import Constraint, Package, canonical
from trainer.packages.requirement_lines import Line

REQUIRED = "required.txt"
"""Name of the file that pip reads: one line of it for each line of the requirements files."""

_CAUSES = "The conflict is caused by:"
_BY_USER = re.compile(r"The user requested (?!\(constraint\))(?P<requirement>.+)")
_BY_PACKAGE = re.compile(r"(?P<package>\S+) (?P<version>\S+) depends on (?P<requirement>.+)")
_FROM = re.compile(rf"(?P<asked>\S+) \(from (?P<way>.*?)-r \S*{re.escape(REQUIRED)} \(line (?P<line>\d+)\)\)")
_BY_LINE = re.compile(rf"-r \S*{re.escape(REQUIRED)} \(line (?P<line>\d+)\)")
_NAME = re.compile(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """A requirement that the image does not meet and that may not be installed."""

    package: str
    """Name of the image's package."""
    requirement: str
    """Versions that are required."""
    by: str | None
    """Package that requires them, with its version; None for a line of the files."""
    lines: tuple[Line, ...]
    """Lines that lead to it; empty if pip names none."""
    version: str | None
    """Version that the image has; None if the image lacks the package."""
    limit: Constraint | None
    """Requirement of another package of the image; None where the package itself stays as it is."""

    @property
    def sentence(self) -> str:
        """The conflict in words."""
        places = ", ".join(line.place for line in self.lines)
        what = f"{self.by} needs {self.requirement}" if self.by else f"asks for {self.requirement}"
        asked = f"{places}: {what}" if places and self.by else f"{places} {what}" if places else what
        has = f"the image has {self.package} {self.version}" if self.version else f"the image has no {self.package}"
        if self.limit is None:
            return f"{asked}, but {has}"
        source = self.limit.source
        return (
            f"{asked}, but {source.name} {source.version} of the image needs {self.limit.line.split(' ;')[0]} ({has})"
        )


def with_the_image(
    output: str, lines: Sequence[Line], *, image: Mapping[str, Package], limits: Sequence[Constraint]
) -> list[Conflict]:
    """Conflicts with what the image has; empty if pip failed for another reason.

    Args:
        output: What pip printed.
        lines: The lines that it read.
        image: Packages of the image, by name.
        limits: Constraints of the image.
    """
    limited = {each.name: each for each in limits}
    read = [line for line in lines if not line.constrains]
    found = []
    for by, requirement in _requirements(output):
        match = _NAME.match(requirement)
        limit = limited.get(canonical(match[0])) if match else None
        if match is None or limit is None:
            continue
        own = limit.source.name == limit.name
        found.append(
            Conflict(
                package=limit.name,
                requirement=requirement,
                by=by,
                lines=(*_lines_to(by, requirement, output, read), *_constraints_on(limit.name, lines)),
                version=image[limit.name].version if limit.name in image else None,
                limit=None if own else limit,
            )
        )
    return list(dict.fromkeys(found))


def _causes(output: str) -> Iterator[str]:
    """Sentences of pip about requirements that exclude each other."""
    _, found, text = output.rpartition(_CAUSES)
    lines = (line.strip() for line in (text.splitlines()[1:] if found else ()))
    return itertools.takewhile(bool, lines)


def _requirements(output: str) -> Iterator[tuple[str | None, str]]:
    """Requirements that exclude each other: who requires, and what; constraints are left out."""
    for line in _causes(output):
        if match := _BY_USER.fullmatch(line):
            yield None, match["requirement"]
        elif match := _BY_PACKAGE.fullmatch(line):
            yield f"{match['package']} {match['version']}", match["requirement"]


def _lines_to(by: str | None, requirement: str, output: str, read: Sequence[Line]) -> tuple[Line, ...]:
    """Lines of the files that lead to a requirement."""
    if by is None:
        exact = [line for line in read if _squeezed(line.text) == _squeezed(requirement)]
        name = _NAME.match(requirement)
        return tuple(exact) or tuple(line for line in read if name and line.name == canonical(name[0]))
    package = canonical(re.split(r"[\[ ]", by)[0])
    direct = [line for line in read if line.name == package]
    numbers = (int(match["line"]) for match in _FROM.finditer(output) if _asked_name(match["asked"]) == package)
    reached = [read[number - 1] for number in numbers if 0 < number <= len(read)]
    return tuple(dict.fromkeys(direct or reached or _blamed(output, read)))


def _constraints_on(package: str, lines: Sequence[Line]) -> Iterator[Line]:
    return (line for line in lines if line.constrains and line.name == package)


def _blamed(output: str, read: Sequence[Line]) -> Iterator[Line]:
    """Lines that pip's last error names by their number in the file that it read."""
    errors = [line for line in output.splitlines() if line.startswith("ERROR: Cannot install ")]
    for match in _BY_LINE.finditer(errors[-1] if errors else ""):
        number = int(match["line"])
        if 0 < number <= len(read):
            yield read[number - 1]


def _asked_name(asked: str) -> str:
    """Name of a requirement or of a file in pip's output, such as `./w/vis-1.0-py3-none-any.whl`."""
    last = asked.rstrip("/").rpartition("/")[2]
    match = _NAME.match(re.split(r"-\d", last)[0] if last.endswith((".whl", ".gz", ".zip")) else last)
    return canonical(match[0]) if match else ""


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text.split(" ;")[0].split(" --")[0]).lower()


def sentence(found: Iterable[Conflict]) -> str:
    """All conflicts, and what to do about them."""
    ordered = list(dict.fromkeys(found))
    names = ", ".join(sorted({each.limit.source.name if each.limit else each.package for each in ordered}))
    return (
        f"{'; '.join(each.sentence for each in ordered)}. Change the requirements so that they fit the image, or the "
        f"image; to install others before the image's, name them in workload.replace_packages: [{names}]."
    )


def other(output: str, lines: Sequence[Line]) -> str:
    """The reason of another failure, in pip's own words, with lines of the user's files."""
    errors = [line.strip() for line in output.splitlines() if line.startswith("ERROR:")]
    said = errors or [line.strip() for line in output.splitlines() if line.strip()][-1:] or ["pip printed no error"]
    read = [line for line in lines if not line.constrains]

    def place(match: re.Match[str]) -> str:
        number = int(match["line"])
        return read[number - 1].place if 0 < number <= len(read) else match[0]

    return _BY_LINE.sub(place, " ".join([*said, "; ".join(_causes(output))]).strip())
