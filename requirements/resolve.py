"""Resolves requirements with uv against the public index, independent of the settings of this machine.

`python requirements/resolve.py` compiles every file that is compiled (`make lock`); the tests resolve what it wrote for
every platform and Python that Trainflow supports.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]

OLDEST_PYTHON = "3.11"
"""Oldest Python of `requires-python` in pyproject.toml."""

MACOS = "14.0"
"""Oldest release that torch 2.13 has wheels for."""


@dataclass(frozen=True)
class Compiled:
    """A file of pinned requirements, with the inputs from which it is compiled."""

    output: str
    sources: tuple[str, ...]
    platform: str = "aarch64-apple-darwin"
    """Platform as uv names it. On macOS torch needs no CUDA: its libraries must not be pinned, or a machine that uses
    the build without CUDA would install them, too. All other packages are needed on every platform; a test compares."""
    python: str = OLDEST_PYTHON
    constraints: str | None = None
    published_before: str | None = None
    """Date after which uploads are ignored, so that a list of that time can be compiled again."""
    title: str = ""
    """First line of the output."""
    annotations: bool = True
    hashes: bool = True
    """Whether pip shall check what it installs from this file."""


def _folder(*names: str) -> tuple[str, ...]:
    return tuple(f"requirements/{name}.in" for name in names)


COMPILED = (
    Compiled("requirements.txt", _folder("lambdas", "trainer", "small-jobs", "twin", "deploy", "dev", "examples")),
    Compiled("requirements/tools/checkov.txt", _folder("tools/checkov")),
    Compiled(
        "requirements/tools/tracking.txt",
        _folder("tools/tracking"),
        title="# requirements/tools/tracking.in with everything it needs; `make lock` compiles it.\n",
        annotations=False,
    ),
    Compiled(
        "requirements/tools/torchx.txt",
        _folder("tools/torchx"),
        title="# requirements/tools/torchx.in with everything it needs; `make lock` compiles it.\n",
        annotations=False,
    ),
    Compiled(
        "trainer/images/cpu.txt",
        _folder("trainer"),
        constraints="requirements.txt",
        title="# requirements/trainer.in with everything it needs, in the versions of requirements.txt; "
        "`make lock` compiles it.\n",
        annotations=False,
    ),
    Compiled(
        "trainer/images/tools.txt",
        _folder("small-jobs"),
        constraints="requirements.txt",
        title="# requirements/small-jobs.in with everything it needs, in the versions of requirements.txt; "
        "`make lock` compiles it.\n",
        annotations=False,
    ),
    Compiled(
        "requirements/tools/xla.txt",
        _folder("tools/xla"),
        platform="x86_64-manylinux_2_28",
        title="# requirements/tools/xla.in with everything it needs, on Linux x86-64 with Python 3.11.\n",
        annotations=False,
    ),
    Compiled(
        "requirements/tools/neuron-base.txt",
        _folder("tools/neuron-base"),
        platform="x86_64-manylinux_2_28",
        python="3.12",
        published_before="2026-05-02",
        title="# requirements/tools/neuron-base.in as of 2 May 2026, for Python 3.12 on Linux x86-64; "
        "`make lock` compiles it.\n",
        annotations=False,
        hashes=False,  # AWS has installed these; no pip installs them from here
    ),
)


class Unresolvable(Exception):
    """The requirements cannot be resolved; the message is uv's."""


def resolve_cached(file: str, *, platform: str, python: str) -> str:
    """Resolve as `resolve` does, from uv's cache where it has all answers: the content of a release never changes."""
    try:
        return resolve((file,), platform=platform, python=python, options=("--no-annotate", "--offline"))
    except Unresolvable:
        return resolve((file,), platform=platform, python=python, options=("--no-annotate",))


def resolve(sources: tuple[str, ...], *, platform: str, python: str, options: tuple[str, ...] = ()) -> str:
    """The pinned requirements that a platform and a Python need, as a requirements file.

    Args:
        sources: Requirements files, from the repository's root.
        platform: The platform as uv names it, such as `aarch64-manylinux_2_28`.
        python: The oldest release, such as `3.11`, which means 3.11.0.
        options: Further options for `uv pip compile`.

    Raises:
        Unresolvable: If the public index has no set of wheels for them.
    """
    flags = ("--no-config", "--system-certs", "--only-binary", ":all:", "--no-header", "--quiet")
    target = ("--python-platform", platform, "--python-version", python)
    done = subprocess.run(
        [sys.executable, "-m", "uv", "pip", "compile", *flags, *target, *options, *sources],
        cwd=REPOSITORY,
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Unresolvable(done.stderr.strip())
    return done.stdout


def _environment() -> dict[str, str]:
    """Environment without this machine's indexes and folders of wheels. Proxies and certificates stay, since they
    change no answer."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_"))}
    return {**kept, "MACOSX_DEPLOYMENT_TARGET": MACOS}


def lock() -> None:
    """Compile all files again, keeping the versions that still fit.

    Raises:
        Unresolvable: If something cannot be resolved.
    """
    for compiled in COMPILED:
        style = ("--annotation-style", "line") if compiled.annotations else ("--no-annotate",)
        constraints = ("--constraints", compiled.constraints) if compiled.constraints else ()
        cutoff = ("--exclude-newer", compiled.published_before) if compiled.published_before else ()
        hashes = ("--generate-hashes",) if compiled.hashes else ()
        resolve(
            compiled.sources,
            platform=compiled.platform,
            python=compiled.python,
            options=(
                *style,
                *constraints,
                *cutoff,
                *hashes,
                "--output-file",
                compiled.output,
            ),  # which uv also takes versions from
        )
        output = REPOSITORY / compiled.output
        output.write_text(compiled.title + output.read_text())


if __name__ == "__main__":
    try:
        lock()
    except Unresolvable as error:
        sys.exit(f"make lock: {error}")
