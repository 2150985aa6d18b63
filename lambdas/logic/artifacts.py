"""The record that lies beside a run's artifacts in S3: what the workflow itself knows of a finished training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lambdas.models.run import MetricsCursor, Run
from lambdas.models.run_record import Compilation, MetricsPublished, RunRecord, RunStatus, Training


def published_record(
    run: Run,
    *,
    trained: object,
    artifacts: Mapping[str, Any],
    progress: MetricsCursor,
    compilation: Compilation | None,
) -> dict[str, Any]:
    """The run's record as of now, in the form of `run.json`.

    Args:
        run: The run.
        trained: What the training program left as its result; other programs than ours may leave nothing.
        artifacts: What the publishing program left as its result.
        progress: What was published to CloudWatch.
        compilation: Counts of the precompile job, if there was one.
    """
    program: Mapping[str, Any] = trained if isinstance(trained, Mapping) else {}
    record = RunRecord(
        run_id=run.run_id,
        status=RunStatus.RUNNING,  # tear-down and notification are still to come
        spec=run.spec.model_dump(mode="json"),
        started_at=run.started_at,
        compile=compilation,
        training=Training(
            steps=program.get("steps", progress.last_step or 0),
            first_loss=program.get("first_loss", progress.first_loss),
            last_loss=program.get("last_loss", progress.last_loss),
            sequences_per_second=program.get("sequences_per_second"),
            checkpoint=artifacts.get("checkpoint"),
        ),
        metrics_published=MetricsPublished(
            datapoints=progress.datapoints, first_step=progress.first_step, last_step=progress.last_step
        ),
    )
    return record.model_dump(mode="json")
