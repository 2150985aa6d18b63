"""Schemas of CloudFormation's resources, as cfn-lint carries them."""

from __future__ import annotations

from typing import Any


def resource_schema(region: str, resource_type: str) -> dict[str, Any]:
    """The registry's schema of a type of resource in a Region."""
    from cfnlint.schema import PROVIDER_SCHEMA_MANAGER  # takes a second, and every worker collects every test

    schema: dict[str, Any] = PROVIDER_SCHEMA_MANAGER.get_resource_schema(region, resource_type).schema
    return schema
