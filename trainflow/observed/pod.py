"""Describes a pod of a run for people, from the object that the API serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from trainflow.models.kubernetes_names import (
    ATTEMPT_LABEL,
    ELASTIC_LABEL,
    FIRST_NODE_RANK_LABEL,
    JOB_LABEL,
    STAGE_LABEL,
)
from trainflow.observed.containers import end_reason, workload
from trainflow.observed.containers import phase as phase_of
from trainflow.protocol.result import read_result

INDEX_LABELS = (
    "batch.kubernetes.io/job-completion-index",
    "volcano.sh/task-index",
    "training.kubeflow.org/replica-index",
)
"""Labels in which the job kinds write a pod's index in its gang; an Indexed Job has it as an annotation, too. JobSets
have one Job."""

FINISHED_PHASES = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, kw_only=True)
class PodView:
    """Properties of a pod that people need."""

    name: str
    uid: str
    stage: str
    attempt: int = 1
    index: int = 0
    """Index in the gang; 0 for pods outside of a gang."""
    elastic: bool = False
    """Whether ranks are assigned at run time, so that any pod of the gang may have rank 0."""
    job_name: str | None = None
    container: str = ""
    """Container of the program, whatever others the cluster injects. An init container, if it failed and kept the
    program's from starting."""
    node: str | None = None
    phase: str = "Pending"
    reason: str | None = None
    """Kubernetes' reason for which it waits or failed: `ImagePullBackOff`, `OOMKilled`, `Evicted` …"""
    exit_code: int | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    message: str | None = None
    """Message of a failed pod: its last output, or the reason why the cluster ended it."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """Result that the program wrote."""
    deleted: bool = False

    @property
    def finished(self) -> bool:
        """Whether the pod has ended."""
        return self.deleted or self.phase in FINISHED_PHASES

    @property
    def has_log(self) -> bool:
        """Whether its container has ever run."""
        return self.started_at is not None


def pod_view(manifest: Mapping[str, Any]) -> PodView:
    """Read the relevant properties of a pod that the API serves."""
    metadata, spec, status = (manifest.get(part) or {} for part in ("metadata", "spec", "status"))
    labels = metadata.get("labels") or {}
    program = workload(manifest)
    ended, running, waiting = program.ended, program.running, program.waiting
    said = read_result(ended.get("message"))
    phase = phase_of(manifest)
    reason = end_reason(manifest) or waiting.get("reason")
    result = said.get("result")
    return PodView(
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        stage=labels.get(STAGE_LABEL, ""),
        attempt=_number(labels.get(ATTEMPT_LABEL), 1),
        index=_index(labels, metadata.get("annotations") or {}),
        elastic=ELASTIC_LABEL in labels,
        job_name=labels.get(JOB_LABEL),
        container=program.container,
        node=spec.get("nodeName"),
        phase=phase,
        reason=None if reason == "Completed" else reason,
        exit_code=ended.get("exitCode"),
        created_at=_time(metadata.get("creationTimestamp")),
        started_at=_time(running.get("startedAt") or ended.get("startedAt")),
        finished_at=_time(ended.get("finishedAt")),
        message=_last_words(said, ended, status) if phase == "Failed" else None,
        result=result if isinstance(result, dict) else {},
    )


def deleted_view(pod: PodView, now: datetime) -> PodView:
    """A pod that has left the cluster: its last state, closed at `now` if its end was not observed."""
    if pod.finished or not pod.has_log:
        return replace(pod, deleted=True, message=pod.message or (None if pod.finished else "deleted before it ran"))
    return replace(
        pod, deleted=True, phase="Unknown", finished_at=pod.finished_at or now, message="deleted while it ran"
    )


def _last_words(said: Mapping[str, Any], ended: Mapping[str, Any], status: Mapping[str, Any]) -> str | None:
    reported = ": ".join(str(said[key]) for key in ("error", "message") if said.get(key))
    words = reported or ended.get("message") or status.get("message") or ended.get("reason") or status.get("reason")
    return None if words in (None, "Error") else str(words).strip()  # "Error" says no more than the exit code


def _index(labels: Mapping[str, str], annotations: Mapping[str, str]) -> int:
    written = next((found for label in INDEX_LABELS if (found := labels.get(label) or annotations.get(label))), None)
    return _number(written, 0) + _number(labels.get(FIRST_NODE_RANK_LABEL), 0)


def _number(text: str | None, default: int) -> int:
    return int(text) if text and text.isdecimal() else default


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
