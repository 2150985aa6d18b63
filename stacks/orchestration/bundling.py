"""The code of all functions: one archive that only pip puts together, so that no Docker is needed where you deploy.

What goes in is `lambdas/`, `trainflow/` and the packages of `requirements/lambdas.in` in the versions that
`requirements.txt` pins, as wheels for the functions' platform. Its hash comes from these inputs: nothing changed means
nothing is built, nothing is uploaded and no function is updated.

boto3 is part of Lambda's runtime, but goes in as well: AWS moves the runtime's version, and what was tested has to run.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_

from trainflow.configuration.deployment import ConfigurationError

REPOSITORY = Path(__file__).parents[2]
BUNDLES = Path(".trainflow/bundles")
"""Folder of the bundles, in the repository; `make clean` removes them."""

PYTHON = "3.14"
"""The newest runtime of Lambda, and so the one that is supported longest."""

LAMBDA = (
    *("--implementation", "cp", "--python-version", PYTHON, "--only-binary", ":all:"),
    # Wheels for older and for newer glibc; the runtime (Amazon Linux 2023) has 2.34.
    *("--platform", "manylinux2014_aarch64", "--platform", "manylinux_2_28_aarch64"),
)
"""Platform of pip's wheels: arm64 costs a fifth less than x86 for each GB-second (AWS Lambda pricing)."""

UNUSED = ("**/tests", "**/test", "**/__pycache__", "**/*.pyi", "*.dist-info", "bin")
"""Never imported by a running function."""

PACKAGES = ("lambdas", "trainflow")
LEFT_OUT = ("trainflow/cli", "trainflow/client", "trainflow/configuration", "trainflow/state_machines.py")
"""Modules for people and stacks that no function imports."""
SOURCES = frozenset({".py", ".json", ".toml", ".j2", ".css", ".js"})
"""Modules, tables of prices and failures, and what the report is made of."""

_PIN = re.compile(
    r"^(?P<name>[a-z0-9._-]+)==(?P<version>\S+)"
    r"(?P<hashes>(?: \\\n +--hash=sha256:[0-9a-f]{64})+)\n +# via (?P<via>.+)$",
    re.MULTILINE,
)
"""A pin, the hashes of its files, and what asked for it, as uv writes them."""


def function_code(stack: cdk.Stack, *, repository: Path = REPOSITORY) -> lambda_.Code:
    """The code of every function.

    A stack that is not being deployed (the CDK CLI and tests say so) is given the bare sources, which costs nothing.

    Raises:
        ConfigurationError: If pip cannot get the packages.
    """
    if not stack.bundling_required:
        return lambda_.Code.from_asset(str(repository / "lambdas"), exclude=["**/__pycache__"])
    return lambda_.Code.from_asset(
        str(bundle(repository)), asset_hash=_digest(repository), asset_hash_type=cdk.AssetHashType.CUSTOM
    )


def bundle(repository: Path, *, target: Sequence[str] = LAMBDA) -> Path:
    """The folder that becomes the archive; made if none exists for these inputs.

    Args:
        repository: Where the packages and the requirements are.
        target: pip's options for another platform than Lambda's.
    """
    packages = _made(
        repository / BUNDLES / f"packages-{_hash([*target, *pins(repository)])}",
        lambda folder: _install(pins(repository), folder, target=target),
    )
    return _made(
        repository / BUNDLES / _hash([packages.name, _digest(repository)]),
        lambda folder: _assemble(repository, packages, folder),
    )


def pins(repository: Path) -> list[str]:
    """The requirements of the functions, all of them, in the versions of requirements.txt and with its hashes.

    Below each version stands what asked for it; from requirements/lambdas.in these notes lead to all that the functions
    need and to nothing else. So pip does not resolve versions.
    """
    asked_by: dict[str, set[str]] = {}
    lines: dict[str, str] = {}
    for pin in _PIN.finditer((repository / "requirements.txt").read_text()):
        asked_by[pin["name"]] = {source.strip() for source in pin["via"].split(",")}
        lines[pin["name"]] = f"{pin['name']}=={pin['version']}" + re.sub(r" \\\n +", " ", pin["hashes"])
    wanted = {name for name, sources in asked_by.items() if "-r requirements/lambdas.in" in sources}
    while more := {name for name, sources in asked_by.items() if sources & wanted} - wanted:
        wanted |= more
    return sorted(lines[name] for name in wanted)


def _digest(repository: Path) -> str:
    sources = (f"{path.relative_to(repository)}\n{path.read_text()}" for path in _sources(repository))
    return _hash([*LAMBDA, *pins(repository), *sources])


def _sources(repository: Path) -> Iterator[Path]:
    for package in PACKAGES:
        found = (path for path in (repository / package).rglob("*") if path.suffix in SOURCES)
        yield from sorted(path for path in found if not path.relative_to(repository).as_posix().startswith(LEFT_OUT))


def _hash(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _made(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder, made beside its place and moved there when it is whole; two at once do no harm."""
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        unfinished = Path(place) / "bundle"
        make(unfinished)
        # If it fails, another process was faster; its folder is as good as this one.
        with suppress(OSError):
            unfinished.rename(folder)
    return folder


def _install(requirements: Sequence[str], folder: Path, *, target: Sequence[str]) -> None:
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
        "--no-deps",
        "--require-hashes",
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:  # a command line may not hold hashes
        file.write("".join(f"{requirement}\n" for requirement in requirements))
        file.flush()
        options = [*target, "--target", str(folder), "--requirement", file.name]
        done = subprocess.run([*pip, *options], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["nothing"]
        said = [line for line in lines if line.startswith("ERROR")] or lines
        raise ConfigurationError(
            f"the functions' packages cannot be installed; pip, which needs PyPI or a mirror of it, said: {said[-1]}"
        )
    for pattern in UNUSED:
        for found in list(folder.glob(pattern)):
            shutil.rmtree(found) if found.is_dir() else found.unlink(missing_ok=True)


def _assemble(repository: Path, packages: Path, folder: Path) -> None:
    # Links: a changed line in a handler does not cost another 69 MB.
    shutil.copytree(packages, folder, copy_function=os.link)
    for source in _sources(repository):
        copy = folder / source.relative_to(repository)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
