"""The list of components (SBOM) names what reaches an account and what no environment of this machine holds."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from stacks.orchestration.bundling import pins
from stacks.tools import sbom
from tests.infrastructure.assembly import EXAMPLE
from trainflow.configuration.cluster_software import CHARTS
from trainflow.configuration.deployment import load_configuration


@pytest.fixture(scope="module")
def components() -> list[dict[str, Any]]:
    return sbom.components(load_configuration(EXAMPLE))


@pytest.fixture(scope="module")
def names(components: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Names of components by what they are a part of."""
    found = defaultdict(set)
    for component in components:
        (part,) = (each["value"] for each in component["properties"] if each["name"] == sbom.PART)
        found[part].add(component["name"])
    return found


def test_the_packages_of_every_image_and_of_the_functions_are_listed(names: dict[str, set[str]]) -> None:
    assert {"torch", "transformers", "h5py"} <= names["image cpu"]
    assert {"boto3", "h5py", "zstandard"} <= names["image tools"]
    assert {"torch", "transformers", "boto3"} <= names["image neuron"]
    assert {"boto3", "kubernetes", "pydantic"} <= names["functions"]
    assert len(names["functions"]) == len(pins(Path()))


def test_the_node_tools_are_listed_with_what_they_need(names: dict[str, set[str]]) -> None:
    declared = json.loads(Path("package.json").read_text())["devDependencies"]
    assert set(declared) < names["node tools"]


def test_charts_base_images_and_the_operator_are_listed(names: dict[str, set[str]]) -> None:
    assert names["charts"] == {chart.name for chart in CHARTS}
    assert "public.ecr.aws/docker/library/python" in names["image cpu"]
    assert "public.ecr.aws/neuron/pytorch-training-neuronx" in names["image neuron"]
    assert names["training operator"] == {"ghcr.io/kubeflow/training-v1/training-operator"}


def test_a_component_is_listed_once_with_its_version_and_a_name_that_scanners_read(
    components: list[dict[str, Any]],
) -> None:
    references = [component["bom-ref"] for component in components]
    assert len(references) == len(set(references))
    for component in components:
        assert component["version"]
        assert component["purl"].startswith(("pkg:pypi/", "pkg:npm/", "pkg:helm/", "pkg:oci/"))


def test_a_package_has_the_hashes_of_its_pin() -> None:
    requirements = f"""
    # of an image
Some_Package==1.2.3 \\
    --hash=sha256:{"a" * 64} \\
    --hash=sha256:{"b" * 64}
    # via other
other==2.0+local
"""
    found = list(sbom.python_packages("image", requirements))
    assert [component["purl"] for component in found] == ["pkg:pypi/some-package@1.2.3", "pkg:pypi/other@2.0%2Blocal"]
    (distribution,) = found[0]["externalReferences"]
    assert [each["content"] for each in distribution["hashes"]] == ["a" * 64, "b" * 64]
    assert "externalReferences" not in found[1]


def test_an_image_is_named_by_its_digest_where_it_has_one(tmp_path: Path) -> None:
    digest = f"sha256:{'c' * 64}"
    changed = tmp_path / "mine.yaml"
    changed.write_text(f"{EXAMPLE.read_text()}\nimages:\n  tools: registry.example:5000/team/tools:1.0@{digest}\n")
    (tools,) = (each for each in sbom.components(load_configuration(changed)) if "/team/" in each["name"])
    assert (tools["name"], tools["version"]) == ("registry.example:5000/team/tools", digest)
    assert tools["purl"].startswith("pkg:oci/tools@sha256%3A" + "c" * 64)


def test_what_is_installed_here_stays_in_the_document(tmp_path: Path) -> None:
    environment, output = tmp_path / "environment.json", tmp_path / "sbom.json"
    environment.write_text(json.dumps({"bomFormat": "CycloneDX", "components": [{"name": "ruff", "bom-ref": "ruff"}]}))
    sbom.main(["--environment", str(environment), "--output", str(output), "--config", str(EXAMPLE)])
    document = json.loads(output.read_text())
    assert document["bomFormat"] == "CycloneDX"
    assert {"ruff", "aws-cdk", "volcano", "torch"} <= {component["name"] for component in document["components"]}
