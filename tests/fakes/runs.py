"""Whole objects for tests: a run spec that is valid, and the run of it."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

from lambdas.logic.jobs import job_of
from trainflow.deployment.backends import BackendName
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.run import JobRef, Run, Stage

STARTED_AT = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

TRAINER_IMAGE = "registry.example/trainer@sha256:" + "0123" * 16
"""The image of the spec. A node refuses names with shorter digests."""

TOOLS_IMAGE = "registry.example/tools@sha256:" + "4567" * 16
"""What staging and publishing run in."""

SPEC: dict[str, Any] = {
    "version": 1,
    "name": "bert",
    "workload": {
        "module": "trainer.pretrain",
        "arguments": {"max_steps": 100, "learning_rate": 4e-4, "compile": True},
        "image": TRAINER_IMAGE,
    },
    "compute": {
        "instance_type": "trn1.32xlarge",
        "num_nodes": 2,
        "processes_per_node": 32,
        "backend": "job",
        "check_nodes": False,
    },
    "dataset": {"url": "s3://corpus/wikicorpus_seqlen128.tar"},
}


def spec_with(**fields: Any) -> dict[str, Any]:
    """The spec with some fields replaced; `compute__num_nodes=0` reaches into sections."""
    spec = copy.deepcopy(SPEC)
    for path, value in fields.items():
        section, *names = path.split("__")
        if names:
            spec.setdefault(section, {})[names[0]] = value
        else:
            spec[section] = value
    return spec


def run_of(spec: dict[str, Any] | None = None, *, run_id: str = "bert-0123456789ab") -> Run:
    """A run of the spec."""
    parsed = parse_run_spec(spec or SPEC)
    return Run(
        run_id=run_id,
        execution_arn=f"arn:aws:states:us-west-2:123456789012:execution:trainflow-training:{run_id}",
        started_at=STARTED_AT,
        spec=parsed,
        tools_image=None if parsed.compute.backend == "slurm" else TOOLS_IMAGE,
    )


def run_on(backend: BackendName, *, num_nodes: int | None = None, elastic: bool = False, **fields: Any) -> Run:
    """A run on one of the backends."""
    nodes = num_nodes or (1 if backend == "pod" else 2)
    limits = {"min_nodes": 1, "max_nodes": nodes} if elastic else None
    spec = spec_with(compute__backend=backend, compute__num_nodes=nodes, compute__elastic=limits, **fields)
    return run_of(spec, run_id=f"bert-{backend}{'-elastic' if elastic else ''}-0123456789ab")


def job_ref(run: Run, stage: Stage = Stage.TRAINING) -> JobRef:
    """The run's first job of a stage."""
    return job_of(run, stage, 1, artifacts_url="s3://artifacts/").ref
