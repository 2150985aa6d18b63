"""Labels and annotations on every object that Trainflow makes in a cluster."""

from __future__ import annotations

MANAGED_BY = {"app.kubernetes.io/managed-by": "trainflow"}
RUN_LABEL = "trainflow/run"
STAGE_LABEL = "trainflow/stage"
ATTEMPT_LABEL = "trainflow/attempt"

CLAIM_LABEL = "trainflow/claims"
"""On the ConfigMap by which a run claims nodes: their instance type."""

SPEC_HASH_ANNOTATION = "trainflow/spec-hash"
"""Tells whether an existing job of the same name is the same job."""
