"""Inputs and results of a run with their identities: image, code, data set and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from trainflow.record.history import ExecutionHistory, publication, task_output
from trainflow.record.steps import KeptSteps
from trainflow.spec.code import git_commit, packed_sha256
from trainflow.workflow.run_record import Inputs, SavedCheckpoint


def inputs(spec: Any, history: ExecutionHistory) -> Inputs:
    """The identity of everything that the run was made of, as far as it is known.

    Args:
        spec: The run spec, which may be invalid.
        history: The run's own execution: the cluster's answers have the image's digest, and what was staged.
    """
    workload, dataset = _object(_object(spec).get("workload")), _object(_object(spec).get("dataset"))
    code, image = _text(workload.get("code")), _text(workload.get("image"))
    commit = git_commit(code) if code else None
    staged = _object(_object(task_output(history, "StageData")).get("dataset"))
    examined = _object(task_output(history, "Preflight"))
    digest = _text(examined.get("image_digest"))
    return Inputs(
        image=image,
        image_digest=digest or (image.partition("@")[2] or None if image else None),
        code_url=code,
        code_sha256=packed_sha256(code) if code else None,
        git_commit=_text(workload.get("code_commit")) or (commit.commit if commit else None),
        packages={
            str(name): version
            for name, version in _object(examined.get("versions")).items()
            if isinstance(version, str)
        },
        tools_image=_text(_object(_object(task_output(history, "ValidateRun")).get("run")).get("tools_image")),
        dataset_url=_text(dataset.get("url")),
        dataset_etag=_text(staged.get("etag")),
        dataset_sha256=_text(staged.get("sha256")) or _text(dataset.get("sha256")),
        dataset_manifest=_text(staged.get("manifest")),
        dataset_verified=_text(staged.get("verified")),
        dataset_bytes=_count(staged.get("bytes")),
        dataset_files=_count(staged.get("files")),
    )


def checkpoints(kept: KeptSteps, history: ExecutionHistory) -> list[SavedCheckpoint]:
    """The newest checkpoints; the last one with its URL, if it was published."""
    artifacts = _object(publication(history).get("artifacts"))
    url, published_at = _text(artifacts.get("checkpoint")), artifacts.get("checkpoint_saved_at")
    found = [
        SavedCheckpoint(step=saved.step, saved_at=saved.saved_at, size_bytes=saved.num_bytes)
        for saved in kept.checkpoints
    ]
    if url is None:
        return found
    step = _count(artifacts.get("checkpoint_step"))
    published = next((saved for saved in reversed(found) if step in (None, saved.step)), None)
    if published is not None:
        return [saved.model_copy(update={"url": url}) if saved is published else saved for saved in found]
    return [
        *found,
        SavedCheckpoint(
            step=step,
            saved_at=datetime.fromtimestamp(published_at, UTC) if isinstance(published_at, int | float) else None,
            size_bytes=_count(artifacts.get("checkpoint_bytes")),
            url=url,
        ),
    ]


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
