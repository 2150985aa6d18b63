"""Checks of a run that has not started by the functions themselves; the probe in a pod does the others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from lambdas.gateways import objects
from lambdas.gateways.compile_caches import CompileCaches
from lambdas.handlers.environment import read
from lambdas.logic.compile_cache import cache_key
from lambdas.logic.preflight.cache import compilation_findings
from lambdas.logic.preflight.dataset import needs_stored_checksum
from lambdas.logic.preflight.findings import Finding
from trainflow.deployment.environment import CacheEnvironment
from trainflow.spec.run_spec import Dataset, RunSpec
from trainflow.workflow.preflight import DatasetFacts, Unknown


def dataset_facts(dataset: Dataset | None) -> DatasetFacts:
    """Facts about the source of the data set."""
    if dataset is None:
        return DatasetFacts()
    where: dict[str, Any] = {"region": dataset.region, "signed": not dataset.public}
    listed = dataset.manifest
    manifest = listed is None or objects.head(listed.bucket, listed.key, **where) is not None
    if not dataset.in_s3:
        unknown = Unknown("the size of a file behind https:// is known when it is fetched")
        return DatasetFacts(manifest_is_there=manifest, num_bytes=unknown, etag=f"sha256:{dataset.sha256}")
    elsewhere = dataset.region if dataset.region != os.environ.get("AWS_REGION", dataset.region) else None
    unknown_size = Unknown(f"the size of {dataset.url} could not be determined")
    if not dataset.is_prefix:
        found = objects.head(dataset.bucket, dataset.key, **where)
        if found is None:
            return DatasetFacts(is_there=False, manifest_is_there=manifest, num_bytes=unknown_size)
        stored = needs_stored_checksum(dataset) or None
        return DatasetFacts(
            manifest_is_there=manifest,
            num_bytes=found.num_bytes,
            from_region=elsewhere,
            etag=found.etag,
            is_verifiable=stored and objects.has_checksum(dataset.bucket, dataset.key, **where),
        )
    listing = objects.list_below(dataset.bucket, dataset.key, **where)
    return DatasetFacts(
        is_there=listing is not None and not listing.is_empty,
        manifest_is_there=manifest,
        num_bytes=unknown_size if listing is None or listing.num_bytes is None else listing.num_bytes,
        from_region=elsewhere,
    )


def cache_findings(spec: RunSpec, digest: str | None) -> Iterator[Finding]:
    """Findings about the compile cache of a run whose image has this digest, None for an unknown one."""
    if spec.precompiles:
        key = cache_key(spec, image_digest=digest)
        yield from compilation_findings(CompileCaches(read(CacheEnvironment).cache_table).find(key))
