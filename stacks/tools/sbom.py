"""Writes what a deployment consists of, beside what is installed here, as one CycloneDX document.

    python -m stacks.tools.sbom --environment out/environment.json --output out/sbom.json [--config config/mine.yaml]

cyclonedx-py lists the packages of an environment. Added here is what no environment holds: the packages of each image
and of the functions, with their hashes; the Node tools; the charts, the base images and the operator's image.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stacks.orchestration.bundling import REPOSITORY, pins
from trainflow.configuration.cluster_software import TRAINING_OPERATOR_IMAGE, charts
from trainflow.configuration.deployment import Configuration, load_configuration

PART = "trainflow:part"
"""Property of a component: what of Trainflow it is a part of."""

IMAGES = {
    "image cpu": "trainer/images/cpu.txt",
    "image tools": "trainer/images/tools.txt",
    # The base brings all of them; what Trainflow adds has only bounds (neuron.Dockerfile).
    "image neuron": "requirements/tools/neuron-base.txt",
}
"""The list of each image's packages, by what it is a part of."""

_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)(?P<rest>(?:.*\\\n)*.*)", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")

Component = dict[str, Any]


def components(configuration: Configuration, repository: Path = REPOSITORY) -> list[Component]:
    """Components that a deployment runs and is made with, in a fixed order."""
    found = [
        *(
            component
            for part, listed in IMAGES.items()
            for component in python_packages(part, (repository / listed).read_text())
        ),
        *python_packages("functions", "\n".join(pins(repository))),
        *node_packages((repository / "package-lock.json").read_text()),
        *_charts(configuration),
        *_images(configuration),
    ]
    return sorted(found, key=lambda component: str(component["bom-ref"]))


def python_packages(part: str, requirements: str) -> Iterator[Component]:
    """The pinned packages of a requirements file, with the hashes of the files that pip takes."""
    for pin in _PIN.finditer(requirements):
        name, version = pin["name"], pin["version"]
        hashes = [{"alg": "SHA-256", "content": digest} for digest in _HASH.findall(pin["rest"])]
        yield _component(
            part,
            f"pkg:pypi/{name.lower().replace('_', '-')}@{quote(version)}",
            type="library",
            name=name,
            version=version,
            # Not the component's own hashes: they are of its files, one for each platform.
            externalReferences=[
                {"type": "distribution", "url": f"https://pypi.org/project/{name}/{version}/", "hashes": hashes}
            ]
            if hashes
            else [],
        )


def node_packages(lock: str) -> Iterator[Component]:
    """The packages of a package-lock.json, with the licences that they state there."""
    for path, package in json.loads(lock)["packages"].items():
        if not path:  # the project itself
            continue
        name = path.rpartition("node_modules/")[2]
        algorithm, _, digest = package["integrity"].partition("-")
        yield _component(
            "node tools",
            f"pkg:npm/{quote(name)}@{package['version']}",
            type="library",
            name=name,
            version=package["version"],
            hashes=[{"alg": _ALGORITHMS[algorithm], "content": base64.b64decode(digest).hex()}],
            licenses=[{"expression": package["license"]}] if "license" in package else [],
        )


_ALGORITHMS = {"sha512": "SHA-512", "sha256": "SHA-256", "sha1": "SHA-1"}


def _charts(configuration: Configuration) -> Iterator[Component]:
    for chart in charts(trainer=configuration.cluster.trainer):
        yield _component(
            "charts",
            f"pkg:helm/{chart.name}@{chart.version}?repository_url={quote(chart.repository, safe='')}",
            type="application",
            name=chart.name,
            version=chart.version,
        )


def _images(configuration: Configuration) -> Iterator[Component]:
    images = configuration.images
    named = {
        "image neuron": images.neuron_base,
        "image cpu": images.cpu_base,
        "image torchneuron": images.torchneuron_base,
        "image tools": images.tools,
        "training operator": TRAINING_OPERATOR_IMAGE if configuration.cluster.training_operator else None,
    }
    for part, image in named.items():
        if image is not None:
            yield _image(part, image)


def _image(part: str, image: str) -> Component:
    """An image by its tag and, where it is named by one, its digest."""
    rest, _, digest = image.partition("@")
    folder, slash, last = rest.rpartition("/")
    name, _, tag = last.partition(":")
    place = f"{folder}{slash}{name}"
    version = digest or tag or "latest"
    qualifiers = f"?repository_url={quote(place, safe='')}" + (f"&tag={tag}" if tag else "")
    purl = f"pkg:oci/{name}@{quote(version, safe='')}{qualifiers}"
    return _component(part, purl, type="container", name=place, version=version)


def _component(part: str, purl: str, **fields: Any) -> Component:
    filled = {name: value for name, value in fields.items() if value}
    return {**filled, "bom-ref": f"{part}: {purl}", "purl": purl, "properties": [{"name": PART, "value": part}]}


def merged(environment: dict[str, Any], added: Sequence[Component]) -> dict[str, Any]:
    """A document about an environment, with further components."""
    return {**environment, "components": [*environment.get("components", ()), *added]}


def main(argv: list[str] | None = None) -> None:
    """Write the document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=Path, required=True, help="what cyclonedx-py has written")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--config", type=Path, default=Path("config/example.yaml"), help="names the base images")
    options = parser.parse_args(argv)
    document = merged(json.loads(options.environment.read_text()), components(load_configuration(options.config)))
    options.output.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
