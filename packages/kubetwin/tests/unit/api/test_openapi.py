"""The OpenAPI documents that kubectl plans its patches with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kubetwin.api.openapi import OpenApi
from kubetwin.resources import load_registry

OPENAPI = OpenApi(load_registry())
PLACES = list(OPENAPI.index()["paths"])


def document(place: str) -> dict[str, Any]:
    text = OPENAPI.document(place)
    assert text is not None
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from references(item)


@pytest.mark.parametrize("place", PLACES)
def test_every_reference_leads_to_a_type_of_the_same_document(place: str) -> None:
    found = document(place)
    types = found["components"]["schemas"]
    assert {ref.removeprefix("#/components/schemas/") for ref in references(found)} <= set(types)


def test_lists_have_the_key_by_which_they_merge() -> None:
    containers = document("apis/batch/v1")["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"][
        "containers"
    ]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["type"] == "array"


def test_only_built_in_kinds_take_strategic_patches() -> None:
    def patches(place: str, path: str) -> set[str]:
        return set(document(place)["paths"][path]["patch"]["requestBody"]["content"])

    strategic = "application/strategic-merge-patch+json"
    assert strategic in patches("apis/batch/v1", "/apis/batch/v1/namespaces/{namespace}/jobs/{name}")
    custom = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets/{name}"
    assert strategic not in patches("apis/jobset.x-k8s.io/v1alpha2", custom)


def test_an_unknown_group_has_no_document() -> None:
    assert OPENAPI.document("apis/example.com/v1") is None
