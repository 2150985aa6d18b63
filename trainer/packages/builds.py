"""Builds of PyTorch's own libraries: those of PyPI cannot be imported beside a PyTorch that was built without CUDA.

A build for other devices has a local version, as `2.13.0+cpu`, and an index of its own (pytorch.org, "Get Started";
pytorch/pytorch, issue 122494).
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable, Mapping, Sequence

from trainer.packages.image import Package
from trainer.packages.pip import Item
from trainer.packages.requirement_lines import Line
from trainer.runtime.errors import CodeInvalid

LIBRARIES = ("torchaudio", "torchvision")
"""Libraries with native code that PyTorch's index has for each build."""

CPU = "cpu"
"""Local version of a build without CUDA. Of other builds it is not known which ones fit each other."""

INDEX = f"https://download.pytorch.org/whl/{CPU}"
PLATFORM = "linux-x86_64"
"""PyPI has builds with CUDA for this platform."""


def mismatched(items: Iterable[Item], stack: Mapping[str, Package]) -> list[Item]:
    """Libraries that are built for CUDA, where the image's PyTorch is not.

    Args:
        items: Packages to be installed.
        stack: Packages of the image that stay as they are.
    """
    torch = stack.get("torch")
    if torch is None or _build(torch.version) != CPU or sysconfig.get_platform() != PLATFORM:
        return []
    return [item for item in items if item.name in LIBRARIES and item.is_shareable and not _build(item.version)]


def _build(version: str) -> str:
    return version.partition("+")[2]


def lines_with_builds(lines: Sequence[Line], items: Iterable[Item]) -> list[Line]:
    """The lines with the places of the fitting builds, and of nothing else of that index."""
    pages = [f"--find-links {INDEX}/{item.name}/" for item in items]
    closed = any(line.is_option and line.text.startswith("--no-index") for line in lines)
    added = () if closed else pages
    return [*lines, *(Line(text=text, file=INDEX, number=1, is_option=True) for text in added)]


def require_matching(items: Iterable[Item], stack: Mapping[str, Package]) -> None:
    """Require that all libraries fit the image's PyTorch.

    Raises:
        CodeInvalid: If one does not.
    """
    found = mismatched(items, stack)
    if found:
        named = " and ".join(f"{item.name} {item.version}" for item in found)
        raise CodeInvalid(
            f"workload.requirements: {named} would be installed in a build for CUDA, but the image has torch "
            f"{stack['torch'].version}, with which it cannot be imported; give pip the index of the fitting build, as "
            f"in `--extra-index-url {INDEX}`, choose an image that has the package, or install another torch with "
            "workload.replace_packages: [torch]."
        )
