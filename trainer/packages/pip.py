"""Resolving and fetching with the image's own pip, whose configuration, credentials and certificates apply."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.packages import conflicts
from trainer.packages.image import Constraint, Package, canonical
from trainer.packages.requirement_lines import Line
from trainer.runtime.errors import CodeInvalid

OLDEST = "22.2"
"""Oldest pip that can report what it would install (pip's news, `install --dry-run --report`)."""

MOST_PASSES = 10
"""Conflicts that one message names: pip finds one at a time."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """A package that has to be installed."""

    name: str
    version: str
    sha256: str | None
    """Digest of its file on an index; None for what comes from a folder, a URL or a repository."""
    is_wheel: bool
    """Whether its file is a wheel, which nothing has to be built from."""
    url: str
    requested: bool

    @property
    def is_shareable(self) -> bool:
        """Whether its content is known by a digest before it is fetched, and no code runs to make it."""
        return self.sha256 is not None and self.is_wheel


def resolve(
    lines: Sequence[Line], *, image: Mapping[str, Package], limits: Sequence[Constraint], folder: Path
) -> list[Item]:
    """Packages that the image lacks, in versions that leave the image's protected ones as they are.

    Args:
        lines: Lines of the requirements files.
        image: Packages of the image, by name.
        limits: Constraints of the image.
        folder: Folder for pip's files.

    Raises:
        CodeInvalid: If pip finds no such versions. The message names every conflict with the image.
    """
    found: list[conflicts.Conflict] = []
    left = list(lines)
    for _ in range(MOST_PASSES):
        output = _dry_run(left, limits, folder)
        if output is None:
            if found:
                break
            return _items(folder / "report.json")
        more = conflicts.with_the_image(output, left, image=image, limits=limits)
        if not more:
            break
        found += more
        blamed = {line for each in more for line in each.lines}
        if not blamed:
            break
        left = [line for line in left if line not in blamed]
    if found:
        raise CodeInvalid(f"workload.requirements: {conflicts.sentence(found)}")
    raise CodeInvalid(
        f"workload.requirements: {_place(lines)} cannot be installed: {conflicts.other(output or '', left)}"
    )


def _place(lines: Sequence[Line]) -> str:
    return lines[0].file if lines else "the file"


def _dry_run(lines: Sequence[Line], limits: Sequence[Constraint], folder: Path) -> str | None:
    """Resolve; None if pip found a way, else its output."""
    required, constrained = folder / conflicts.REQUIRED, folder / "constraints.txt"
    required.write_text("".join(f"{line.text}\n" for line in lines if not line.constrains), encoding="utf-8")
    of_files = (line.text for line in lines if line.constrains and not line.is_option)
    constrained.write_text("".join(f"{text}\n" for text in (*of_files, *(each.line for each in limits))))
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    done = _run(
        *("install", "--dry-run", "--report", str(report), "--cache-dir", str(folder / "cache")),
        *("--constraint", str(constrained), "--requirement", str(required)),
    )
    if done.returncode == 0 and report.is_file():
        return None
    return done.stdout


def fetch(items: Sequence[Item], lines: Sequence[Line], *, into: Path, folder: Path) -> list[Path]:
    """Wheels of packages: files of an index as they are, others built.

    Args:
        items: The packages.
        lines: Lines of the requirements files, whose options name the indexes.
        into: Folder for the wheels.
        folder: Folder for pip's files.

    Raises:
        CodeInvalid: If pip cannot fetch or build one; the message ends in pip's own words.
    """
    into.mkdir(parents=True, exist_ok=True)
    options = [line.text for line in lines if line.is_option and not line.text.startswith("--require-hashes")]
    of_index = [f"{item.name}=={item.version} --hash=sha256:{item.sha256}" for item in items if item.sha256]
    if of_index:
        _wheels([*options, *of_index], into=into, folder=folder, lines=lines)
    if any(item.sha256 is None for item in items):
        asked = [line.text for line in lines if line.is_local and not line.is_option and not line.constrains]
        further = [f"{item.name} @ {item.url}" for item in items if item.sha256 is None and not item.requested]
        plain = [re.sub(r"\s--hash[=\s]\S+", "", text) for text in asked]
        _wheels([*options, *plain, *further], into=into, folder=folder, lines=lines)
    return sorted(into.glob("*.whl"))


def _wheels(wanted: Sequence[str], *, into: Path, folder: Path, lines: Sequence[Line]) -> None:
    listed = folder / "wanted.txt"
    listed.write_text("".join(f"{text}\n" for text in wanted), encoding="utf-8")
    done = _run(
        *("wheel", "--no-deps", "--wheel-dir", str(into), "--cache-dir", str(folder / "cache")),
        *("--requirement", str(listed)),
    )
    if done.returncode:
        raise CodeInvalid(
            f"workload.requirements: {_place(lines)} cannot be installed: {conflicts.other(done.stdout, lines)}"
        )


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--no-color"]
    done = subprocess.run(
        [*pip, words[0], "--progress-bar", "off", *words[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    print(done.stdout, end="", flush=True)
    if "no such option: --report" in done.stdout or "no such option: --dry-run" in done.stdout:
        raise CodeInvalid(
            f"workload.requirements: the image's pip is older than {OLDEST}; install a newer one in the image."
        )
    return done


def _items(report: Path) -> list[Item]:
    try:
        document = json.loads(report.read_text(encoding="utf-8"))
        return [_item(each) for each in document["install"]]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise CodeInvalid(
            f"workload.requirements: the image's pip wrote a report that cannot be read ({error!r}); install pip "
            f"{OLDEST} or newer in the image."
        ) from error


def _item(found: Mapping[str, Any]) -> Item:
    download, metadata = found["download_info"], found["metadata"]
    url, direct = str(download["url"]), bool(found["is_direct"])
    return Item(
        name=canonical(metadata["name"]),
        version=str(metadata["version"]),
        sha256=None if direct else _sha256(download.get("archive_info") or {}),
        is_wheel=url.split("#")[0].endswith(".whl"),
        url=url,
        requested=bool(found["requested"]),
    )


def _sha256(archive: Mapping[str, Any]) -> str | None:
    digest = (archive.get("hashes") or {}).get("sha256")
    if digest is None and str(archive.get("hash", "")).startswith("sha256="):  # pip 22.2
        digest = str(archive["hash"]).partition("=")[2]
    return digest if isinstance(digest, str) and re.fullmatch("[0-9a-f]{64}", digest) else None
