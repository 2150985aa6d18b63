"""The image's packages that no requirement may replace, as constraints for pip."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

CORE = frozenset(
    {
        "jax",
        "jaxlib",
        "libneuronxla",
        "neuronx-cc",
        "numpy",
        "torch",
        "torch-neuronx",
        "torch-xla",
    }
)
"""Packages that the image's builds for its accelerator are compiled against, or are themselves. Each stays unless the
spec names it."""

COMPANIONS = re.compile(
    r"(nvidia|cuda|neuronx|jax-neuronx|jax-cuda\d*|aws-neuronx)-.*|triton|pytorch-triton|jax-neuronx"
)
"""Packages that exist only for one of these. They stay as well, unless the spec names them or what requires them."""

_NAME = re.compile(r"\s*(?P<name>[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*(?P<rest>.*)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Package:
    """A package that the image has."""

    name: str
    """Canonical name."""
    version: str
    requires: tuple[str, ...] = ()
    """Its requirements, as its metadata has them."""


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """Limit of a package's versions, and the package of the image that sets it."""

    name: str
    specifier: str
    """Versions and an environment marker, as pip reads them."""
    source: Package
    """The package itself, or one that requires it."""

    @property
    def line(self) -> str:
        """The line of a constraints file."""
        return f"{self.name}{self.specifier}"


def canonical(name: str) -> str:
    """A package's name as PyPI compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_packages() -> dict[str, Package]:
    """Packages on the path of this Python, by name; the first one that Python finds of each name."""
    found: dict[str, Package] = {}
    for each in importlib.metadata.distributions():
        package = _package(each)
        if package is not None:
            found.setdefault(package.name, package)
    return found


def _package(found: importlib.metadata.Distribution) -> Package | None:
    """The package of a distribution; None where its metadata is damaged."""
    metadata = found.metadata
    name, version = metadata["Name"], metadata["Version"]  # None where they are missing
    if not isinstance(name, str) or not isinstance(version, str):
        return None
    return Package(
        name=canonical(name), version=version, requires=tuple(metadata.get_all("Requires-Dist") or found.requires or ())
    )


def protected(image: Mapping[str, Package], *, replaced: Collection[str] = ()) -> dict[str, Package]:
    """Packages of the image that stay as they are.

    Args:
        image: Packages of the image, by name.
        replaced: Names of `workload.replace_packages`.
    """
    named = {canonical(name) for name in replaced}
    free = named | {name for name in _required(image, named) if name not in CORE}
    return {
        name: package
        for name, package in image.items()
        if name not in free and (name in CORE or COMPANIONS.fullmatch(name))
    }


def _required(image: Mapping[str, Package], names: Iterable[str]) -> set[str]:
    """Names of what packages of the image require, directly or not."""
    found: set[str] = set()
    waiting = [name for name in names if name in image]
    while waiting:
        for name, _ in _requirements(image[waiting.pop()]):
            if name not in found:
                found.add(name)
                waiting += [name] if name in image else []
    return found


def constraints(stack: Mapping[str, Package], *, replaced: Collection[str] = ()) -> list[Constraint]:
    """The versions of protected packages, and the versions that these require of others.

    Args:
        stack: Protected packages, by name.
        replaced: Names of `workload.replace_packages`, which nothing constrains.
    """
    free = {canonical(name) for name in replaced}
    found = [Constraint(name=name, specifier=f"=={each.version}", source=each) for name, each in sorted(stack.items())]
    for _, package in sorted(stack.items()):
        found += [
            Constraint(name=name, specifier=specifier, source=package)
            for name, specifier in _requirements(package)
            if name not in free and name not in stack
        ]
    return found


def _requirements(package: Package) -> Iterator[tuple[str, str]]:
    """Name and specifier of what a package requires without extras. URLs and empty specifiers set no limit."""
    for text in package.requires:
        match = _NAME.fullmatch(text)
        if match is None or re.search(r"\bextra\s*==", text):
            continue
        rest = match["rest"].strip()
        versions, semicolon, marker = rest.partition(";")
        versions = versions.strip().removeprefix("(").removesuffix(")").strip()
        if not rest.startswith("@"):
            yield canonical(match["name"]), f"{versions} ; {marker.strip()}" if semicolon else versions
